//! JSON from people, read strictly: policy and the tool must see one and the same value.

use std::io::Read;

use regent_ledger::canonical;
use serde_json::Value;

use crate::codes;
use crate::failure::Failure;

/// More than this isn't typed by hand; files are what larger content is for.
const INPUT_BYTES_MAX: u64 = 8 << 20;

/// Reads one JSON value from the command line, or from stdin if the text is `-`.
pub(crate) fn from_argument(text: &str) -> Result<Value, Failure> {
    if text != "-" {
        return parse(text.as_bytes());
    }
    let mut bytes = Vec::new();
    std::io::stdin()
        .lock()
        .take(INPUT_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::new(codes::IO, format!("can't read stdin: {error}")))?;
    parse(&bytes)
}

/// Reads one JSON value.
pub(crate) fn parse(bytes: &[u8]) -> Result<Value, Failure> {
    if u64::try_from(bytes.len()).is_ok_and(|length| length > INPUT_BYTES_MAX) {
        return Err(Failure::new(
            codes::INPUT_SIZE,
            format!("the input has more than {INPUT_BYTES_MAX} bytes"),
        ));
    }
    canonical::parse(bytes).map_err(|error| {
        Failure::new(codes::INPUT_JSON, format!("the arguments are not valid JSON: {error}"))
            .help("give one JSON object, e.g. '{\"path\": \"README.md\"}', or `-` to read it from stdin")
    })
}
