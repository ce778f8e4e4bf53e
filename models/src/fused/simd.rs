//! Lets plain loops be compiled for AVX2 where the machine has it.
//!
//! Rust neither reorders nor fuses float operations on its own, so both versions give the same bits.

/// Runs `work`, compiled for AVX2 when the processor has it. `work` must be inlined for that to help.
#[inline(always)]
pub(super) fn wide<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, checked on the line above.
        #[expect(unsafe_code, reason = "calling a function compiled for a CPU feature")]
        return unsafe { with_avx2(work) };
    }
    work()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2<R>(work: impl FnOnce() -> R) -> R {
    work()
}

/// Sum with eight partial sums, in a fixed order.
#[inline(always)]
pub(super) fn sum(values: &[f32]) -> f32 {
    lanes(values, values, |total, value, _| total + value)
}

/// Sum of products with eight partial sums, in a fixed order.
#[inline(always)]
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    lanes(a, b, |total, a, b| total + a * b)
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
