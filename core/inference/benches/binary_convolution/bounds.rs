//! Peak rates of instructions that work in registers, in 10^9 products a second.

use std::hint::black_box;

use headwater_kernels::CodePath;

use super::timed;

/// Independent chains: more than an instruction's latency times the instructions that start in one cycle.
const CHAINS: usize = 12;
const STEPS: usize = 20_000;

/// Names of the bounds of [`of_path`]: for paths with lookup tables, and for paths that count bits of many words.
pub(super) const NAMES: [&str; 2] = [
    "lookups of 256 products in registers, nine instructions for three",
    "exclusive or, count of bits, addition in registers, three instructions for 512 products",
];

/// True when the path counts the bits of many words at once.
pub(super) fn is_wide() -> bool {
    CodePath::best().name() == "avx512"
}

/// Highest rate that the code path can reach, in 10^9 products a second; `None` if this bench does not measure the path's
/// instructions.
pub(super) fn of_path() -> Option<f64> {
    if is_wide() { popcounts() } else { lookups() }
}

/// Rate in 10^9 products a second of a run with that many products in each of `STEPS` steps.
fn rate(products: usize, run: impl Fn()) -> f64 {
    (products * STEPS) as f64 / timed(run) / 1e3
}

/// Three lookups of 256 products are added up, then added to one sum, and their high halves to a second sum; nine instructions.
fn lookups() -> Option<f64> {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the line above detected AVX2.
        #[expect(unsafe_code, reason = "calls a function with instructions that were detected")]
        return Some(rate(3 * 256 * x86::SUMS, || unsafe { x86::lookups() }));
    }
    None
}

/// One step for 64 taps of eight pixels: three-input logic, bit count and addition.
fn popcounts() -> Option<f64> {
    #[cfg(target_arch = "x86_64")]
    if is_wide() {
        // SAFETY: this path is chosen only on processors that have its instructions.
        #[expect(unsafe_code, reason = "calls a function with instructions that were detected")]
        return Some(rate(512 * CHAINS, || unsafe { x86::popcounts() }));
    }
    None
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{CHAINS, STEPS, black_box};
    use std::arch::x86_64::{
        __m256i, __m512i, _mm256_add_epi8, _mm256_add_epi16, _mm256_and_si256, _mm256_set1_epi8,
        _mm256_shuffle_epi8, _mm256_srli_epi16, _mm512_add_epi64, _mm512_popcnt_epi64, _mm512_set1_epi64,
        _mm512_ternarylogic_epi64,
    };

    /// Pairs of independent sums that stay in registers.
    pub(super) const SUMS: usize = 4;

    /// Each step looks up the previous sums, so the compiler cannot remove a step.
    #[target_feature(enable = "avx2")]
    pub(super) fn lookups() {
        let mut both: [__m256i; SUMS] = black_box([_mm256_set1_epi8(1); SUMS]);
        let mut second: [__m256i; SUMS] = black_box([_mm256_set1_epi8(2); SUMS]);
        let [a, b, c]: [__m256i; 3] = black_box([_mm256_set1_epi8(3); 3]);
        let low = _mm256_set1_epi8(0x0f);
        for _ in 0..STEPS {
            for i in 0..SUMS {
                let sum = _mm256_add_epi8(_mm256_shuffle_epi8(a, both[i]), _mm256_shuffle_epi8(b, second[i]));
                let sum = _mm256_add_epi8(sum, _mm256_shuffle_epi8(c, both[(i + 1) % SUMS]));
                both[i] = _mm256_add_epi16(both[i], sum);
                second[i] = _mm256_add_epi8(second[i], _mm256_and_si256(_mm256_srli_epi16::<4>(sum), low));
            }
        }
        black_box((both, second));
    }

    /// Each step counts bits of the previous sums, so the compiler cannot remove a step.
    #[target_feature(enable = "avx512f,avx512vpopcntdq")]
    pub(super) fn popcounts() {
        let mut sums: [__m512i; CHAINS] = black_box([_mm512_set1_epi64(1); CHAINS]);
        let [weights, kept]: [__m512i; 2] = black_box([_mm512_set1_epi64(0x1234_5678_9abc_def0); 2]);
        for _ in 0..STEPS {
            for sum in &mut sums {
                // (a ^ b) & c
                let different = _mm512_ternarylogic_epi64::<0x28>(*sum, weights, kept);
                *sum = _mm512_add_epi64(*sum, _mm512_popcnt_epi64(different));
            }
        }
        black_box(sums);
    }
}
