//! The messages that were typed in a project, for the next conversation: a private file in the state folder, a JSON string per line.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::paths::write_private;
use crate::secrets;

const MESSAGES_MAX: usize = 500;
/// A longer one isn't kept.
const MESSAGE_BYTES_MAX: usize = 8 << 10;
const FILE_BYTES_MAX: u64 = 8 << 20;

/// Where they are kept.
#[derive(Debug)]
pub(super) struct History {
    path: PathBuf,
}

impl History {
    /// In the folder that a project has in the state folder.
    pub(super) fn new(folder: &Path) -> Self {
        Self { path: folder.join("chat-history") }
    }

    /// The messages, the oldest first. What can't be read isn't there.
    pub(super) fn load(&self) -> Vec<String> {
        let mut text = String::new();
        let read = std::fs::File::open(&self.path)
            .and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text));
        match read {
            Ok(_) => text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect(),
            Err(_) => Vec::new(),
        }
    }

    /// Adds one, unless it holds a secret or is long.
    pub(super) fn add(&self, message: &str) -> Result<(), Failure> {
        if message.len() > MESSAGE_BYTES_MAX || secrets::scrubbed(message) != message {
            return Ok(());
        }
        // Another conversation may have added to it.
        let mut messages = self.load();
        if messages.last().is_some_and(|last| last == message) {
            return Ok(());
        }
        messages.push(message.to_owned());
        let skipped = messages.len().saturating_sub(MESSAGES_MAX);
        let lines: Vec<String> = messages
            .iter()
            .skip(skipped)
            .map(|one| serde_json::Value::from(one.as_str()).to_string())
            .collect();
        write_private(&self.path, (lines.join("\n") + "\n").as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn messages_are_kept_for_their_owner_alone_and_long_ones_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let history = History::new(folder.path());
        assert!(history.load().is_empty());
        for message in ["one", "two\nlines \u{1b}", "two\nlines \u{1b}", &"x".repeat(MESSAGE_BYTES_MAX + 1)] {
            history.add(message).unwrap();
        }
        assert_eq!(history.load(), ["one", "two\nlines \u{1b}"]);
        let mode = std::fs::metadata(&history.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        for number in 0..MESSAGES_MAX {
            history.add(&number.to_string()).unwrap();
        }
        assert_eq!((history.load().len(), history.load()[0].as_str()), (MESSAGES_MAX, "0"));
    }
}
