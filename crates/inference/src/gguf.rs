//! Parses GGUF files: a header of named values and tensors, then their bytes. The header is untrusted: every length is checked against the
//! rest of the file before memory is allocated.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;

const MAGIC: [u8; 4] = *b"GGUF";
/// Maximum number of named values and of tensors.
const VALUES_MAX: u64 = 4_096;
const TENSORS_MAX: u64 = 16_384;
/// Maximum length of a name.
const NAME_BYTES_MAX: u64 = 256;
/// Maximum length of one text, such as a template, and of one list, such as a vocabulary.
const TEXT_BYTES_MAX: u64 = 1 << 20;
const LIST_MAX: u64 = 1 << 20;
/// Maximum size of the header.
const HEADER_BYTES_MAX: u64 = 128 << 20;
/// Maximum length of one side of a matrix.
const SIDE_MAX: u64 = 1 << 24;

/// Why a file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// It can't be read, or ends too early.
    #[error("the weights can't be read: {0}")]
    Read(#[from] io::Error),
    /// It isn't a GGUF file.
    #[error("this is not a GGUF file of version 2 or 3")]
    Magic,
    /// Something in it exceeds a limit or the file's size.
    #[error("{0} exceeds its limit")]
    TooLarge(&'static str),
    /// It is malformed.
    #[error("malformed weights: {0}")]
    Malformed(String),
    /// A required value or tensor is missing.
    #[error("the weights have no `{0}`")]
    Missing(String),
    /// It uses an unsupported feature.
    #[error("{0} is not supported")]
    Unsupported(String),
}

/// A named value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// An integer.
    Int(i128),
    /// A floating-point number.
    Float(f64),
    /// A boolean.
    Bool(bool),
    /// A text.
    Text(String),
    /// Integers.
    Ints(Vec<i64>),
    /// Floating-point numbers.
    Floats(Vec<f32>),
    /// Texts.
    Texts(Vec<String>),
}

/// The storage format of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TensorFormat {
    /// 32-bit floats.
    F32,
    /// 16-bit floats.
    F16,
    /// 4 bits, and a scale per 32 numbers.
    Q4_0,
    /// 4 bits, and a scale and a minimum per 32 numbers.
    Q4_1,
    /// 5 bits, and a scale per 32 numbers.
    Q5_0,
    /// 5 bits, and a scale and a minimum per 32 numbers.
    Q5_1,
    /// 8 bits, and a scale per 32 numbers.
    Q8_0,
    /// 4 bits; 8 groups of 32 with 6-bit scales and minimums.
    Q4K,
    /// 5 bits; 8 groups of 32 with 6-bit scales and minimums.
    Q5K,
    /// 6 bits; 16 groups of 16 with 8-bit scales.
    Q6K,
}

impl TensorFormat {
    fn from_code(code: u32) -> Result<Self, GgufError> {
        Ok(match code {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::Q4_0,
            3 => Self::Q4_1,
            6 => Self::Q5_0,
            7 => Self::Q5_1,
            8 => Self::Q8_0,
            12 => Self::Q4K,
            13 => Self::Q5K,
            14 => Self::Q6K,
            other => return Err(GgufError::Unsupported(format!("the tensor type {other}"))),
        })
    }

    /// Numbers per block, and bytes per block.
    pub fn block(self) -> (usize, usize) {
        match self {
            Self::F32 => (1, 4),
            Self::F16 => (1, 2),
            Self::Q4_0 => (32, 18),
            Self::Q4_1 => (32, 20),
            Self::Q5_0 => (32, 22),
            Self::Q5_1 => (32, 24),
            Self::Q8_0 => (32, 34),
            Self::Q4K => (256, 144),
            Self::Q5K => (256, 176),
            Self::Q6K => (256, 210),
        }
    }

    /// The bytes of a row with `cols` numbers, if this format supports that length.
    pub fn row_bytes(self, cols: usize) -> Option<usize> {
        let (numbers, bytes) = self.block();
        cols.is_multiple_of(numbers).then(|| (cols / numbers).checked_mul(bytes)).flatten()
    }
}

/// The location and shape of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// Its storage format.
    pub format: TensorFormat,
    /// The length of a row.
    pub cols: usize,
    /// Number of rows.
    pub rows: usize,
    at: u64,
}

/// A file with a parsed header.
#[derive(Debug)]
pub struct Gguf {
    values: BTreeMap<String, Value>,
    tensors: BTreeMap<String, Tensor>,
    file: File,
}

impl Gguf {
    /// Opens a file and parses its header.
    pub fn open(file: File) -> Result<Self, GgufError> {
        let bytes = file.metadata()?.len();
        let mut reader =
            GgufReader { from: BufReader::new(&file), left: bytes.min(HEADER_BYTES_MAX), read: 0 };
        let (values, tensors) = header(&mut reader, bytes)?;
        Ok(Self { values, tensors, file })
    }

    /// A value by name.
    pub fn value(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }

    /// A text by name.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.value(name)? {
            Value::Text(text) => Some(text),
            Value::Int(_)
            | Value::Float(_)
            | Value::Bool(_)
            | Value::Ints(_)
            | Value::Floats(_)
            | Value::Texts(_) => None,
        }
    }

    /// Texts by name.
    pub fn texts(&self, name: &str) -> Result<&[String], GgufError> {
        if let Some(Value::Texts(texts)) = self.value(name) { Ok(texts) } else { Err(missing(name)) }
    }

    /// Integers by name.
    pub fn ints(&self, name: &str) -> Option<&[i64]> {
        if let Some(Value::Ints(ints)) = self.value(name) { Some(ints) } else { None }
    }

    /// An integer by name, at most `most`.
    pub fn count(&self, name: &str, most: usize) -> Result<usize, GgufError> {
        let Some(Value::Int(value)) = self.value(name) else { return Err(missing(name)) };
        let value = usize::try_from(*value).ok().filter(|value| *value <= most);
        value.ok_or_else(|| GgufError::Malformed(format!("`{name}` is not between 0 and {most}")))
    }

    /// A floating-point number by name.
    pub fn number(&self, name: &str) -> Result<f32, GgufError> {
        let Some(Value::Float(value)) = self.value(name) else { return Err(missing(name)) };
        // Stored as 32 bits, or used with that precision.
        let value = *value as f32;
        if value.is_finite() {
            Ok(value)
        } else {
            Err(GgufError::Malformed(format!("`{name}` is not finite")))
        }
    }

    /// A tensor by name.
    pub fn tensor(&self, name: &str) -> Result<&Tensor, GgufError> {
        self.tensors.get(name).ok_or_else(|| missing(name))
    }

    /// Whether the tensor exists.
    pub fn has_tensor(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    /// Reads consecutive rows of a tensor into a buffer of that size.
    pub fn read_rows(&self, tensor: &Tensor, first: usize, into: &mut [u8]) -> Result<(), GgufError> {
        let row = tensor.format.row_bytes(tensor.cols).unwrap_or(0);
        let from = (first as u64).saturating_mul(row as u64).saturating_add(tensor.at);
        Ok(self.file.read_exact_at(into, from)?)
    }
}

fn missing(name: &str) -> GgufError {
    GgufError::Missing(name.to_owned())
}

type Header = (BTreeMap<String, Value>, BTreeMap<String, Tensor>);

fn header(reader: &mut GgufReader<impl Read>, bytes: u64) -> Result<Header, GgufError> {
    let magic: [u8; 4] = reader.array().map_err(|_| GgufError::Magic)?;
    let version = reader.u32().map_err(|_| GgufError::Magic)?;
    if magic != MAGIC || !(2..=3).contains(&version) {
        return Err(GgufError::Magic);
    }
    let tensors_count = reader.count(TENSORS_MAX, "the number of tensors")?;
    let values_count = reader.count(VALUES_MAX, "the number of values")?;
    let mut values = BTreeMap::new();
    for _ in 0..values_count {
        let name = reader.text(NAME_BYTES_MAX, "a name")?;
        let code = reader.u32()?;
        let value = reader.value(code)?;
        if values.insert(name.clone(), value).is_some() {
            return Err(GgufError::Malformed(format!("`{}` comes twice", name.escape_debug())));
        }
    }
    let mut tensors = BTreeMap::new();
    for _ in 0..tensors_count {
        let name = reader.text(NAME_BYTES_MAX, "a name")?;
        let tensor = reader.tensor()?;
        if tensors.insert(name.clone(), tensor).is_some() {
            return Err(GgufError::Malformed(format!("`{}` comes twice", name.escape_debug())));
        }
    }
    let align = match values.get("general.alignment") {
        None => 32,
        Some(Value::Int(align @ 1..=65_536)) => u64::try_from(*align).unwrap_or(32),
        Some(_) => return Err(GgufError::Malformed("`general.alignment`".to_owned())),
    };
    let begin = reader.read.next_multiple_of(align);
    for (name, tensor) in &mut tensors {
        let size = tensor
            .format
            .row_bytes(tensor.cols)
            .and_then(|row| row.checked_mul(tensor.rows))
            .ok_or_else(|| GgufError::Malformed(format!("the shape of `{}`", name.escape_debug())))?;
        tensor.at = tensor.at.saturating_add(begin);
        if tensor.at.saturating_add(size as u64) > bytes {
            return Err(GgufError::TooLarge("a tensor"));
        }
    }
    Ok((values, tensors))
}

struct GgufReader<R> {
    from: R,
    left: u64,
    read: u64,
}

impl<R: Read> GgufReader<R> {
    fn take(&mut self, count: u64, what: &'static str) -> Result<(), GgufError> {
        self.left = self.left.checked_sub(count).ok_or(GgufError::TooLarge(what))?;
        self.read = self.read.saturating_add(count);
        Ok(())
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], GgufError> {
        self.take(N as u64, "the header")?;
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32, GgufError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, GgufError> {
        self.array().map(u64::from_le_bytes)
    }

    fn count(&mut self, most: u64, what: &'static str) -> Result<u64, GgufError> {
        let count = self.u64()?;
        if count > most { Err(GgufError::TooLarge(what)) } else { Ok(count) }
    }

    fn text(&mut self, bytes_max: u64, what: &'static str) -> Result<String, GgufError> {
        let count = self.count(bytes_max, what)?;
        self.take(count, what)?;
        let mut bytes = vec![0; usize::try_from(count).unwrap_or(0)];
        self.from.read_exact(&mut bytes)?;
        String::from_utf8(bytes).map_err(|_| GgufError::Malformed(format!("{what} is not UTF-8")))
    }

    fn value(&mut self, code: u32) -> Result<Value, GgufError> {
        Ok(match code {
            6 => Value::Float(f32::from_le_bytes(self.array()?).into()),
            12 => Value::Float(f64::from_le_bytes(self.array()?)),
            7 => Value::Bool(self.array::<1>()? != [0]),
            8 => Value::Text(self.text(TEXT_BYTES_MAX, "a text")?),
            9 => {
                let code = self.u32()?;
                let count = self.count(LIST_MAX, "a list")?;
                self.list(code, count)?
            }
            other => Value::Int(self.int(other)?),
        })
    }

    fn int(&mut self, code: u32) -> Result<i128, GgufError> {
        Ok(match code {
            0 => u8::from_le_bytes(self.array()?).into(),
            1 => i8::from_le_bytes(self.array()?).into(),
            2 => u16::from_le_bytes(self.array()?).into(),
            3 => i16::from_le_bytes(self.array()?).into(),
            4 => u32::from_le_bytes(self.array()?).into(),
            5 => i32::from_le_bytes(self.array()?).into(),
            10 => u64::from_le_bytes(self.array()?).into(),
            11 => i64::from_le_bytes(self.array()?).into(),
            other => return Err(GgufError::Malformed(format!("a value of type {other}"))),
        })
    }

    /// Lists grow as they are read, so a false length in the header allocates nothing.
    fn list(&mut self, code: u32, count: u64) -> Result<Value, GgufError> {
        Ok(match code {
            8 => {
                let texts: Result<_, _> = (0..count).map(|_| self.text(TEXT_BYTES_MAX, "a text")).collect();
                Value::Texts(texts?)
            }
            6 => {
                let floats: Result<_, _> = (0..count).map(|_| self.array().map(f32::from_le_bytes)).collect();
                Value::Floats(floats?)
            }
            7 => {
                let bools: Result<_, _> =
                    (0..count).map(|_| self.array::<1>().map(|[one]| one.into())).collect();
                Value::Ints(bools?)
            }
            9 | 12 => {
                return Err(GgufError::Unsupported("a list of lists, or of long fractions,".to_owned()));
            }
            other => {
                let one = |_| i64::try_from(self.int(other)?).map_err(|_| GgufError::TooLarge("a number"));
                Value::Ints((0..count).map(one).collect::<Result<_, _>>()?)
            }
        })
    }

    fn tensor(&mut self) -> Result<Tensor, GgufError> {
        let sides = self.u32()?;
        if !(1..=2).contains(&sides) {
            return Err(GgufError::Unsupported(format!("a tensor with {sides} sides")));
        }
        let mut side = || {
            let side = self.count(SIDE_MAX, "a tensor's side")?;
            usize::try_from(side).map_err(|_| GgufError::TooLarge("a tensor's side"))
        };
        let cols = side()?;
        let rows = if sides == 2 { side()? } else { 1 };
        if cols == 0 || rows == 0 {
            return Err(GgufError::Malformed("an empty tensor".to_owned()));
        }
        let format = TensorFormat::from_code(self.u32()?)?;
        let at = self.u64()?;
        Ok(Tensor { format, cols, rows, at })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;
    use crate::tests::made_up::{Making, bytes};

    fn open(bytes: &[u8]) -> Result<Gguf, GgufError> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        io::Seek::rewind(&mut file).unwrap();
        Gguf::open(file)
    }

    #[test]
    fn parses_a_header_and_checks_its_claims() {
        let mut making = Making::default();
        making.say("general.architecture", "llama");
        making.int("n", 7);
        making.tensor("t", &[32, 2], 8);
        let gguf = open(&making.file()).unwrap();
        assert_eq!((gguf.text("general.architecture"), gguf.count("n", 7).unwrap()), (Some("llama"), 7));
        assert!(matches!(gguf.count("n", 6), Err(GgufError::Malformed(_))));
        assert!(matches!(gguf.tensor("u"), Err(GgufError::Missing(_))));
        let tensor = gguf.tensor("t").unwrap();
        assert_eq!((tensor.format, tensor.rows, tensor.cols), (TensorFormat::Q8_0, 2, 32));
        // One byte less, and the tensor is incomplete.
        let mut short = making.file();
        short.pop();
        assert!(matches!(open(&short), Err(GgufError::TooLarge("a tensor"))));
    }

    #[test]
    fn huge_claimed_sizes_allocate_nothing() {
        let head = |tensors: u64, values: u64| {
            [
                b"GGUF".to_vec(),
                3_u32.to_le_bytes().to_vec(),
                tensors.to_le_bytes().to_vec(),
                values.to_le_bytes().to_vec(),
            ]
            .concat()
        };
        let text =
            |text: &str| [(text.len() as u64).to_le_bytes().to_vec(), text.as_bytes().to_vec()].concat();
        let with = |rest: &[&[u8]]| [head(0, 1), rest.concat()].concat();
        let huge = u64::MAX.to_le_bytes();
        let million = (1_u64 << 20).to_le_bytes();
        let nine_eight = [9_u32.to_le_bytes(), 8_u32.to_le_bytes()].concat();
        let cases: Vec<Vec<u8>> = vec![
            vec![],
            b"GGUF".to_vec(),
            b"GGML\x03\0\0\0".to_vec(),
            head(u64::MAX, 0),
            head(0, u64::MAX),
            with(&[&huge, b"x"]),
            with(&[&text("k"), &8_u32.to_le_bytes(), &huge]),
            with(&[&text("k"), &nine_eight, &huge]),
            with(&[&text("k"), &nine_eight, &million]),
            with(&[&text("k"), &99_u32.to_le_bytes()]),
            with(&[&text("k"), &[9_u32.to_le_bytes(), 9_u32.to_le_bytes()].concat(), &million]),
            [head(1, 0), text("t"), 2_u32.to_le_bytes().to_vec(), huge.to_vec(), huge.to_vec()].concat(),
            [head(1, 0), text("t"), 9_u32.to_le_bytes().to_vec()].concat(),
        ];
        for case in cases {
            assert!(open(&case).is_err(), "{case:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        /// A file with random changes and a random length is accepted or rejected, without panic or excess memory.
        #[test]
        fn any_changed_file_is_accepted_or_rejected_without_panic(changes in proptest::collection::vec((0_usize..12_000, any::<u8>()), 0..6), cut in 0_usize..400_000) {
            let mut file = bytes(1);
            for (at, byte) in changes {
                if let Some(place) = file.get_mut(at) {
                    *place = byte;
                }
            }
            file.truncate(cut.max(16));
            if let Ok(gguf) = open(&file) {
                let net = crate::net::Net::read(&gguf);
                if let Ok(net) = net {
                    let _vocab = crate::vocab::Vocab::read(&gguf, net.shape.words);
                }
            }
        }
    }
}
