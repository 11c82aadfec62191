//! Matrix times vectors, the one thing that takes time. Vectors are brought to 8 bits first, block by block, as matrices are.
//!
//! Without `unsafe`: the instructions of newer processors are reached through pulp, which has a proof that they are there in its types.
//! Sums over a row are taken in one order, whatever else is in the batch and however many threads there are, so that a conversation's
//! answer doesn't depend on its company.

use rayon::prelude::*;

use super::packed::{BLOCK, EIGHT, Form, Packed, stride};

/// Vectors side by side that share each load of a matrix's row.
const TOKENS: usize = 4;
/// Rows that one thread takes at a time.
const ROWS_AT_ONCE: usize = 64;

/// Vectors in 8 bits.
#[derive(Debug, Default)]
pub(super) struct Quantised {
    cols: usize,
    quants: Vec<u8>,
    /// One for each block, each vector filled up to eights with zeros.
    scales: Vec<f32>,
    /// What each block and each half of one sums up to.
    sums: Vec<f32>,
    half_sums: Vec<f32>,
}

impl Quantised {
    /// Brings vectors of `cols` numbers each to 8 bits.
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
                // Adding and taking off 1.5 × 2²³ rounds to a whole number, without a call.
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "within ±127 by the scale; what isn't finite becomes 0"
                )]
                let quant = ((from * inverse + 12_582_912.0) - 12_582_912.0) as i32 as i8;
                *to = quant.cast_unsigned();
                if let Some(sum) = sums.get_mut(at / (BLOCK / 2)) {
                    *sum += i32::from(quant);
                }
            }
            let [first, second] = sums;
            #[expect(clippy::cast_precision_loss, reason = "at most 16 × 127")]
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

/// `out[token][row] = matrix[row] · vectors[token]`, for all of them. `turned` is room to work in.
pub(super) fn multiply(matrix: &Packed, vectors: &Quantised, turned: &mut Vec<f32>, out: &mut Vec<f32>) {
    let tokens = vectors.quants.len() / vectors.cols.max(1);
    let kernel = Kernel::detect();
    turned.clear();
    turned.resize(tokens * matrix.rows, 0.0);
    let each = |(at, part): (usize, &mut [f32])| {
        kernel.run(Rows { matrix, vectors, first: at * ROWS_AT_ONCE, tokens, out: part });
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

/// Some rows of a matrix against all vectors.
struct Rows<'a> {
    matrix: &'a Packed,
    vectors: &'a Quantised,
    first: usize,
    tokens: usize,
    /// `[row][token]`.
    out: &'a mut [f32],
}

#[derive(Debug, Clone, Copy)]
enum Kernel {
    Portable,
    #[cfg(target_arch = "x86_64")]
    V3(pulp::x86::V3),
}

impl Kernel {
    fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(simd) = pulp::x86::V3::try_new() {
            return Self::V3(simd);
        }
        Self::Portable
    }

    fn run(self, rows: Rows<'_>) {
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

/// One block after the other.
type Quants<'a> = &'a [[u8; BLOCK]];
/// Eight scales, or sums, after the other.
type Eights<'a> = &'a [[f32; EIGHT]];

/// One row of a matrix.
#[derive(Clone, Copy)]
struct Row<'a> {
    quants: Quants<'a>,
    scales: Eights<'a>,
    /// What is taken times the vector's sums, and then times `factor`.
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

/// Dot products of one row with some vectors.
trait Dots: Copy {
    /// Blocks with one scale each.
    fn whole<const SIGNED: bool, const T: usize>(self, row: Row<'_>, with: [Vector<'_>; T]) -> [f32; T];
    /// Blocks with two.
    fn halves<const T: usize>(self, row: Row<'_>, with: [Vector<'_>; T]) -> [f32; T];
}

impl Rows<'_> {
    #[inline(always)]
    fn run(self, dots: impl Dots) {
        let Self { matrix, vectors, first, tokens, out } = self;
        let stride = stride(matrix.cols);
        let quants = matrix.quants.chunks_exact(matrix.cols).skip(first);
        for (at, (quants, out)) in quants.zip(out.chunks_exact_mut(tokens)).enumerate() {
            let at = first + at;
            let (scales, leads, factor) = match matrix.form {
                Form::Signed => (eights(&matrix.scales, at, stride), &[][..], 0.0),
                Form::Offset(off) => {
                    (eights(&matrix.scales, at, stride), eights(&matrix.scales, at, stride), -off)
                }
                Form::Least => (eights(&matrix.scales, at, stride), eights(&matrix.leasts, at, stride), 1.0),
                Form::Halves(off) => {
                    let scales = eights(&matrix.scales, at, stride * 2);
                    (scales, scales, -off)
                }
            };
            let row = Row { quants: quants.as_chunks().0, scales, leads, factor };
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

/// The part that belongs to a row or vector.
#[inline(always)]
fn eights(all: &[f32], at: usize, size: usize) -> Eights<'_> {
    if let Some(part) = all.get(at * size..(at + 1) * size) { part.as_chunks().0 } else { &[] }
}

#[inline(always)]
fn with<const T: usize>(
    dots: impl Dots,
    matrix: &Packed,
    row: Row<'_>,
    vectors: &Quantised,
    from: usize,
    out: &mut [f32],
) {
    let (cols, stride) = (matrix.cols, stride(matrix.cols));
    let has_halves = matches!(matrix.form, Form::Halves(_));
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
        Form::Signed => dots.whole::<true, T>(row, some),
        Form::Offset(_) | Form::Least => dots.whole::<false, T>(row, some),
        Form::Halves(_) => dots.halves(row, some),
    };
    for (out, dot) in out.iter_mut().zip(dots) {
        *out = dot;
    }
}

/// The dot product of plain numbers, in eight sums that a processor can take at once.
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

/// For any processor.
#[derive(Clone, Copy)]
struct Portable;

impl Portable {
    fn sum<const SIGNED: bool>(row: &[u8], with: &[u8]) -> f32 {
        let one = |(a, b): (&u8, &u8)| {
            let a = if SIGNED { i32::from(a.cast_signed()) } else { i32::from(*a) };
            a * i32::from(b.cast_signed())
        };
        #[expect(clippy::cast_precision_loss, reason = "at most 32 × 128 × 127")]
        let sum = row.iter().zip(with).map(one).sum::<i32>() as f32;
        sum
    }
}

impl Dots for Portable {
    fn whole<const SIGNED: bool, const T: usize>(self, row: Row<'_>, with: [Vector<'_>; T]) -> [f32; T] {
        with.map(|with| {
            let scales = row.scales.as_flattened().iter().zip(with.scales.as_flattened());
            let parts = row.quants.iter().zip(with.quants).zip(scales);
            let plain: f32 =
                parts.map(|((row, with), (scale, own))| Self::sum::<SIGNED>(row, with) * scale * own).sum();
            plain + row.factor * along(row.leads.as_flattened(), with.sums.as_flattened())
        })
    }

    fn halves<const T: usize>(self, row: Row<'_>, with: [Vector<'_>; T]) -> [f32; T] {
        with.map(|with| {
            let scales = row.scales.as_flattened().as_chunks::<2>().0.iter().zip(with.scales.as_flattened());
            let parts = row.quants.iter().zip(with.quants).zip(scales);
            let one = |((row, with), (scales, own)): ((&[u8; BLOCK], &[u8; BLOCK]), (&[f32; 2], &f32))| {
                let halves = row.chunks_exact(BLOCK / 2).zip(with.chunks_exact(BLOCK / 2)).zip(scales);
                halves.map(|((row, with), scale)| Self::sum::<false>(row, with) * scale * own).sum::<f32>()
            };
            parts.map(one).sum::<f32>()
                + row.factor * along(row.leads.as_flattened(), with.sums.as_flattened())
        })
    }
}

#[cfg(target_arch = "x86_64")]
mod v3;
