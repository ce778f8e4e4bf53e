//! Products of bytes in tiles (AMX): the upper bound of an 8-bit engine.
//!
//! The instructions are written as assembly, since Rust has no stable intrinsics for them.

#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "instructions that were detected"))]

/// Rows of a tile, and 32-bit numbers of a row.
const SIDE: usize = 16;
/// Products summed by one instruction for each of its results.
const DEEP: usize = 64;
/// A tile: 16 rows of 64 bytes.
const TILE: usize = SIDE * DEEP;

/// A layer as the product of two matrices, `[rows, deep]` by `[deep, columns]`, that are stored in tiles.
pub(super) struct Layer {
    left: Tiles,
    right: Tiles,
    sums: Tiles,
    /// Pairs of tiles in each direction, and tiles that are summed.
    pairs: [usize; 2],
    deep: usize,
}

/// Consecutive tiles, aligned to cache lines.
struct Tiles {
    bytes: Vec<u8>,
    first: usize,
}

impl Tiles {
    fn of(count: usize, byte: u8) -> Self {
        let bytes = vec![byte; count * TILE + DEEP];
        let first = bytes.as_ptr().align_offset(DEEP).min(DEEP);
        Self { bytes, first }
    }

    fn at(&self, tile: usize) -> &[u8] {
        &self.bytes[self.first + tile * TILE..]
    }
}

impl Layer {
    /// `None` without AMX (processor or operating system), or if a side is no multiple of the tile's side.
    pub(super) fn of(rows: usize, deep: usize, columns: usize) -> Option<Self> {
        let fits = rows.is_multiple_of(2 * SIDE) && columns.is_multiple_of(2 * SIDE);
        if !(fits && deep.is_multiple_of(DEEP) && amx::starts()) {
            return None;
        }
        let (deep, pairs) = (deep / DEEP, [rows / SIDE / 2, columns / SIDE / 2]);
        let mut layer = Self {
            left: Tiles::of(2 * pairs[0] * deep, 1),
            right: Tiles::of(2 * pairs[1] * deep, 1),
            sums: Tiles::of(4 * pairs[0] * pairs[1], 0),
            pairs,
            deep,
        };
        layer.multiply();
        let sum = layer.sums.at(4 * pairs[0] * pairs[1] - 1).first_chunk().copied();
        assert_eq!(sum.map(u32::from_le_bytes), Some((deep * DEEP) as u32), "products of ones");
        Some(layer)
    }

    /// All products, two by two tiles at a time.
    pub(super) fn multiply(&mut self) {
        for row in 0..self.pairs[0] {
            for column in 0..self.pairs[1] {
                let (left, right) =
                    (self.left.at(2 * row * self.deep), self.right.at(2 * column * self.deep));
                let place = self.sums.first + 4 * (row * self.pairs[1] + column) * TILE;
                amx::four(left, right, self.deep, &mut self.sums.bytes[place..]);
            }
        }
    }
}

/// Peak rate of the AMX instruction, in registers.
pub(super) fn rate() -> Option<f64> {
    amx::starts().then(|| super::bounds::rate(4 * SIDE * SIDE * DEEP, amx::in_registers))
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
mod amx {
    pub(super) fn starts() -> bool {
        false
    }
    pub(super) fn four(_: &[u8], _: &[u8], _: usize, _: &mut [u8]) {}
    pub(super) fn in_registers() {}
}

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod amx {
    use super::{DEEP, SIDE, TILE};
    use std::arch::asm;
    use std::arch::x86_64::__cpuid_count;

    /// Asks the operating system for the tiles and sets all eight to their full size, for the calling thread.
    pub(super) fn starts() -> bool {
        // Leaf 7: bit 24 of EDX are tiles, bit 25 their products of bytes (Intel's manual, volume 2, CPUID).
        let features = __cpuid_count(7, 0).edx;
        if features >> 24 & 3 != 3 {
            return false;
        }
        // `arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)`.
        let mut answer = 158i64;
        // SAFETY: a system call that reads and writes no memory of the program.
        unsafe {
            asm!("syscall", inout("rax") answer, in("rdi") 0x1023, in("rsi") 18, out("rcx") _, out("r11") _, options(nostack));
        }
        if answer != 0 {
            return false;
        }
        let mut sizes = [0u8; 64];
        sizes[0] = 1;
        for tile in 0..8 {
            sizes[16 + 2 * tile] = DEEP as u8;
            sizes[48 + tile] = SIDE as u8;
        }
        // SAFETY: the processor has tiles and the kernel lets the program use them; `sizes` is as long as is read.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) sizes.as_ptr(), options(nostack, readonly));
        }
        true
    }

    /// The products of two rows of tiles with two columns of them.
    pub(super) fn four(left: &[u8], right: &[u8], deep: usize, sums: &mut [u8]) {
        assert!(
            left.len().min(right.len()) >= 2 * deep * TILE && sums.len() >= 4 * TILE && deep > 0,
            "tiles"
        );
        // SAFETY: `starts` has said that the instructions are there, and what they read and write was checked.
        unsafe {
            asm!(
                "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",
                "2:",
                "tileloadd tmm4, [{left} + {row}]",
                "tileloadd tmm6, [{right} + {row}]",
                "tileloadd tmm5, [{other_left} + {row}]",
                "tileloadd tmm7, [{other_right} + {row}]",
                "tdpbusd tmm0, tmm4, tmm6",
                "tdpbusd tmm1, tmm4, tmm7",
                "tdpbusd tmm2, tmm5, tmm6",
                "tdpbusd tmm3, tmm5, tmm7",
                "add {left}, 1024", "add {right}, 1024", "add {other_left}, 1024", "add {other_right}, 1024",
                "dec {deep}",
                "jnz 2b",
                "tilestored [{sums} + {row}], tmm0",
                "tilestored [{sums} + {row} + 1024], tmm1",
                "tilestored [{sums} + {row} + 2048], tmm2",
                "tilestored [{sums} + {row} + 3072], tmm3",
                left = inout(reg) left.as_ptr() => _,
                right = inout(reg) right.as_ptr() => _,
                other_left = inout(reg) left.as_ptr().add(deep * TILE) => _,
                other_right = inout(reg) right.as_ptr().add(deep * TILE) => _,
                deep = inout(reg) deep => _,
                sums = in(reg) sums.as_mut_ptr(),
                row = in(reg) DEEP,
                options(nostack),
            );
        }
    }

    /// Repeats four independent products.
    pub(super) fn in_registers() {
        // SAFETY: `starts` has said that the instructions are there; they touch tiles alone.
        unsafe {
            asm!(
                "2:",
                "tdpbusd tmm0, tmm4, tmm6",
                "tdpbusd tmm1, tmm4, tmm7",
                "tdpbusd tmm2, tmm5, tmm6",
                "tdpbusd tmm3, tmm5, tmm7",
                "dec {steps}",
                "jnz 2b",
                steps = inout(reg) crate::bounds::STEPS => _,
                options(nostack, nomem),
            );
        }
    }
}
