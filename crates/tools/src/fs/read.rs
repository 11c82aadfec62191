//! `fs.read`: the content of a file.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use regent_kernel::{Digest, FileState, RawOutput, ToolFailure, Workspace, label_of_path};
use serde::Deserialize;
use serde_json::json;

use super::content_is;
use crate::confidentiality::WORKSPACE_FILE;
use crate::manifest::INTEGER_MAX;
use crate::output::{OutputRoom, failure, io_failure, on_files, path_failure};
use crate::seam::{self, SEAM_BYTES};
use crate::{Context, ToolError, tool};

const BYTES_DEFAULT: u64 = 256 << 10;
const BYTES_MAX: u64 = 8 << 20;

/// How the content comes back. Programs want one form whatever a file holds; models want text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    #[default]
    Auto,
    Base64,
}

/// Read a file. Text comes back as it is; if not all of it fits, a last line in square brackets says where to go on. What isn't UTF-8, or
/// is asked for so, comes back as JSON with `base64`.
///
/// - path: the file
/// - offset: the byte to start at; 0 if absent
/// - bytes_max: how much to return at most; 262144 if absent
/// - encoding: `base64` always gives JSON; `auto` if absent
#[tool(
    name = "fs.read",
    effect = "read",
    capabilities = ["file.read"],
    idempotent,
    reversible,
    output = WORKSPACE_FILE
)]
pub(crate) async fn read(
    #[arg(path = "read")] path: &str,
    #[schemars(range(min = 0, max = INTEGER_MAX))] offset: Option<u64>,
    #[schemars(range(min = 1, max = BYTES_MAX))] bytes_max: Option<u64>,
    #[arg(schema = json!({"enum": ["auto", "base64"]}))] encoding: Option<Encoding>,
    permit: &Context<'_>,
) -> Result<RawOutput, ToolError> {
    let (offset, encoding) = (offset.unwrap_or_default(), encoding.unwrap_or_default());
    let room = OutputRoom::from_permit(permit).bytes_left() as u64;
    let bytes_max = bytes_max.unwrap_or(BYTES_DEFAULT).min(room);
    let place = path.to_owned();
    let read = on_files(permit, move |workspace| read_part(workspace, &place, offset, bytes_max));
    let (mut part, state) = read.await??;
    let is_text = part.settle(room, encoding);
    part.keep_secrets_whole(|bytes| permit.scrub(bytes))?;
    let whole = (part.offset == 0 && !part.more()).then(|| Digest::compute(part.content()));
    let output = part.into_output(is_text).with_label(label_of_path(path));
    let output = output.with_read(vec![(path.to_owned(), state)]);
    Ok(match whole {
        Some(sha256) => output.with_obtained(content_is(&sha256)),
        None => output,
    })
}

/// A piece of a file, and what stands around it.
#[derive(Debug, PartialEq, Eq)]
struct Part {
    window: Vec<u8>,
    /// The piece within the window.
    piece: Range<usize>,
    /// Where the piece begins in the file.
    offset: u64,
    /// The size of the file, as far as it says (files of `/proc` say 0).
    bytes: u64,
}

fn read_part(
    workspace: &Workspace,
    path: &str,
    offset: u64,
    bytes_max: u64,
) -> Result<(Part, FileState), ToolFailure> {
    let mut file = workspace.open_read(path).map_err(|error| path_failure(path, &error))?;
    let state = FileState::of_file(&file).map_err(|error| path_failure(path, &error))?;
    let broken = |error: std::io::Error| io_failure(path, &error);
    let bytes = file.metadata().map_err(broken)?.len();
    let before = offset.min(SEAM_BYTES as u64);
    if offset > 0 {
        file.seek(SeekFrom::Start(offset.saturating_sub(before))).map_err(broken)?;
    }
    let mut window = Vec::new();
    let bytes_read = before.saturating_add(bytes_max).saturating_add(SEAM_BYTES as u64);
    file.take(bytes_read).read_to_end(&mut window).map_err(broken)?;
    let start = usize::try_from(before).unwrap_or(usize::MAX).min(window.len());
    let most = usize::try_from(bytes_max).unwrap_or(usize::MAX);
    let piece = start..start.saturating_add(most).min(window.len());
    Ok((Part { window, piece, offset, bytes }, state))
}

impl Part {
    fn content(&self) -> &[u8] {
        self.window.get(self.piece.clone()).unwrap_or_default()
    }

    /// There is more after it.
    fn more(&self) -> bool {
        self.piece.end < self.window.len()
    }

    fn next(&self) -> u64 {
        self.offset.saturating_add(self.content().len() as u64)
    }

    fn cut_to(&mut self, bytes: usize) {
        self.piece.end = self.piece.end.min(self.piece.start.saturating_add(bytes));
    }

    /// Cuts it to what fits; says whether it comes back as text.
    fn settle(&mut self, room: u64, encoding: Encoding) -> bool {
        if self.more() && encoding == Encoding::Auto {
            self.cut_at_character();
        }
        let is_text = encoding == Encoding::Auto && std::str::from_utf8(self.content()).is_ok();
        if !is_text {
            // Base64 needs a third more room.
            self.cut_to(usize::try_from(room / 4 * 3).unwrap_or(usize::MAX));
        }
        is_text
    }

    /// Refuses a piece that begins within a value that was revealed, and ends one earlier that ends there.
    fn keep_secrets_whole(&mut self, scrub: impl Fn(&mut Vec<u8>) -> bool) -> Result<(), ToolFailure> {
        let refused = |next: u64| {
            let message = format!(
                "byte {next} is within a secret, which is shown masked and as a whole only: choose another `offset`"
            );
            failure("fs.secret", message)
        };
        if self.offset > 0 && seam::is_within_secret(&self.window, self.piece.start, &scrub) {
            return Err(refused(self.offset));
        }
        if self.more() {
            let end = seam::cut_outside_secrets(&self.window, self.piece.clone(), &scrub);
            let end = end.ok_or_else(|| refused(self.next()))?;
            self.cut_to(end.saturating_sub(self.piece.start));
        }
        Ok(())
    }

    fn into_output(mut self, is_text: bool) -> RawOutput {
        let (more, next) = (self.more(), self.next());
        if !is_text {
            let base64 = STANDARD.encode(self.content());
            let next = more.then_some(next);
            return RawOutput::json(
                &json!({"base64": base64, "offset": self.offset, "bytes": self.bytes, "next_offset": next}),
            );
        }
        self.window.truncate(self.piece.end);
        let mut content = self.window.split_off(self.piece.start);
        if more {
            let mark = format!("\n[cut at byte {next} of {}; read on with \"offset\": {next}]", self.bytes);
            content.extend_from_slice(mark.as_bytes());
        }
        RawOutput::new(content)
    }

    /// A cut in the middle of a character would make text look like bytes.
    fn cut_at_character(&mut self) {
        if let Err(error) = std::str::from_utf8(self.content())
            && error.error_len().is_none()
            && error.valid_up_to() > 0
        {
            self.cut_to(error.valid_up_to());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"Zq9-TOPSECRET/val+42==xx";

    /// Like a scrubber that knows one value.
    fn scrub(bytes: &mut Vec<u8>) -> bool {
        let Some(at) = bytes.windows(SECRET.len()).position(|part| part == SECRET) else { return false };
        bytes.splice(at..at + SECRET.len(), *b"[secret:tok]");
        true
    }

    /// What `fs.read` gives of a file: the piece, or that it is refused.
    fn piece_of(file: &[u8], offset: usize, bytes_max: usize) -> Option<Vec<u8>> {
        let start = offset.min(SEAM_BYTES);
        let window = file[offset - start..file.len().min(offset + bytes_max + SEAM_BYTES)].to_vec();
        let piece = start..window.len().min(start + bytes_max);
        let mut part = Part { window, piece, offset: offset as u64, bytes: file.len() as u64 };
        part.settle(1 << 20, Encoding::Auto);
        part.keep_secrets_whole(scrub).ok().map(|()| part.content().to_vec())
    }

    #[test]
    fn h2_a_cut_never_goes_through_a_secret() {
        let file = [b"before ".as_slice(), SECRET, b" after"].concat();
        let within = |at: usize| (8..7 + SECRET.len()).contains(&at);
        for offset in 0..file.len() {
            for bytes_max in 1..=file.len() {
                let end = (offset + bytes_max).min(file.len());
                let given = piece_of(&file, offset, bytes_max);
                let is_cut = within(end);
                assert_eq!(
                    given.is_none(),
                    within(offset) || (is_cut && offset >= 7),
                    "{offset} {bytes_max}"
                );
                let given = given.unwrap_or_default();
                assert!(!is_cut || file[offset..7.max(offset)] == given, "{offset} {bytes_max}");
            }
        }
    }

    #[test]
    fn h2_a_long_piece_ends_before_a_secret_that_it_would_cut() {
        let mut file = vec![b'a'; 100_000];
        file.extend_from_slice(SECRET);
        file.extend(vec![b'b'; 50_000]);
        let given = piece_of(&file, 0, 100_005).unwrap();
        assert_eq!(given.len(), 100_000);
        assert_eq!(piece_of(&file, 0, 110_000).unwrap().len(), 110_000);
        assert_eq!(piece_of(&vec![b'a'; 100_000], 70_000, 10).unwrap(), b"aaaaaaaaaa");
    }
}
