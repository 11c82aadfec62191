//! The implementation for AVX2 and FMA: eight sums in parallel, eight blocks per iteration.
//!
//! It uses loops and no closures: only inlined code is compiled for these processors, and closures passed to the library may not be
//! inlined.

use std::arch::x86_64::{__m256, __m256i};

use pulp::cast;
use pulp::x86::V3;

use super::{BLOCK, Dots, EIGHT, Eights, MatrixRow, Vector};

/// Index of the scale that applies to each sum: the same for all, or one per half.
const ALL: [[i32; 8]; EIGHT] = [[0; 8], [1; 8], [2; 8], [3; 8], [4; 8], [5; 8], [6; 8], [7; 8]];
const EACH: [[i32; 8]; EIGHT / 2] =
    [[0, 0, 0, 0, 1, 1, 1, 1], [2, 2, 2, 2, 3, 3, 3, 3], [4, 4, 4, 4, 5, 5, 5, 5], [6, 6, 6, 6, 7, 7, 7, 7]];
const TWICE: [[i32; 8]; 2] = [[0, 0, 1, 1, 2, 2, 3, 3], [4, 4, 5, 5, 6, 6, 7, 7]];

#[derive(Clone, Copy)]
pub(super) struct Wide(pub(super) V3);

impl Wide {
    /// Eight sums of four products each.
    #[inline(always)]
    fn products<const SIGNED: bool>(self, row: __m256i, with: __m256i) -> __m256 {
        let V3 { avx, avx2, .. } = self.0;
        // The instruction needs one unsigned operand. Pairs stay below 2¹⁵: twice 128 × 127, or twice 63 × 127.
        let pairs = if SIGNED {
            avx2._mm256_maddubs_epi16(avx2._mm256_abs_epi8(row), avx2._mm256_sign_epi8(with, row))
        } else {
            avx2._mm256_maddubs_epi16(row, with)
        };
        avx._mm256_cvtepi32_ps(avx2._mm256_madd_epi16(pairs, avx._mm256_set1_epi16(1)))
    }

    #[inline(always)]
    fn pick(self, scales: __m256, which: [i32; 8]) -> __m256 {
        self.0.avx2._mm256_permutevar8x32_ps(scales, cast(which))
    }

    #[inline(always)]
    fn eight(all: Eights<'_>, at: usize) -> __m256 {
        if let Some(eight) = all.get(at) { cast(*eight) } else { cast([0.0_f32; EIGHT]) }
    }

    /// The products of the scales of up to eight blocks of a row and of a vector: one result, or two if blocks have halves.
    #[inline(always)]
    fn scales<const HALVES: bool>(self, row: MatrixRow<'_>, with: Vector<'_>, at: usize) -> [__m256; 2] {
        let (avx, own) = (self.0.avx, Self::eight(with.scales, at));
        if !HALVES {
            let scales = avx._mm256_mul_ps(Self::eight(row.scales, at), own);
            return [scales; 2];
        }
        let [first, second] = TWICE;
        [
            avx._mm256_mul_ps(Self::eight(row.scales, at * 2), self.pick(own, first)),
            avx._mm256_mul_ps(Self::eight(row.scales, at * 2 + 1), self.pick(own, second)),
        ]
    }

    /// Adds `N` blocks of a row, starting at block `from`, times those of each vector. Vectors alternate within a block to avoid dependent
    /// additions.
    #[inline(always)]
    fn add<const SIGNED: bool, const HALVES: bool, const N: usize, const T: usize>(
        self,
        sums: &mut [__m256; T],
        row: MatrixRow<'_>,
        with: &[Vector<'_>; T],
        from: usize,
    ) {
        let zero = self.0.avx._mm256_setzero_ps();
        let mut scales = [[zero; 2]; T];
        let mut quants = [&[[0; BLOCK]; N]; T];
        for ((scales, quants), with) in scales.iter_mut().zip(&mut quants).zip(with) {
            *scales = self.scales::<HALVES>(row, *with, from / EIGHT);
            if let Some(blocks) = with.quants.get(from..).and_then(<[_]>::first_chunk) {
                *quants = blocks;
            }
        }
        let Some(blocks) = row.quants.get(from..).and_then(<[_]>::first_chunk::<N>) else { return };
        for (at, block) in blocks.iter().enumerate() {
            let row: __m256i = cast(*block);
            let at_scale = from % EIGHT + at;
            for ((sum, [first, second]), with) in sums.iter_mut().zip(&scales).zip(quants) {
                let (scales, which) = match (HALVES, at_scale < EIGHT / 2) {
                    (false, _) => (first, ALL.get(at_scale)),
                    (true, true) => (first, EACH.get(at_scale)),
                    (true, false) => (second, EACH.get(at_scale - EIGHT / 2)),
                };
                if let (Some(which), Some(with)) = (which, with.get(at)) {
                    let products = self.products::<SIGNED>(row, cast(*with));
                    *sum = self.0.fma._mm256_fmadd_ps(products, self.pick(*scales, *which), *sum);
                }
            }
        }
    }

    #[inline(always)]
    fn dots<const SIGNED: bool, const HALVES: bool, const T: usize>(
        self,
        row: MatrixRow<'_>,
        with: [Vector<'_>; T],
    ) -> [f32; T] {
        let V3 { avx, fma, .. } = self.0;
        let mut sums = [avx._mm256_setzero_ps(); T];
        let (blocks, mut from) = (row.quants.len(), 0);
        while from + EIGHT <= blocks {
            self.add::<SIGNED, HALVES, EIGHT, T>(&mut sums, row, &with, from);
            from += EIGHT;
        }
        if from + EIGHT / 2 <= blocks {
            self.add::<SIGNED, HALVES, { EIGHT / 2 }, T>(&mut sums, row, &with, from);
            from += EIGHT / 2;
        }
        while from < blocks {
            self.add::<SIGNED, HALVES, 1, T>(&mut sums, row, &with, from);
            from += 1;
        }
        let factor = avx._mm256_set1_ps(row.factor);
        let mut totals = [0.0; T];
        for ((total, sum), with) in totals.iter_mut().zip(sums).zip(with) {
            let mut leads = avx._mm256_setzero_ps();
            for (lead, sums) in row.leads.iter().zip(with.sums) {
                leads = fma._mm256_fmadd_ps(cast(*lead), cast(*sums), leads);
            }
            *total = self.total(fma._mm256_fmadd_ps(leads, factor, sum));
        }
        totals
    }

    #[inline(always)]
    fn total(self, sums: __m256) -> f32 {
        let V3 { avx, sse, sse3, .. } = self.0;
        let four = sse._mm_add_ps(avx._mm256_castps256_ps128(sums), avx._mm256_extractf128_ps::<1>(sums));
        let two = sse3._mm_hadd_ps(four, four);
        sse._mm_cvtss_f32(sse3._mm_hadd_ps(two, two))
    }
}

impl Dots for Wide {
    #[inline(always)]
    fn whole<const SIGNED: bool, const T: usize>(
        self,
        row: MatrixRow<'_>,
        with: [Vector<'_>; T],
    ) -> [f32; T] {
        self.dots::<SIGNED, false, T>(row, with)
    }

    #[inline(always)]
    fn halves<const T: usize>(self, row: MatrixRow<'_>, with: [Vector<'_>; T]) -> [f32; T] {
        self.dots::<false, true, T>(row, with)
    }
}
