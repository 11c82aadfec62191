//! Matrices in the layout for SIMD: one byte per number with separate scales, whatever the file's format. The conversion is lossless: each
//! block of the file is a scale, small integers, and an offset.

use super::gguf::{Gguf, GgufError, Tensor, TensorFormat};

/// Numbers that share one scale, or two ([`PackedForm::Halves`]).
pub(super) const BLOCK: usize = 32;
const HALF: usize = BLOCK / 2;
/// Scales are padded to groups of eight, the SIMD width.
pub(super) const EIGHT: usize = 8;
/// Approximate bytes to read at once.
const PIECE_BYTES: usize = 4 << 20;

/// How the bytes of a matrix encode numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum PackedForm {
    /// `scale × i8`.
    Signed,
    /// `scale × (u8 − offset)`.
    Offset(f32),
    /// `scale × u8 + least`.
    Least,
    /// `scale × (u8 − offset)` with a scale for each half of a block.
    Halves(f32),
}

impl PackedForm {
    fn for_tensor(format: TensorFormat) -> Self {
        match format {
            TensorFormat::F32 | TensorFormat::F16 | TensorFormat::Q8_0 => Self::Signed,
            TensorFormat::Q4_0 => Self::Offset(8.0),
            TensorFormat::Q5_0 => Self::Offset(16.0),
            TensorFormat::Q4_1 | TensorFormat::Q5_1 | TensorFormat::Q4K | TensorFormat::Q5K => Self::Least,
            TensorFormat::Q6K => Self::Halves(32.0),
        }
    }
}

/// A matrix, row by row.
#[derive(Debug)]
pub(super) struct Packed {
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) form: PackedForm,
    /// A byte for each number.
    pub(super) quants: Vec<u8>,
    /// One per block, or two for halves; each row is zero-padded to a multiple of eight.
    pub(super) scales: Vec<f32>,
    /// One per block, in the form with minimums; padded likewise.
    pub(super) leasts: Vec<f32>,
}

/// Blocks per row, padded to a multiple of eight.
pub(super) fn stride(cols: usize) -> usize {
    (cols / BLOCK).next_multiple_of(EIGHT)
}

impl Packed {
    /// Reads a matrix.
    pub(super) fn read(gguf: &Gguf, name: &str, rows: usize, cols: usize) -> Result<Self, GgufError> {
        let tensor = shaped(gguf, name, rows, cols)?;
        if !cols.is_multiple_of(BLOCK) {
            return Err(GgufError::Unsupported(format!("`{name}` with rows of {cols}")));
        }
        let mut packed = Self::empty(tensor.format, rows, cols);
        in_pieces(gguf, tensor, |piece| packed.push(tensor.format, piece))?;
        Ok(packed)
    }

    fn empty(format: TensorFormat, rows: usize, cols: usize) -> Self {
        let form = PackedForm::for_tensor(format);
        let blocks = rows.saturating_mul(stride(cols));
        let mut packed =
            Self { rows, cols, form, quants: Vec::new(), scales: Vec::new(), leasts: Vec::new() };
        packed.quants.reserve_exact(rows.saturating_mul(cols));
        packed.scales.reserve_exact(if matches!(form, PackedForm::Halves(_)) { blocks * 2 } else { blocks });
        if form == PackedForm::Least {
            packed.leasts.reserve_exact(blocks);
        }
        packed
    }

    /// Adds complete rows.
    fn push(&mut self, format: TensorFormat, rows: &[u8]) {
        let (numbers, bytes) = format.block();
        let scales = if matches!(self.form, PackedForm::Halves(_)) { EIGHT * 2 } else { EIGHT };
        for row in rows.chunks_exact(format.row_bytes(self.cols).unwrap_or(1).max(1)) {
            if numbers == 1 {
                row.chunks_exact(bytes * BLOCK).for_each(|block| self.push_floats(format, block));
            } else {
                row.chunks_exact(bytes).for_each(|block| self.push_block(format, block));
            }
            self.scales.resize(self.scales.len().next_multiple_of(scales), 0.0);
            self.leasts.resize(self.leasts.len().next_multiple_of(EIGHT), 0.0);
        }
    }

    fn push_floats(&mut self, format: TensorFormat, block: &[u8]) {
        let mut floats = [0_f32; BLOCK];
        read_floats(format, block, &mut floats);
        let most = floats.iter().fold(0_f32, |most, float| most.max(float.abs()));
        let scale = most / 127.0;
        let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
        // The scale keeps values within ±127; non-finite values become 0.
        self.quants.extend(floats.iter().map(|float| ((float * inverse).round() as i8).cast_unsigned()));
        self.scales.push(scale);
    }

    /// Unpacks one block. All offsets are within a block, whose size the caller checked.
    fn push_block(&mut self, format: TensorFormat, block: &[u8]) {
        match format {
            TensorFormat::F32 | TensorFormat::F16 => {}
            TensorFormat::Q8_0 => {
                let (scale, quants) = block.split_at(2);
                self.scales.push(half(scale));
                self.quants.extend_from_slice(quants);
            }
            TensorFormat::Q4_0 => {
                let (scale, quants) = block.split_at(2);
                self.scales.push(half(scale));
                self.push_nibbles(quants);
            }
            TensorFormat::Q4_1 => {
                let (scales, quants) = block.split_at(4);
                self.push_scale_and_least(scales);
                self.push_nibbles(quants);
            }
            TensorFormat::Q5_0 => {
                let (scale, rest) = block.split_at(2);
                self.scales.push(half(scale));
                self.push_fives(rest);
            }
            TensorFormat::Q5_1 => {
                let (scales, rest) = block.split_at(4);
                self.push_scale_and_least(scales);
                self.push_fives(rest);
            }
            TensorFormat::Q4K => {
                let (head, quants) = block.split_at(16);
                self.push_k_scales(head);
                quants.chunks_exact(32).for_each(|pair| self.push_nibbles(pair));
            }
            TensorFormat::Q5K => {
                let (head, rest) = block.split_at(16);
                self.push_k_scales(head);
                let (highs, quants) = rest.split_at(32);
                for (at, pair) in quants.chunks_exact(32).enumerate() {
                    let bit = |high: u8, which: usize| ((high >> which) & 1) << 4;
                    let zip = || pair.iter().zip(highs);
                    self.quants.extend(zip().map(|(low, high)| (low & 15) | bit(*high, at * 2)));
                    self.quants.extend(zip().map(|(low, high)| (low >> 4) | bit(*high, at * 2 + 1)));
                }
            }
            TensorFormat::Q6K => self.push_six(block),
        }
    }

    /// First the low nibbles of the bytes, then the high ones.
    fn push_nibbles(&mut self, quants: &[u8]) {
        self.quants.extend(quants.iter().map(|byte| byte & 15));
        self.quants.extend(quants.iter().map(|byte| byte >> 4));
    }

    fn push_fives(&mut self, rest: &[u8]) {
        let (highs, quants) = rest.split_at(4);
        let highs = u32::from_le_bytes(highs.try_into().unwrap_or_default());
        let high = |at: usize| u8::try_from((highs >> at) & 1).unwrap_or(0) << 4;
        self.quants.extend(quants.iter().enumerate().map(|(at, byte)| (byte & 15) | high(at)));
        self.quants.extend(quants.iter().enumerate().map(|(at, byte)| (byte >> 4) | high(at + HALF)));
    }

    fn push_scale_and_least(&mut self, scales: &[u8]) {
        let (scale, least) = scales.split_at(2);
        self.scales.push(half(scale));
        self.leasts.push(half(least));
    }

    /// Eight 6-bit scales and minimums in twelve bytes, with two 16-bit factors.
    fn push_k_scales(&mut self, head: &[u8]) {
        let (factors, sixes) = head.split_at(4);
        let (scale, least) = factors.split_at(2);
        let (scale, least) = (half(scale), half(least));
        let (a, rest) = sixes.split_at(4);
        let (b, c) = rest.split_at(4);
        for (a, b) in a.iter().zip(b) {
            self.scales.push(scale * f32::from(a & 63));
            self.leasts.push(-least * f32::from(b & 63));
        }
        for ((a, b), c) in a.iter().zip(b).zip(c) {
            self.scales.push(scale * f32::from((c & 15) | ((a >> 6) << 4)));
            self.leasts.push(-least * f32::from((c >> 4) | ((b >> 6) << 4)));
        }
    }

    fn push_six(&mut self, block: &[u8]) {
        let (lows, rest) = block.split_at(128);
        let (highs, rest) = rest.split_at(64);
        let (scales, factor) = rest.split_at(16);
        let factor = half(factor);
        self.scales.extend(scales.iter().map(|scale| factor * f32::from(scale.cast_signed())));
        for (low, high) in lows.chunks_exact(64).zip(highs.chunks_exact(32)) {
            let (first, second) = low.split_at(32);
            let with = |shift: u8, upper: bool| {
                move |(low, high): (&u8, &u8)| {
                    (if upper { low >> 4 } else { low & 15 }) | (((high >> shift) & 3) << 4)
                }
            };
            self.quants.extend(first.iter().zip(high).map(with(0, false)));
            self.quants.extend(second.iter().zip(high).map(with(2, false)));
            self.quants.extend(first.iter().zip(high).map(with(4, true)));
            self.quants.extend(second.iter().zip(high).map(with(6, true)));
        }
    }

    /// One row as floats.
    pub(super) fn row(&self, row: usize, into: &mut [f32]) {
        let quants = self.quants.chunks_exact(self.cols).nth(row).unwrap_or_default();
        let blocks = stride(self.cols);
        let scales = |count: usize| self.scales.chunks_exact(count).nth(row).unwrap_or_default();
        let mut each = |size: usize, scales: &[f32], to: &dyn Fn(u8, f32, usize) -> f32| {
            let parts = into.chunks_exact_mut(size).zip(quants.chunks_exact(size)).zip(scales).enumerate();
            for (at, ((into, quants), scale)) in parts {
                into.iter_mut().zip(quants).for_each(|(into, quant)| *into = to(*quant, *scale, at));
            }
        };
        match self.form {
            PackedForm::Signed => {
                each(BLOCK, scales(blocks), &|quant, scale, _| scale * f32::from(quant.cast_signed()))
            }
            PackedForm::Offset(off) => {
                each(BLOCK, scales(blocks), &|quant, scale, _| scale * (f32::from(quant) - off))
            }
            PackedForm::Halves(off) => {
                each(HALF, scales(blocks * 2), &|quant, scale, _| scale * (f32::from(quant) - off))
            }
            PackedForm::Least => {
                let leasts = self.leasts.chunks_exact(blocks).nth(row).unwrap_or_default();
                each(BLOCK, scales(blocks), &|quant, scale, at| {
                    scale * f32::from(quant) + leasts.get(at).copied().unwrap_or(0.0)
                });
            }
        }
    }
}

/// Rows that are looked up and not multiplied; they keep the file's format.
#[derive(Debug)]
pub(super) struct PackedRows {
    format: TensorFormat,
    cols: usize,
    raw: Vec<u8>,
}

impl PackedRows {
    /// Reads the rows.
    pub(super) fn read(gguf: &Gguf, name: &str, rows: usize, cols: usize) -> Result<Self, GgufError> {
        let tensor = shaped(gguf, name, rows, cols)?;
        if !cols.is_multiple_of(BLOCK) {
            return Err(GgufError::Unsupported(format!("`{name}` with rows of {cols}")));
        }
        let mut raw = Vec::new();
        in_pieces(gguf, tensor, |piece| raw.extend_from_slice(piece))?;
        Ok(Self { format: tensor.format, cols, raw })
    }

    /// One row as floats.
    pub(super) fn row(&self, row: usize, into: &mut [f32]) {
        let bytes = self.format.row_bytes(self.cols).unwrap_or(1).max(1);
        let mut packed = Packed::empty(self.format, 1, self.cols);
        packed.push(self.format, self.raw.chunks_exact(bytes).nth(row).unwrap_or_default());
        packed.row(0, into);
    }
}

/// Reads a row of floats, such as a norm's weights or a bias.
pub(super) fn read_row(gguf: &Gguf, name: &str, cols: usize) -> Result<Vec<f32>, GgufError> {
    let tensor = shaped(gguf, name, 1, cols)?;
    if !matches!(tensor.format, TensorFormat::F32 | TensorFormat::F16) {
        return Err(GgufError::Unsupported(format!("`{name}` in few bits")));
    }
    let mut floats = vec![0.0; cols];
    let (_, bytes) = tensor.format.block();
    let mut raw = vec![0; cols.saturating_mul(bytes)];
    gguf.read_rows(tensor, 0, &mut raw)?;
    read_floats(tensor.format, &raw, &mut floats);
    Ok(floats)
}

fn shaped<'g>(gguf: &'g Gguf, name: &str, rows: usize, cols: usize) -> Result<&'g Tensor, GgufError> {
    let tensor = gguf.tensor(name)?;
    if (tensor.rows, tensor.cols) != (rows, cols) {
        return Err(GgufError::Malformed(format!(
            "`{name}` is {} × {}, not {rows} × {cols}",
            tensor.rows, tensor.cols
        )));
    }
    Ok(tensor)
}

fn in_pieces(gguf: &Gguf, tensor: &Tensor, mut take: impl FnMut(&[u8])) -> Result<(), GgufError> {
    let row = tensor.format.row_bytes(tensor.cols).unwrap_or(0).max(1);
    let rows_at_once = (PIECE_BYTES / row).clamp(1, tensor.rows);
    let mut buffer = vec![0; rows_at_once.saturating_mul(row)];
    let mut first = 0;
    while first < tensor.rows {
        let rows = rows_at_once.min(tensor.rows - first);
        let piece = buffer.get_mut(..rows * row).unwrap_or_default();
        gguf.read_rows(tensor, first, piece)?;
        take(piece);
        first += rows;
    }
    Ok(())
}

fn read_floats(format: TensorFormat, raw: &[u8], into: &mut [f32]) {
    if format == TensorFormat::F16 {
        raw.chunks_exact(2).zip(into).for_each(|(two, into)| *into = half(two));
    } else {
        let float = |four: &[u8]| f32::from_le_bytes(four.try_into().unwrap_or_default());
        raw.chunks_exact(4).zip(into).for_each(|(four, into)| *into = float(four));
    }
}

/// A 16-bit float. Non-finite values become 0, so that one damaged scale doesn't spread.
pub(super) fn half(two: &[u8]) -> f32 {
    let bits = u16::from_le_bytes(two.try_into().unwrap_or_default());
    let sign = u32::from(bits >> 15) << 31;
    let (exponent, fraction) = (u32::from(bits >> 10) & 31, u32::from(bits) & 1023);
    let magnitude = match exponent {
        0 => f32::from(bits & 1023) / 16_777_216.0,
        31 => 0.0,
        _ => f32::from_bits(((exponent + 112) << 23) | (fraction << 13)),
    };
    f32::from_bits(magnitude.to_bits() | sign)
}
