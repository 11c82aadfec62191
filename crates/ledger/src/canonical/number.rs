//! Formats numbers as ECMAScript does: the shortest digits that read back as the same double.

use super::{CanonicalError, INTEGER_MAX};

/// Rejects non-finite numbers, and whole numbers that would be written as out-of-range integers.
pub(super) fn check_f64(value: f64) -> Result<(), CanonicalError> {
    if !value.is_finite() {
        return Err(CanonicalError::NotFinite);
    }
    #[expect(clippy::cast_precision_loss, reason = "2^53 - 1 is exact in a double")]
    let integer_max = INTEGER_MAX as f64;
    if value.abs() > integer_max && value.abs() < 1e21 {
        return Err(CanonicalError::IntegerRange);
    }
    Ok(())
}

/// Appends a double that passes [`check_f64`].
pub(super) fn write_f64(value: f64, out: &mut Vec<u8>) -> Result<(), CanonicalError> {
    check_f64(value)?;
    if value == 0.0 {
        out.push(b'0');
        return Ok(());
    }
    if value < 0.0 {
        out.push(b'-');
    }
    let (digits, point) = shortest(value.abs());
    lay_out(&digits, point, out);
    Ok(())
}

/// The shortest digits that read back as this double, and the position of the decimal point.
///
/// The digits come from serde_json, which rounds ties to even as ECMAScript does; `{:e}` does not.
fn shortest(value: f64) -> (Vec<u8>, i32) {
    let text = serde_json::to_string(&value).unwrap_or_default();
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all = [whole, fraction].concat();
    let leading = all.bytes().take_while(|digit| *digit == b'0').count();
    let digits = all.trim_start_matches('0').trim_end_matches('0').as_bytes().to_vec();
    let point = i32::try_from(whole.len()).unwrap_or(0) - i32::try_from(leading).unwrap_or(0);
    (digits, point + exponent)
}

/// ECMA-262 Number::toString, given the digits and the position of the decimal point.
fn lay_out(digits: &[u8], point: i32, out: &mut Vec<u8>) {
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    let zeros = |n: i32, out: &mut Vec<u8>| out.extend((0..n).map(|_| b'0'));
    if count <= point && point <= 21 {
        out.extend_from_slice(digits);
        zeros(point - count, out);
    } else if 0 < point && point <= 21 {
        let (whole, rest) = digits.split_at_checked(point.unsigned_abs() as usize).unwrap_or((digits, &[]));
        out.extend_from_slice(whole);
        out.push(b'.');
        out.extend_from_slice(rest);
    } else if -6 < point && point <= 0 {
        out.extend_from_slice(b"0.");
        zeros(-point, out);
        out.extend_from_slice(digits);
    } else {
        let (first, rest) = digits.split_at_checked(1).unwrap_or((digits, &[]));
        out.extend_from_slice(first);
        if !rest.is_empty() {
            out.push(b'.');
            out.extend_from_slice(rest);
        }
        out.extend_from_slice(if point > 0 { b"e+" } else { b"e-" });
        out.extend_from_slice((point - 1).unsigned_abs().to_string().as_bytes());
    }
}
