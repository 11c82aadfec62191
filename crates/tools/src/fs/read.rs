//! `fs.read`: the content of a file.

use std::io::{Read as _, Seek as _, SeekFrom};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use regent_kernel::{
    Access, ArgumentKind, Digest, Failure, RawOutput, SideEffect, Tier, ToolSpec, Workspace,
};
use regent_kernel::{Permit, tier};
use serde::Deserialize;
use serde_json::json;

use super::content_is;
use crate::confidentiality::{WORKSPACE_FILE, label_of};
use crate::manifest::{INTEGER_MAX, built_in, capabilities, integer, kinds, object, path};
use crate::output::{Driven, Room, arguments, blocking, io_failure, path_failure};

const BYTES_DEFAULT: u64 = 256 << 10;
const BYTES_MAX: u64 = 8 << 20;

pub(crate) fn spec() -> ToolSpec {
    ToolSpec {
        name: "fs.read".to_owned(),
        description: "Read a file. Text comes back as it is; if not all of it fits, a last line in square brackets says where to \
                      go on. What isn't UTF-8, or is asked for so, comes back as JSON with `base64`."
            .to_owned(),
        input: object(
            &["path"],
            json!({
                "path": path("the file"),
                "offset": integer(0, INTEGER_MAX, "the byte to start at; 0 if absent"),
                "bytes_max": integer(1, BYTES_MAX, "how much to return at most; 262144 if absent"),
                "encoding": {"enum": ["auto", "base64"], "description": "`base64` always gives JSON; `auto` if absent"},
            }),
        ),
        arguments: kinds([("/path", ArgumentKind::Path(Access::Read))]),
        capabilities: capabilities(&["file.read"]),
        effect: SideEffect::Read,
        idempotent: true,
        reversible: true,
        tiers: vec![Tier::Host],
        output: WORKSPACE_FILE,
        ..built_in()
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Args<'a> {
    path: &'a str,
    #[serde(default)]
    offset: u64,
    bytes_max: Option<u64>,
    #[serde(default)]
    encoding: Encoding,
}

/// How the content comes back. Programs want one form whatever a file holds; models want text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    #[default]
    Auto,
    Base64,
}

pub(crate) async fn run(permit: &Permit<'_, tier::Host>) -> Driven<RawOutput> {
    let Args { path, offset, bytes_max, encoding } = arguments(permit)?;
    let room = Room::of(permit).bytes_left() as u64;
    let bytes_max = bytes_max.unwrap_or(BYTES_DEFAULT).min(room);
    let (workspace, place) = (permit.workspace().clone(), path.to_owned());
    let part = blocking(permit, move |_| read_part(&workspace, &place, offset, bytes_max)).await??;
    let whole = (part.offset == 0 && !part.more).then(|| Digest::of(&part.content));
    let output = part.into_output(room, encoding).with_label(label_of(path));
    Ok(match whole {
        Some(sha256) => output.with_obtained(content_is(&sha256)),
        None => output,
    })
}

/// A piece of a file.
#[derive(Debug, PartialEq, Eq)]
struct Part {
    content: Vec<u8>,
    offset: u64,
    /// There is more after it.
    more: bool,
    /// The size of the file, as far as it says (files of `/proc` say 0).
    bytes: u64,
}

fn read_part(workspace: &Workspace, path: &str, offset: u64, bytes_max: u64) -> Result<Part, Failure> {
    let mut file = workspace.open_read(path).map_err(|error| path_failure(path, &error))?;
    let broken = |error: std::io::Error| io_failure(path, &error);
    let bytes = file.metadata().map_err(broken)?.len();
    if offset > 0 {
        file.seek(SeekFrom::Start(offset)).map_err(broken)?;
    }
    let mut content = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut content).map_err(broken)?;
    let most = usize::try_from(bytes_max).unwrap_or(usize::MAX);
    let more = content.len() > most;
    content.truncate(most);
    Ok(Part { content, offset, more, bytes })
}

impl Part {
    fn into_output(mut self, room: u64, encoding: Encoding) -> RawOutput {
        if self.more && encoding == Encoding::Auto {
            self.cut_at_character();
        }
        if encoding == Encoding::Base64 || std::str::from_utf8(&self.content).is_err() {
            // Base64 needs a third more room.
            let most = usize::try_from(room / 4 * 3).unwrap_or(usize::MAX);
            self.more |= self.content.len() > most;
            self.content.truncate(most);
            let next = self.more.then(|| self.next());
            let base64 = STANDARD.encode(&self.content);
            return RawOutput::json(
                &json!({"base64": base64, "offset": self.offset, "bytes": self.bytes, "next_offset": next}),
            );
        }
        if self.more {
            let next = self.next();
            let mark = format!("\n[cut at byte {next} of {}; read on with \"offset\": {next}]", self.bytes);
            self.content.extend_from_slice(mark.as_bytes());
        }
        RawOutput::new(self.content)
    }

    fn next(&self) -> u64 {
        self.offset.saturating_add(self.content.len() as u64)
    }

    /// A cut in the middle of a character would make text look like bytes.
    fn cut_at_character(&mut self) {
        if let Err(error) = std::str::from_utf8(&self.content)
            && error.error_len().is_none()
            && error.valid_up_to() > 0
        {
            self.content.truncate(error.valid_up_to());
        }
    }
}
