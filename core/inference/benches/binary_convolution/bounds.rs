//! Peak rates of instructions that work in registers, in 10^9 products a second.

use std::hint::black_box;

use headwater_kernels::CodePath;

use super::timed;
use crate::tiles;

/// Independent chains: more than an instruction's latency times the instructions that start in one cycle.
const CHAINS: usize = 12;
pub(super) const STEPS: usize = 20_000;

/// Names of the bounds of [`of_path`]: for paths with lookup tables, and for paths that count bits of many words.
pub(super) const NAMES: [&str; 2] = [
    "lookups of 256 products in registers, nine instructions for three",
    "exclusive or, count of bits, addition in registers, three instructions for 512 products",
];

/// Whether the path counts the bits of many words at once.
pub(super) fn is_wide() -> bool {
    CodePath::best().name() == "avx512"
}

/// Bound of the path's kernel; `None` for a path without instructions in this bench.
pub(super) fn of_path() -> Option<f64> {
    if is_wide() { popcounts() } else { lookups() }
}

/// Peak rates of other instructions, for comparison.
pub(super) fn others() -> Vec<(&'static str, f64)> {
    let mut others = vec![("words of 64 bits: exclusive or, popcnt, addition", words())];
    let wide = [
        (NAMES[0], lookups()),
        (NAMES[1], popcounts()),
        ("bytes, 64 products an instruction (VNNI)", dots()),
        ("bytes, 16,384 products an instruction (AMX)", tiles::rate()),
    ];
    others.extend(wide.into_iter().filter_map(|(name, rate)| Some((name, rate?))));
    others
}

/// Rate in 10^9 products a second of a run with that many products in each of `STEPS` steps.
pub(super) fn rate(products: usize, run: impl Fn()) -> f64 {
    (products * STEPS) as f64 / timed(run) / 1e3
}

/// Three lookups of 256 products, added up, added to one sum, and their high halves to another; nine instructions.
fn lookups() -> Option<f64> {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the line above.
        #[expect(unsafe_code, reason = "calls a function with instructions that were detected")]
        return Some(rate(3 * 256 * x86::SUMS, || unsafe { x86::lookups() }));
    }
    None
}

/// One step for 64 taps of eight pixels: three-input logic, bit count and addition.
fn popcounts() -> Option<f64> {
    #[cfg(target_arch = "x86_64")]
    if is_wide() {
        // SAFETY: the path exists only where its instructions do.
        #[expect(unsafe_code, reason = "calls a function with instructions that were detected")]
        return Some(rate(512 * CHAINS, || unsafe { x86::popcounts() }));
    }
    None
}

/// Sums of products of unsigned with signed bytes.
fn dots() -> Option<f64> {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx512f") && std::arch::is_x86_feature_detected!("avx512vnni") {
        // SAFETY: the line above.
        #[expect(unsafe_code, reason = "calls a function with instructions that were detected")]
        return Some(rate(64 * CHAINS, || unsafe { x86::dots() }));
    }
    None
}

/// Products by words of 64 bits, one word after the other.
fn words() -> f64 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("popcnt") {
        // SAFETY: the line above.
        #[expect(unsafe_code, reason = "calls a function with instructions that were detected")]
        return rate(64 * CHAINS, || unsafe { x86::words() });
    }
    rate(64 * CHAINS, count_words)
}

#[inline(always)]
fn count_words() {
    let mut sums: [u64; CHAINS] = black_box([1; CHAINS]);
    let weights: u64 = black_box(0x1234_5678_9abc_def0);
    for _ in 0..STEPS {
        for sum in &mut sums {
            *sum += u64::from((*sum ^ weights).count_ones());
        }
    }
    black_box(sums);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{CHAINS, STEPS, black_box};
    use std::arch::x86_64::{
        __m256i, __m512i, _mm256_add_epi8, _mm256_add_epi16, _mm256_and_si256, _mm256_set1_epi8,
        _mm256_shuffle_epi8, _mm256_srli_epi16, _mm512_add_epi64, _mm512_dpbusd_epi32, _mm512_popcnt_epi64,
        _mm512_set1_epi64, _mm512_ternarylogic_epi64,
    };

    /// Pairs of independent sums that stay in registers.
    pub(super) const SUMS: usize = 4;

    #[target_feature(enable = "popcnt")]
    pub(super) fn words() {
        super::count_words();
    }

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

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) fn dots() {
        let mut sums: [__m512i; CHAINS] = black_box([_mm512_set1_epi64(1); CHAINS]);
        let [a, b]: [__m512i; 2] = black_box([_mm512_set1_epi64(0x0101_0101_0101_0101); 2]);
        for _ in 0..STEPS {
            for sum in &mut sums {
                *sum = _mm512_dpbusd_epi32(*sum, a, b);
            }
        }
        black_box(sums);
    }
}
