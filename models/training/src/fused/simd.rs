//! Compiles plain loops a second time for AVX2, and runs the AVX2 version on processors that have AVX2.
//!
//! Rust neither reorders nor fuses float operations on its own, so both versions give the same bits.

/// Defines a function that is compiled twice, plain and for AVX2; the AVX2 version runs if the processor has AVX2.
///
/// A macro and not a function that takes a closure: a closure is a separate function, compiled without AVX2 unless the compiler
/// happens to inline it. Functions that the body calls must be `#[inline(always)]` or as small as an iterator's adapter.
macro_rules! wide {
    ($(#[$meta:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block) => {
        $(#[$meta])*
        fn $name($($argument: $type),*) $(-> $result)? {
            #[inline(always)]
            fn plain($($argument: $type),*) $(-> $result)? $body

            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2")]
            fn avx2($($argument: $type),*) $(-> $result)? {
                plain($($argument),*)
            }

            #[cfg(target_arch = "x86_64")]
            if std::arch::is_x86_feature_detected!("avx2") {
                // SAFETY: the processor has AVX2, checked on the line above.
                #[expect(unsafe_code, reason = "calling a function compiled for a CPU feature")]
                return unsafe { avx2($($argument),*) };
            }
            plain($($argument),*)
        }
    };
}
pub(super) use wide;

/// Sum with sixteen partial sums, in a fixed order.
#[inline(always)]
pub(super) fn sum(values: &[f32]) -> f32 {
    lanes(values, values, |total, value, _| total + value)
}

/// Sum of products with sixteen partial sums, in a fixed order.
#[inline(always)]
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    lanes(a, b, |total, a, b| total + a * b)
}

/// Sum of squared distances from `centre` with sixteen partial sums, in a fixed order.
#[inline(always)]
pub(super) fn squares(values: &[f32], centre: f32) -> f32 {
    lanes(values, values, |total, value, _| total + (value - centre) * (value - centre))
}

#[inline(always)]
fn lanes(a: &[f32], b: &[f32], add: impl Fn(f32, f32, f32) -> f32) -> f32 {
    const LANES: usize = 16;
    let mut partial = [0.0f32; LANES];
    let (chunks_a, rest_a) = a.as_chunks::<LANES>();
    let (chunks_b, rest_b) = b.as_chunks::<LANES>();
    for (a, b) in chunks_a.iter().zip(chunks_b) {
        for lane in 0..LANES {
            partial[lane] = add(partial[lane], a[lane], b[lane]);
        }
    }
    let mut total = partial.iter().sum();
    for (&a, &b) in rest_a.iter().zip(rest_b) {
        total = add(total, a, b);
    }
    total
}
