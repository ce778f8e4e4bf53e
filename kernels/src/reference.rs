//! What each kernel computes, written for reading.

/// Sum of `a[i] * b[i]`, `true` standing for +1 and `false` for -1.
pub fn dot(a: &[bool], b: &[bool]) -> i32 {
    let sign = |value: bool| if value { 1 } else { -1 };
    a.iter().zip(b).map(|(&a, &b)| sign(a) * sign(b)).sum()
}
