//! URI encoding and base64.

use super::arg;
use crate::interp::{Eval, Interp};
use crate::value::Value;

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(crate) fn encode_component(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    encoded(interp, args, "-_.!~*'()")
}

pub(crate) fn encode(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    encoded(interp, args, "-_.!~*'();/?:@&=+$,#")
}

fn encoded(interp: &mut Interp<'_>, args: &[Value], kept: &str) -> Eval {
    let text = interp.to_str(&arg(args, 0))?;
    let mut out = String::new();
    for byte in text.as_str().bytes() {
        let c = char::from(byte);
        if c.is_ascii_alphanumeric() || (byte.is_ascii() && kept.contains(c)) {
            out.push(c);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    Ok(Value::text(out))
}

pub(crate) fn decode(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    let text = interp.to_str(&arg(args, 0))?;
    let (mut out, mut bytes) = (Vec::new(), text.as_str().bytes());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        match (digit(bytes.next()), digit(bytes.next())) {
            (Some(high), Some(low)) => out.push(u8::try_from(high * 16 + low).unwrap_or(0)),
            _other => return Err(interp.error("URI malformed")),
        }
    }
    match String::from_utf8(out) {
        Ok(text) => Ok(Value::text(text)),
        Err(_) => Err(interp.error("URI malformed")),
    }
}

/// `btoa`: characters up to 255, each a byte.
pub(crate) fn to_base64(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    let text = interp.to_str(&arg(args, 0))?;
    let bytes: Result<Vec<u8>, _> = text.as_str().chars().map(|c| u8::try_from(u32::from(c))).collect();
    let Ok(bytes) = bytes else { return Err(interp.error("the text has characters outside of Latin-1")) };
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for index in 0..4_usize {
            let digit = bits >> (18_usize.saturating_sub(index.saturating_mul(6))) & 63;
            let digit = DIGITS.get(digit as usize).copied().unwrap_or(b'=');
            out.push(if index > chunk.len() { '=' } else { char::from(digit) });
        }
    }
    Ok(Value::text(out))
}

/// `atob`
pub(crate) fn from_base64(interp: &mut Interp<'_>, _this: &Value, args: &[Value]) -> Eval {
    let text = interp.to_str(&arg(args, 0))?;
    let (mut out, mut bits, mut held) = (String::new(), 0_u32, 0_u32);
    for c in text.as_str().chars().filter(|c| !c.is_ascii_whitespace() && *c != '=') {
        let Some(digit) = DIGITS.iter().position(|digit| char::from(*digit) == c) else {
            return Err(interp.error("the text is not base64"));
        };
        bits = (bits << 6 | u32::try_from(digit).unwrap_or(0)) & 0xff_ffff;
        held = held.saturating_add(6);
        if held >= 8 {
            held = held.saturating_sub(8);
            out.push(char::from(u8::try_from(bits >> held & 0xff).unwrap_or(0)));
        }
    }
    Ok(Value::text(out))
}
