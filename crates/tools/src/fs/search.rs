//! `fs.search`: lines that match a pattern, in a file or in all files of a folder.

use std::collections::BTreeMap;

use regent_kernel::{
    FileKind, FileState, PathPattern, RawOutput, StopFlag, ToolFailure, Workspace, label_of_path,
};
use regex::bytes::{Regex, RegexBuilder};
use serde_json::{Value, json};

use super::{Below, Met, Tour, elsewhere};
use crate::confidentiality::WORKSPACE_FILE;
use crate::output::{DriverResult, OutputRoom, blocking, failure, path_failure};
use crate::{Context, ToolError, tool};

const MATCHES_DEFAULT: usize = 200;
const MATCHES_MAX: u64 = 5000;
const PATTERN_BYTES_MAX: u64 = 1024;
/// A compiled pattern may not need more memory.
const PATTERN_COMPILED_BYTES_MAX: usize = 1 << 20;
/// Larger files are not source or text that someone reads.
const SEARCHED_BYTES_MAX: u64 = 4 << 20;
/// A NUL in here makes a file binary.
const SNIFFED_BYTES: usize = 8 << 10;
/// How much of a line is shown.
const LINE_BYTES_MAX: usize = 400;
/// Files that one search opens at most.
const FILES_MAX: usize = 50_000;

/// Find lines that match a regular expression in a file or in all files below a folder. Linear time: no look-around, no back-references.
/// Binary files, files over 4 MiB and `.git` are skipped; files that policy doesn't let the caller search are left out and counted.
/// Returns JSON: matches (path, line, text), more, left_out, skipped.
///
/// - path: the file or folder; `.` is the workspace
/// - pattern: the regular expression
/// - glob: only files whose path or name matches, e.g. `*.rs`
/// - matches_max: how many at most; 200 if absent
// Pattern before path: a small model that must name the path first invents one.
#[tool(
    name = "fs.search",
    effect = "read",
    capabilities = ["file.read", "file.search"],
    idempotent,
    reversible,
    output = WORKSPACE_FILE
)]
pub(crate) async fn search(
    #[arg(schema = json!({"type": "string", "minLength": 1, "maxLength": PATTERN_BYTES_MAX}))] pattern: &str,
    #[arg(path = "read")] path: &str,
    #[arg(schema = json!({"type": "string", "minLength": 1, "maxLength": 256}))] glob: Option<String>,
    #[schemars(range(min = 1, max = MATCHES_MAX))] matches_max: Option<usize>,
    permit: &Context<'_>,
) -> Result<RawOutput, ToolError> {
    let mut search = TextSearch::new(pattern, glob.as_deref(), matches_max, OutputRoom::from_permit(permit))?;
    let found = permit.workspace().stat(path).map_err(|error| path_failure(path, &error))?;
    if found.kind == FileKind::File {
        let file = path.to_owned();
        search = in_files(permit, search, vec![file]).await?;
        return Ok(search.into_output(path, 0));
    }
    let mut tour = Tour::new(path);
    while let Some(folder) = tour.next(permit, Below::Enter).await? {
        let mut files = Vec::new();
        for met in folder.iter().filter(|met| search.wants(met)) {
            if permit.would_allow(elsewhere(permit, &met.path)).await {
                files.push(met.path.clone());
            } else {
                tour.left_out += 1;
            }
        }
        if !files.is_empty() {
            search = in_files(permit, search, files).await?;
        }
        if search.more || search.stopped {
            break;
        }
    }
    Ok(search.into_output(path, tour.left_out))
}

async fn in_files(
    permit: &Context<'_>,
    mut search: TextSearch,
    files: Vec<String>,
) -> DriverResult<TextSearch> {
    let (workspace, scrub) = (permit.workspace().clone(), permit.scrubber());
    let search = blocking(permit, move |stop| {
        for file in &files {
            if search.more || stop.is_pulled() {
                search.stopped = stop.is_pulled();
                break;
            }
            search.file(&workspace, file, &scrub, stop);
        }
        search
    })
    .await?;
    Ok(search)
}

#[derive(Debug)]
struct TextSearch {
    pattern: Regex,
    glob: Option<PathPattern>,
    matches_max: usize,
    room: OutputRoom,
    matches: Vec<Value>,
    /// The files with matches, to tell how secret the result is, and who wrote what is in it.
    matched: BTreeMap<String, FileState>,
    label: regent_kernel::Label,
    files: usize,
    /// Binary, too large, or not readable.
    skipped: u64,
    more: bool,
    /// The call was cancelled.
    stopped: bool,
}

impl TextSearch {
    fn new(
        pattern: &str,
        glob: Option<&str>,
        matches_max: Option<usize>,
        room: OutputRoom,
    ) -> Result<Self, ToolFailure> {
        let pattern = RegexBuilder::new(pattern)
            .size_limit(PATTERN_COMPILED_BYTES_MAX)
            .dfa_size_limit(PATTERN_COMPILED_BYTES_MAX)
            .build()
            .map_err(|error| failure("search.pattern", format!("the pattern is not one: {error}")))?;
        let glob = glob
            .map(PathPattern::new)
            .transpose()
            .map_err(|error| failure("search.glob", format!("the glob is not one: {error}")))?;
        Ok(Self {
            pattern,
            glob,
            matches_max: matches_max.unwrap_or(MATCHES_DEFAULT),
            room,
            matches: Vec::new(),
            matched: BTreeMap::new(),
            label: WORKSPACE_FILE,
            files: 0,
            skipped: 0,
            more: false,
            stopped: false,
        })
    }

    /// Whether a thing met on the way is a file that the caller asked for.
    fn wants(&self, met: &Met) -> bool {
        let name = met.path.rsplit('/').next().unwrap_or_default();
        met.item.kind == FileKind::File
            && met.plain
            && self.glob.as_ref().is_none_or(|glob| glob.matches(name) || glob.matches(&met.path))
    }

    fn file(
        &mut self,
        workspace: &Workspace,
        path: &str,
        scrub: &impl Fn(&mut Vec<u8>) -> bool,
        stop: &StopFlag,
    ) {
        if self.files >= FILES_MAX {
            self.more = true;
            return;
        }
        self.files += 1;
        match workspace.read_in_state(path, SEARCHED_BYTES_MAX) {
            Ok((mut content, state)) if !is_binary(&content) => {
                if !lines(&content).any(|line| self.pattern.is_match(line)) {
                    return;
                }
                // No pattern finds a secret: what matches, and where a line is cut, would tell it piece by piece.
                scrub(&mut content);
                self.content((path, state), &content, stop);
            }
            Ok(_) | Err(_) => self.skipped += 1,
        }
    }

    fn content(&mut self, (path, state): (&str, FileState), content: &[u8], stop: &StopFlag) {
        for (number, line) in lines(content).enumerate() {
            if number % 1024 == 0 && stop.is_pulled() {
                self.stopped = true;
                return;
            }
            if !self.pattern.is_match(line) {
                continue;
            }
            let shown = String::from_utf8_lossy(line.get(..LINE_BYTES_MAX).unwrap_or(line));
            let found = json!({"path": path, "line": number + 1, "text": shown});
            if self.matches.len() >= self.matches_max || !self.room.take(&found) {
                self.more = true;
                return;
            }
            self.matches.push(found);
            self.label = self.label.join(label_of_path(path));
            self.matched.insert(path.to_owned(), state);
        }
    }

    fn into_output(self, path: &str, left_out: u64) -> RawOutput {
        let result = json!({
            "path": path,
            "matches": self.matches,
            "more": self.more || self.stopped,
            "left_out": left_out,
            "skipped": self.skipped,
        });
        RawOutput::json(&result).with_label(self.label).with_read(self.matched.into_iter().collect())
    }
}

fn lines(content: &[u8]) -> impl Iterator<Item = &[u8]> {
    content.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line))
}

fn is_binary(content: &[u8]) -> bool {
    content.iter().take(SNIFFED_BYTES).any(|&byte| byte == 0)
}
