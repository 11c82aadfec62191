//! Masks Regent's own tokens by their form: `rgt_`, 16 hexadecimal digits, `_`, 64 digits. The vault doesn't hold them, but a file may, and a
//! token lets its reader act as its subject.

use std::ops::Range;

const PREFIX: &[u8] = b"rgt_";
const ID_DIGITS: usize = 16;
const SECRET_DIGITS: usize = 64;
const TOKEN_BYTES: usize = PREFIX.len() + ID_DIGITS + 1 + SECRET_DIGITS;
/// A beginning of this length has a digit of the secret. The part before is public.
const BEGINNING_BYTES_MIN: usize = PREFIX.len() + ID_DIGITS + 2;
const MASK: &[u8] = b"[secret:regent-token]";

/// Masks every token, also one that is cut at the end; returns whether there was one.
pub(crate) fn scrub(bytes: &mut Vec<u8>) -> bool {
    let mut spans = spans(bytes);
    let open = open_at(bytes);
    if bytes.len().saturating_sub(open) >= BEGINNING_BYTES_MIN {
        spans.push(open..bytes.len());
    }
    mask(bytes, &spans)
}

/// The same for a part of a stream: only complete tokens.
pub(crate) fn scrub_complete(bytes: &mut Vec<u8>) -> bool {
    let spans = spans(bytes);
    mask(bytes, &spans)
}

/// The offset from which a stream must wait because a token may have begun there.
pub(crate) fn open_at(bytes: &[u8]) -> usize {
    let from = bytes.len().saturating_sub(TOKEN_BYTES.saturating_sub(1));
    let is_open = |at: &usize| bytes.get(*at..).is_some_and(begins);
    (from..bytes.len()).find(is_open).unwrap_or(bytes.len())
}

/// The same offset, or the start of the token around it.
pub(crate) fn beside_tokens(bytes: &[u8], at: usize) -> usize {
    let around = spans(bytes).into_iter().find(|span| span.start < at && at < span.end);
    around.map_or(at, |span| span.start)
}

fn spans(bytes: &[u8]) -> Vec<Range<usize>> {
    let span = |at: usize| at..at.saturating_add(TOKEN_BYTES);
    let is_token = |span: &Range<usize>| bytes.get(span.clone()).is_some_and(begins);
    memchr::memmem::find_iter(bytes, PREFIX).map(span).filter(is_token).collect()
}

/// Whether a token could begin with all of this.
fn begins(bytes: &[u8]) -> bool {
    let id_end = PREFIX.len().saturating_add(ID_DIGITS);
    bytes.iter().enumerate().all(|(at, byte)| match PREFIX.get(at) {
        Some(letter) => byte == letter,
        None if at == id_end => *byte == b'_',
        None => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
    })
}

fn mask(bytes: &mut Vec<u8>, spans: &[Range<usize>]) -> bool {
    if spans.is_empty() {
        return false;
    }
    let mut out = Vec::with_capacity(bytes.len());
    let mut from = 0;
    for span in spans {
        out.extend_from_slice(bytes.get(from..span.start).unwrap_or_default());
        out.extend_from_slice(MASK);
        from = span.end;
    }
    out.extend_from_slice(bytes.get(from..).unwrap_or_default());
    *bytes = out;
    true
}

#[cfg(test)]
mod tests {
    use regent_kernel::{Secrets as _, Token};

    use crate::Vault;

    fn masked(text: &str) -> String {
        let mut bytes = text.as_bytes().to_vec();
        super::scrub(&mut bytes);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn masks_the_tokens_that_the_kernel_makes_and_nothing_like_them() {
        let (one, other) = (Token::generate().unwrap(), Token::generate().unwrap());
        let (one, other) = (one.reveal(), other.reveal());
        let mask = "[secret:regent-token]";
        assert_eq!(masked(&format!("a {one}{other}\n\"{one}\"")), format!("a {mask}{mask}\n\"{mask}\""));
        assert_eq!(masked(&format!("cut {}", &one[..40])), format!("cut {mask}"));
        let upper = one.to_uppercase();
        let short = format!("{} x", &one[..84]);
        for plain in ["rgt_", "rgt_list", &one[..21], &upper, &short, "xrgt_0123456789abcdef_"] {
            assert_eq!(masked(plain), plain);
        }
    }

    #[test]
    fn no_cut_of_a_stream_goes_through_a_token() {
        let folder = tempfile::tempdir().unwrap();
        let vault = Vault::new(folder.path(), None);
        let token = Token::generate().unwrap();
        let text = format!("before {} after rgt_ end", token.reveal());
        for at in 0..text.len() {
            let (mut held, mut out) = (Vec::new(), Vec::new());
            for part in [&text.as_bytes()[..at], &text.as_bytes()[at..]] {
                held.extend_from_slice(part);
                out.extend(vault.scrub_part(&mut held).bytes);
            }
            vault.scrub(&mut held);
            out.extend(held);
            assert_eq!(
                String::from_utf8(out).unwrap(),
                "before [secret:regent-token] after rgt_ end",
                "{at}"
            );
        }
    }
}
