//! Signed notes and checkpoints, as specified by C2SP `signed-note` and `tlog-checkpoint`.
//!
//! A note is text, a blank line, and signature lines `— name base64(key id || signature)`. Signatures by unknown keys are ignored. A bad
//! signature by a known key invalidates the note. A note without a valid signature by a known key is not trusted.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::{Digest, LedgerKey, PublicKey};

/// Maximum length of a note.
pub const NOTE_BYTES_MAX: usize = 4 << 20;
const SIGNATURES_MAX: usize = 64;
const DASH: &str = "— ";

/// A parsed note that isn't verified yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    text: String,
    signatures: Vec<NoteSignature>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct NoteSignature {
    name: String,
    key_id: [u8; 4],
    signature: Vec<u8>,
}

impl Note {
    /// Signs a text, which must end in a newline, under a name.
    pub fn sign(text: &str, name: &str, key: &LedgerKey) -> String {
        let signature = key.sign(text.as_bytes());
        let signed = [key.public().id(name).as_slice(), signature.as_slice()].concat();
        format!("{text}\n{DASH}{name} {}\n", STANDARD.encode(signed))
    }

    /// Parses a note strictly.
    pub fn parse(note: &str) -> Result<Note, NoteError> {
        if note.len() > NOTE_BYTES_MAX {
            return Err(NoteError::Malformed("too long"));
        }
        if note.bytes().any(|byte| byte < 0x20 && byte != b'\n') {
            return Err(NoteError::Malformed("control character"));
        }
        let (before, signatures) = note.rsplit_once("\n\n").ok_or(NoteError::Malformed("no blank line"))?;
        let text = format!("{before}\n");
        let lines = signatures.strip_suffix('\n').ok_or(NoteError::Malformed("last line has no end"))?;
        let signatures: Vec<NoteSignature> = lines
            .split('\n')
            .take(SIGNATURES_MAX + 1)
            .map(|line| read_signature(line).ok_or(NoteError::Malformed("bad signature line")))
            .collect::<Result<_, _>>()?;
        if signatures.len() > SIGNATURES_MAX {
            return Err(NoteError::Malformed("too many signatures"));
        }
        Ok(Note { text, signatures })
    }

    /// The text, if one of these keys signed it under `name` and none of these keys has a bad signature.
    pub fn verify(&self, name: &str, keys: &[PublicKey]) -> Result<(&str, PublicKey), NoteError> {
        let mut signer = None;
        for signature in self.signatures.iter().filter(|signature| signature.name == name) {
            let Some(key) = keys.iter().find(|key| key.id(name) == signature.key_id) else { continue };
            if !key.verifies(self.text.as_bytes(), &signature.signature) {
                return Err(NoteError::BadSignature);
            }
            signer = Some(*key);
        }
        signer.map(|key| (self.text.as_str(), key)).ok_or(NoteError::Unsigned)
    }

    /// Whether a signature line carries this name; the signature is not verified.
    pub(crate) fn has_signature_of(&self, name: &str) -> bool {
        self.signatures.iter().any(|signature| signature.name == name)
    }

    /// The text without verification. It must not be trusted.
    pub fn unverified_text(&self) -> &str {
        &self.text
    }
}

fn read_signature(line: &str) -> Option<NoteSignature> {
    let (name, encoded) = line.strip_prefix(DASH)?.split_once(' ')?;
    if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c == '+') {
        return None;
    }
    let decoded = STANDARD.decode(encoded).ok()?;
    let (key_id, signature) = decoded.split_first_chunk::<4>()?;
    if signature.is_empty() {
        return None;
    }
    Some(NoteSignature { name: name.to_owned(), key_id: *key_id, signature: signature.to_vec() })
}

/// The head of a lane's tree: what a checkpoint states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The log's name: `regent/<ledger>/<lane>`.
    pub origin: String,
    /// Entries under the root.
    pub size: u64,
    /// Root of the tree over them.
    pub root: Digest,
}

impl Checkpoint {
    /// Signs the checkpoint. The key's name is the origin, as C2SP recommends.
    pub fn sign(&self, key: &LedgerKey) -> String {
        Note::sign(&self.text(), &self.origin, key)
    }

    /// The note with an existing base64 signature.
    pub(crate) fn with_signature(&self, signature: &str) -> String {
        format!("{}\n{DASH}{} {signature}\n", self.text(), self.origin)
    }

    fn text(&self) -> String {
        format!("{}\n{}\n{}\n", self.origin, self.size, STANDARD.encode(self.root.as_bytes()))
    }

    /// Parses the text of a note as a checkpoint. Extension lines are allowed and ignored.
    pub fn parse(text: &str) -> Result<Checkpoint, NoteError> {
        let mut lines = text.strip_suffix('\n').ok_or(NoteError::Malformed("no final newline"))?.split('\n');
        let (Some(origin), Some(size), Some(root)) = (lines.next(), lines.next(), lines.next()) else {
            return Err(NoteError::Malformed("a checkpoint has three lines"));
        };
        if origin.is_empty() || lines.any(str::is_empty) {
            return Err(NoteError::Malformed("empty line"));
        }
        let size = read_decimal(size).ok_or(NoteError::Malformed("bad tree size"))?;
        let root = STANDARD.decode(root).ok().and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
        let root = Digest::from_bytes(root.ok_or(NoteError::Malformed("bad root hash"))?);
        Ok(Checkpoint { origin: origin.to_owned(), size, root })
    }

    /// Parses a signed checkpoint; fails unless one of these keys signed it under its origin.
    pub fn open(note: &str, keys: &[PublicKey]) -> Result<(Checkpoint, PublicKey), NoteError> {
        let note = Note::parse(note)?;
        let checkpoint = Checkpoint::parse(note.unverified_text())?;
        let (_, key) = note.verify(&checkpoint.origin, keys)?;
        Ok((checkpoint, key))
    }
}

/// Parses a decimal number without sign or leading zeros.
pub(crate) fn read_decimal(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (plain && (text == "0" || !text.starts_with('0'))).then(|| text.parse().ok())?
}

/// Why a note is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    /// It isn't a well-formed note.
    #[error("malformed note: {0}")]
    Malformed(&'static str),
    /// A signature by a known key doesn't match the text.
    #[error("bad signature by a known key")]
    BadSignature,
    /// No known key signed it.
    #[error("not signed by a known key")]
    Unsigned,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key() -> LedgerKey {
        LedgerKey::from_seed(&[1; 32])
    }

    fn checkpoint() -> Checkpoint {
        Checkpoint { origin: "regent/ab/0000".into(), size: 42, root: Digest::compute(b"root") }
    }

    #[test]
    fn a_signed_checkpoint_opens_with_its_key_alone() {
        let note = checkpoint().sign(&key());
        assert_eq!(Checkpoint::open(&note, &[key().public()]).unwrap(), (checkpoint(), key().public()));
        let other = LedgerKey::from_seed(&[2; 32]).public();
        assert_eq!(Checkpoint::open(&note, &[other]), Err(NoteError::Unsigned));
    }

    #[test]
    fn parses_the_c2sp_example_note() {
        let note = "Ognuno sta solo sul cuor della terra\ntrafitto da un raggio di sole:\n\ned è subito sera.\n\n\
            — quasimodo.example/salvatore NnugSzTjtVAewIS+Z/iJhUPeFDkO/5QQ2i5ddnGITLlC+EhfLW9oJKONrMouFSQU0xMcXxj99ihAQwaqP3ZekRwNtIc=\n";
        let note = Note::parse(note).unwrap();
        assert!(note.unverified_text().ends_with("sera.\n"));
        assert_eq!(note.signatures.len(), 1);
        assert_eq!(note.signatures[0].signature.len(), 64);
    }

    #[test]
    fn adv_092_signature_lines_follow_the_c2sp_rules() {
        let good = checkpoint().sign(&key());
        let keys = [key().public()];
        let other = checkpoint().sign(&LedgerKey::from_seed(&[2; 32]));
        let (_, other_line) = other.rsplit_once("\n\n").unwrap();
        let (_, line) = good.rsplit_once("\n\n").unwrap();
        assert!(Checkpoint::open(&format!("{good}{other_line}"), &keys).is_ok(), "unknown key: ignored");
        assert!(Checkpoint::open(&format!("{good}{line}"), &keys).is_ok(), "twice the same, both good");
        let bad_line = Note::sign("other\n", "regent/ab/0000", &key());
        let (_, bad_line) = bad_line.rsplit_once("\n\n").unwrap();
        assert_eq!(Checkpoint::open(&format!("{good}{bad_line}"), &keys), Err(NoteError::BadSignature));
        let renamed = good.replace("— regent/ab/0000", "— regent/ab/0001");
        assert_eq!(Checkpoint::open(&renamed, &keys), Err(NoteError::Unsigned));
        let wrong_origin = Checkpoint { origin: "regent/ab/0001".into(), ..checkpoint() }.text();
        let note = Note::sign(&wrong_origin, "regent/ab/0000", &key());
        assert_eq!(Checkpoint::open(&note, &keys), Err(NoteError::Unsigned), "the name must be the origin");
    }

    #[test]
    fn adv_092_rejects_malformed_notes() {
        let good = checkpoint().sign(&key());
        let cases = [
            good.replace("\n42\n", "\n042\n"),
            good.replace("\n42\n", "\n+42\n"),
            good.replace("\n42\n", "\n\n"),
            good.replace("\n42\n", "\n18446744073709551616\n"),
            good.replace('—', "-"),
            good.replace("42\n", "42\r\n"),
            good.trim_end().to_owned(),
            good.replace("=\n\n", "\n\n"),
            format!("{good}\n"),
            "\n\n— a AAAA\n".to_owned(),
            String::new(),
        ];
        for note in cases {
            assert!(Checkpoint::open(&note, &[key().public()]).is_err(), "{note:?}");
        }
        assert!(Checkpoint::parse("o\n0\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n").is_ok());
    }

    proptest! {
        #[test]
        fn the_note_parser_never_panics(text in "[—a-zA-Z0-9+/= \n]{0,200}") {
            if let Ok(note) = Note::parse(&text) {
                prop_assert!(note.verify("a", &[key().public()]).is_err());
                let _read = Checkpoint::parse(note.unverified_text());
            }
        }

        #[test]
        fn any_changed_byte_invalidates_a_signed_checkpoint(at in 0usize..200, to in any::<char>()) {
            let good = checkpoint().sign(&key());
            let mut chars: Vec<char> = good.chars().collect();
            let at = at % chars.len();
            prop_assume!(chars[at] != to);
            chars[at] = to;
            let bad: String = chars.into_iter().collect();
            prop_assert!(Checkpoint::open(&bad, &[key().public()]).is_err());
        }
    }
}
