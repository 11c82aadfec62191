//! Matrix-vector products, which take most of the time. Vectors are quantised to 8 bits block by block, as matrices are.
//!
//! Without `unsafe`: pulp gives access to SIMD instructions, with types that prove that the processor has them. Sums over a row are always
//! added in the same order, whatever the batch and the number of threads, so that a conversation's answer doesn't depend on concurrent
//! ones.

use rayon::prelude::*;

use super::packed::{BLOCK, EIGHT, Packed, PackedForm, stride};

/// Vectors that share each load of a matrix row.
const TOKENS: usize = 4;
/// Rows per thread task.
const ROWS_AT_ONCE: usize = 64;

/// Vectors quantised to 8 bits.
#[derive(Debug, Default)]
pub(super) struct Quantised {
    cols: usize,
    quants: Vec<u8>,
    /// One per block; each vector is zero-padded to a multiple of eight.
    scales: Vec<f32>,
    /// The sums of each block and each half-block.
    sums: Vec<f32>,
    half_sums: Vec<f32>,
}

impl Quantised {
    /// Quantises vectors of `cols` numbers each to 8 bits.
    pub(super) fn set(&mut self, vectors: &[f32], cols: usize) {
        self.cols = cols;
        self.quants.clear();
        self.scales.clear();
        self.sums.clear();
        self.half_sums.clear();
        for vector in vectors.chunks_exact(cols.max(1)) {
            pulp::Arch::new().dispatch(
                #[inline(always)]
                || self.push(vector),
            );
        }
    }

    #[inline(always)]
    fn push(&mut self, vector: &[f32]) {
        for block in vector.as_chunks::<BLOCK>().0 {
            let mut most = [0_f32; EIGHT];
            for eight in block.as_chunks::<EIGHT>().0 {
                for (most, one) in most.iter_mut().zip(eight) {
                    *most = most.max(one.abs());
                }
            }
            let mut scale = 0_f32;
            for most in most {
                scale = scale.max(most);
            }
            scale /= 127.0;
            let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
            let mut quants = [0_u8; BLOCK];
            let mut sums = [0_i32; 2];
            for (at, (to, from)) in quants.iter_mut().zip(block).enumerate() {
                // Adding and subtracting 1.5 × 2²³ rounds to an integer without a call. The scale keeps values within ±127; non-finite
                // values become 0.
                let quant = ((from * inverse + 12_582_912.0) - 12_582_912.0) as i32 as i8;
                *to = quant.cast_unsigned();
                if let Some(sum) = sums.get_mut(at / (BLOCK / 2)) {
                    *sum += i32::from(quant);
                }
            }
            let [first, second] = sums;
            // At most 16 × 127.
            let [first, second] = [first as f32 * scale, second as f32 * scale];
            self.quants.extend_from_slice(&quants);
            self.scales.push(scale);
            self.half_sums.extend_from_slice(&[first, second]);
            self.sums.push(first + second);
        }
        self.scales.resize(self.scales.len().next_multiple_of(EIGHT), 0.0);
        self.sums.resize(self.scales.len(), 0.0);
        self.half_sums.resize(self.scales.len() * 2, 0.0);
    }
}

/// Computes `out[token][row] = matrix[row] · vectors[token]` for all rows and tokens. `turned` is scratch space.
pub(super) fn multiply(matrix: &Packed, vectors: &Quantised, turned: &mut Vec<f32>, out: &mut Vec<f32>) {
    let tokens = vectors.quants.len() / vectors.cols.max(1);
    let kernel = DotKernel::detect();
    turned.clear();
    turned.resize(tokens * matrix.rows, 0.0);
    let each = |(at, part): (usize, &mut [f32])| {
        kernel.run(MatrixRows { matrix, vectors, first: at * ROWS_AT_ONCE, tokens, out: part });
    };
    let size = (tokens * ROWS_AT_ONCE).max(1);
    if rayon::current_num_threads() <= 1 {
        turned.chunks_mut(size).enumerate().for_each(each);
    } else {
        turned.par_chunks_mut(size).enumerate().for_each(each);
    }
    out.clear();
    if tokens == 1 {
        out.extend_from_slice(turned);
        return;
    }
    out.resize(tokens * matrix.rows, 0.0);
    for (token, out) in out.chunks_exact_mut(matrix.rows).enumerate() {
        let column = turned.iter().skip(token).step_by(tokens);
        out.iter_mut().zip(column).for_each(|(out, from)| *out = *from);
    }
}

/// Some rows of a matrix and all vectors.
struct MatrixRows<'a> {
    matrix: &'a Packed,
    vectors: &'a Quantised,
    first: usize,
    tokens: usize,
    /// `[row][token]`.
    out: &'a mut [f32],
}

#[derive(Debug, Clone, Copy)]
enum DotKernel {
    Portable,
    #[cfg(target_arch = "x86_64")]
    V3(pulp::x86::V3),
}

impl DotKernel {
    fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(simd) = pulp::x86::V3::try_new() {
            return Self::V3(simd);
        }
        Self::Portable
    }

    fn run(self, rows: MatrixRows<'_>) {
        match self {
            Self::Portable => rows.run(Portable),
            #[cfg(target_arch = "x86_64")]
            Self::V3(simd) => simd.vectorize(
                #[inline(always)]
                || rows.run(v3::Wide(simd)),
            ),
        }
    }
}

/// Consecutive blocks.
type Quants<'a> = &'a [[u8; BLOCK]];
/// Groups of eight consecutive scales or sums.
type Eights<'a> = &'a [[f32; EIGHT]];

/// One row of a matrix.
#[derive(Clone, Copy)]
struct MatrixRow<'a> {
    quants: Quants<'a>,
    scales: Eights<'a>,
    /// Multiplied by the vector's sums and then by `factor`.
    leads: Eights<'a>,
    factor: f32,
}

/// One vector.
#[derive(Clone, Copy)]
struct Vector<'a> {
    quants: Quants<'a>,
    scales: Eights<'a>,
    sums: Eights<'a>,
}

/// Dot products of one row with several vectors.
trait Dots: Copy {
    /// For blocks with one scale.
    fn whole<const SIGNED: bool, const T: usize>(self, row: MatrixRow<'_>, with: [Vector<'_>; T])
    -> [f32; T];
    /// For blocks with two scales.
    fn halves<const T: usize>(self, row: MatrixRow<'_>, with: [Vector<'_>; T]) -> [f32; T];
}

impl MatrixRows<'_> {
    #[inline(always)]
    fn run(self, dots: impl Dots) {
        let Self { matrix, vectors, first, tokens, out } = self;
        let stride = stride(matrix.cols);
        let quants = matrix.quants.chunks_exact(matrix.cols).skip(first);
        for (at, (quants, out)) in quants.zip(out.chunks_exact_mut(tokens)).enumerate() {
            let at = first + at;
            let (scales, leads, factor) = match matrix.form {
                PackedForm::Signed => (eights(&matrix.scales, at, stride), &[][..], 0.0),
                PackedForm::Offset(off) => {
                    (eights(&matrix.scales, at, stride), eights(&matrix.scales, at, stride), -off)
                }
                PackedForm::Least => {
                    (eights(&matrix.scales, at, stride), eights(&matrix.leasts, at, stride), 1.0)
                }
                PackedForm::Halves(off) => {
                    let scales = eights(&matrix.scales, at, stride * 2);
                    (scales, scales, -off)
                }
            };
            let row = MatrixRow { quants: quants.as_chunks().0, scales, leads, factor };
            let mut from = 0;
            for out in out.chunks_mut(TOKENS) {
                match out.len() {
                    4 => with::<4>(dots, matrix, row, vectors, from, out),
                    3 => with::<3>(dots, matrix, row, vectors, from, out),
                    2 => with::<2>(dots, matrix, row, vectors, from, out),
                    _ => with::<1>(dots, matrix, row, vectors, from, out),
                }
                from += out.len();
            }
        }
    }
}

/// The slice that belongs to a row or vector.
#[inline(always)]
fn eights(all: &[f32], at: usize, size: usize) -> Eights<'_> {
    if let Some(part) = all.get(at * size..(at + 1) * size) { part.as_chunks().0 } else { &[] }
}

#[inline(always)]
fn with<const T: usize>(
    dots: impl Dots,
    matrix: &Packed,
    row: MatrixRow<'_>,
    vectors: &Quantised,
    from: usize,
    out: &mut [f32],
) {
    let (cols, stride) = (matrix.cols, stride(matrix.cols));
    let has_halves = matches!(matrix.form, PackedForm::Halves(_));
    let mut some = [Vector { quants: &[], scales: &[], sums: &[] }; T];
    for (at, vector) in some.iter_mut().enumerate() {
        let token = from + at;
        if let Some(quants) = vectors.quants.get(token * cols..(token + 1) * cols) {
            vector.quants = quants.as_chunks().0;
        }
        vector.scales = eights(&vectors.scales, token, stride);
        vector.sums = match has_halves {
            true => eights(&vectors.half_sums, token, stride * 2),
            false => eights(&vectors.sums, token, stride),
        };
    }
    let dots = match matrix.form {
        PackedForm::Signed => dots.whole::<true, T>(row, some),
        PackedForm::Offset(_) | PackedForm::Least => dots.whole::<false, T>(row, some),
        PackedForm::Halves(_) => dots.halves(row, some),
    };
    for (out, dot) in out.iter_mut().zip(dots) {
        *out = dot;
    }
}

/// The dot product of floats, in eight partial sums for SIMD.
#[inline(always)]
pub(super) fn along(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0_f32; 8];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    for (a, b) in a.iter().zip(b) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += a * b;
        }
    }
    let mut total = 0.0;
    for sum in sums {
        total += sum;
    }
    for (a, b) in a_rest.iter().zip(b_rest) {
        total += a * b;
    }
    total
}

/// The implementation for any processor.
#[derive(Clone, Copy)]
struct Portable;

impl Portable {
    fn sum<const SIGNED: bool>(row: &[u8], with: &[u8]) -> f32 {
        let one = |(a, b): (&u8, &u8)| {
            let a = if SIGNED { i32::from(a.cast_signed()) } else { i32::from(*a) };
            a * i32::from(b.cast_signed())
        };
        // At most 32 × 128 × 127.
        row.iter().zip(with).map(one).sum::<i32>() as f32
    }
}

impl Dots for Portable {
    fn whole<const SIGNED: bool, const T: usize>(
        self,
        row: MatrixRow<'_>,
        with: [Vector<'_>; T],
    ) -> [f32; T] {
        with.map(|with| {
            let scales = row.scales.as_flattened().iter().zip(with.scales.as_flattened());
            let parts = row.quants.iter().zip(with.quants).zip(scales);
            let plain: f32 =
                parts.map(|((row, with), (scale, own))| Self::sum::<SIGNED>(row, with) * scale * own).sum();
            plain + row.factor * along(row.leads.as_flattened(), with.sums.as_flattened())
        })
    }

    fn halves<const T: usize>(self, row: MatrixRow<'_>, with: [Vector<'_>; T]) -> [f32; T] {
        with.map(|with| {
            let scales = row.scales.as_flattened().as_chunks::<2>().0.iter().zip(with.scales.as_flattened());
            let parts = row.quants.iter().zip(with.quants).zip(scales);
            let plain: f32 = parts
                .map(|((row, with), (scales, own))| {
                    let halves = row.chunks_exact(BLOCK / 2).zip(with.chunks_exact(BLOCK / 2)).zip(scales);
                    halves
                        .map(|((row, with), scale)| Self::sum::<false>(row, with) * scale * own)
                        .sum::<f32>()
                })
                .sum();
            plain + row.factor * along(row.leads.as_flattened(), with.sums.as_flattened())
        })
    }
}

#[cfg(target_arch = "x86_64")]
mod v3;

#[cfg(test)]
mod tests {
    use std::fs::File;

    use proptest::prelude::*;

    use super::*;
    use crate::gguf::Gguf;
    use crate::tests::made_up::Making;

    /// A random matrix in each format that a file may contain.
    fn matrices(cols: u64, rows: u64) -> Vec<Packed> {
        let codes = [0_u32, 2, 3, 6, 7, 8, 12, 13, 14];
        let fitting = codes.into_iter().filter(|code| *code < 12 || cols.is_multiple_of(256));
        fitting
            .map(|code| {
                let mut making = Making::default();
                making.tensor("t", &[cols, rows], code);
                let folder = tempfile::tempdir().unwrap();
                let path = folder.path().join("t.gguf");
                std::fs::write(&path, making.file()).unwrap();
                let gguf = Gguf::open(File::open(path).unwrap()).unwrap();
                Packed::read(&gguf, "t", rows as usize, cols as usize).unwrap()
            })
            .collect()
    }

    fn vectors(count: usize, cols: usize, seed: u32) -> Vec<f32> {
        (0..count * cols)
            .map(|at| {
                ((at as u32).wrapping_mul(2_654_435_761).wrapping_add(seed) >> 8) as f32 / 8_388_608.0 - 1.0
            })
            .collect()
    }

    fn run(kernel: DotKernel, matrix: &Packed, vectors: &[f32]) -> Vec<f32> {
        let mut quantised = Quantised::default();
        quantised.set(vectors, matrix.cols);
        let tokens = vectors.len() / matrix.cols;
        let mut out = vec![0.0; matrix.rows * tokens];
        kernel.run(MatrixRows { matrix, vectors: &quantised, first: 0, tokens, out: &mut out });
        out
    }

    #[test]
    fn every_format_matches_float_products() {
        for (cols, rows) in [(32, 3), (96, 5), (256, 4), (896, 2), (1_280, 3)] {
            for matrix in matrices(cols, rows) {
                let cols = matrix.cols;
                let vectors = vectors(5, cols, 7);
                let fast = run(DotKernel::detect(), &matrix, &vectors);
                let portable = run(DotKernel::Portable, &matrix, &vectors);
                let mut row = vec![0.0; cols];
                for at in 0..matrix.rows {
                    matrix.row(at, &mut row);
                    for (token, vector) in vectors.chunks_exact(cols).enumerate() {
                        let exact: f64 =
                            row.iter().zip(vector).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                        let size: f64 =
                            row.iter().zip(vector).map(|(a, b)| (f64::from(*a) * f64::from(*b)).abs()).sum();
                        for got in [fast[at * 5 + token], portable[at * 5 + token]] {
                            // Quantising vectors to 8 bits loses precision.
                            assert!(
                                (f64::from(got) - exact).abs() < size * 0.01 + 1e-4,
                                "{:?} {cols}: {got} {exact}",
                                matrix.form
                            );
                        }
                    }
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Bit-exact: a vector's products depend neither on the number of other vectors nor on threads.
        #[test]
        fn products_do_not_depend_on_batch_or_threads(seed in any::<u32>(), count in 1_usize..9) {
            for matrix in matrices(896, 130).into_iter().chain(matrices(256, 70)) {
                let all = vectors(count, matrix.cols, seed);
                let mut quantised = Quantised::default();
                quantised.set(&all, matrix.cols);
                let (mut turned, mut together) = (Vec::new(), Vec::new());
                let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
                pool.install(|| multiply(&matrix, &quantised, &mut turned, &mut together));
                for (vector, together) in all.chunks_exact(matrix.cols).zip(together.chunks_exact(matrix.rows)) {
                    quantised.set(vector, matrix.cols);
                    let mut alone = Vec::new();
                    multiply(&matrix, &quantised, &mut turned, &mut alone);
                    prop_assert_eq!(&alone, together);
                }
            }
        }
    }
}
