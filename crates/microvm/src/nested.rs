//! What a guest asks for, as governed calls: one ask, one call on the one path (more only where a file is larger than one can carry).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use regent_kernel::{Label, Op, Outcome, Permit, Reply, Status, ToolCall, tier};
use rustix::io::Errno;
use serde_json::{Value, json};

use super::link::{About, GuestFileKind, GuestReply, GuestRequest, Save, WriteMode};

/// What one read carries; base64 of it must fit into a call's usual output.
const PART_BYTES: u64 = 6 << 20;
/// The largest file that a guest can read.
const FILE_BYTES_MAX: usize = 64 << 20;
/// Names of one folder.
const NAMES_MAX: u64 = 20_000;
const NOTES_MAX: usize = 64;

/// Makes a guest's calls, and keeps what the receipt must say of them.
#[derive(Debug)]
pub(super) struct Nested<'a, 's> {
    permit: &'a Permit<'s, tier::Microvm>,
    /// The labels of everything that the guest has read, joined.
    pub(super) label: Option<Label>,
    /// What was refused, and why.
    pub(super) notes: Vec<String>,
    pub(super) calls: u64,
}

impl<'a, 's> Nested<'a, 's> {
    pub(super) fn new(permit: &'a Permit<'s, tier::Microvm>) -> Self {
        Self { permit, label: None, notes: Vec::new(), calls: 0 }
    }

    /// Does what a guest asks for, if policy allows it.
    pub(super) async fn answer(&mut self, ask: GuestRequest) -> Result<GuestReply, Errno> {
        match ask {
            GuestRequest::Read(path) => self.read(&path).await.map(GuestReply::Content),
            GuestRequest::Stat(path) => self.stat(&path).await.map(GuestReply::About),
            GuestRequest::List(path) => self.list(&path).await.map(GuestReply::Names),
            GuestRequest::Write(save) => self.write(&save).await.map(|()| GuestReply::Saved),
        }
    }

    /// A whole file. Of one that changes between its parts, nothing is believed.
    pub(super) async fn read(&mut self, path: &str) -> Result<Vec<u8>, Errno> {
        let (mut content, mut size): (Vec<u8>, Option<u64>) = (Vec::new(), None);
        loop {
            let offset = content.len() as u64;
            let args = json!({"path": path, "offset": offset, "bytes_max": PART_BYTES, "encoding": "base64"});
            let said = self.json("fs.read", args, path).await?;
            let text = said.get("base64").and_then(Value::as_str).ok_or(Errno::IO)?;
            content.extend(STANDARD.decode(text).map_err(|_| Errno::IO)?);
            let bytes = said.get("bytes").and_then(Value::as_u64);
            if size.is_some() && size != bytes {
                return Err(Errno::STALE);
            }
            size = bytes;
            if content.len() > FILE_BYTES_MAX {
                return Err(Errno::FBIG);
            }
            match said.get("next_offset").and_then(Value::as_u64) {
                Some(next) if next == content.len() as u64 && next > offset => {}
                Some(_) => return Err(Errno::IO),
                None => return Ok(content),
            }
        }
    }

    async fn stat(&mut self, path: &str) -> Result<About, Errno> {
        let said = self.json("fs.stat", json!({"path": path}), path).await?;
        let number = |name: &str| said.get(name).and_then(Value::as_u64).unwrap_or(0);
        let mode =
            said.get("mode").and_then(Value::as_str).and_then(|mode| u32::from_str_radix(mode, 8).ok());
        let kind = said.get("kind").and_then(Value::as_str).map_or(GuestFileKind::Device, kind_of);
        let (bytes, modified_ms) = (number("bytes"), number("modified_ms"));
        Ok(About { kind, bytes, mode: mode.unwrap_or(0o644) & 0o777, modified_ms })
    }

    async fn list(&mut self, path: &str) -> Result<Vec<(String, GuestFileKind)>, Errno> {
        let said = self.json("fs.list", json!({"path": path, "entries_max": NAMES_MAX}), path).await?;
        if said.get("more").and_then(Value::as_bool) == Some(true) {
            self.note(format!("listing `{path}`: truncated"));
        }
        let entries = said.get("entries").and_then(Value::as_array).ok_or(Errno::IO)?;
        // A name that isn't text is listed escaped, and can't be opened.
        let plain = entries.iter().filter(|entry| entry.get("escaped").is_none());
        let names = plain.filter_map(|entry| {
            let path = entry.get("path")?.as_str()?;
            let name = path.rsplit('/').next().unwrap_or(path);
            Some((name.to_owned(), kind_of(entry.get("kind")?.as_str()?)))
        });
        Ok(names.collect())
    }

    async fn write(&mut self, save: &Save) -> Result<(), Errno> {
        let mode = match save.how {
            WriteMode::Create => "create",
            WriteMode::Replace => "replace",
            WriteMode::Append => "append",
        };
        // Text as text, so that it is readable in the ledger.
        let args = match core::str::from_utf8(&save.content) {
            Ok(text) => json!({"path": save.path, "content": text, "mode": mode}),
            Err(_) => {
                json!({"path": save.path, "content": STANDARD.encode(&save.content), "encoding": "base64", "mode": mode})
            }
        };
        self.call("fs.write", args, &save.path).await.map(drop)
    }

    async fn json(&mut self, tool: &str, args: Value, path: &str) -> Result<Value, Errno> {
        let outcome = self.call(tool, args, path).await?;
        serde_json::from_slice(outcome.output.bytes()).map_err(|_| Errno::IO)
    }

    /// One call on the call path. A denial is `EACCES` for the guest; the receipt has the reason.
    async fn call(&mut self, tool: &str, args: Value, path: &str) -> Result<Outcome, Errno> {
        self.calls = self.calls.saturating_add(1);
        let op = Op::RunTool(ToolCall { tool: tool.to_owned(), args });
        let shown = path.escape_debug();
        match self.permit.syscall(op).await {
            Ok(Reply::Done(outcome)) => {
                let label = outcome.output.label();
                self.label = Some(self.label.map_or(label, |before| before.join(label)));
                match &outcome.status {
                    Status::Ok => Ok(outcome),
                    Status::Failed(failure) => {
                        let errno = errno_of(&failure.code);
                        if !matches!(errno, Errno::NOENT | Errno::EXIST | Errno::ISDIR | Errno::NOTDIR) {
                            self.note(format!("{tool} `{shown}`: {}", failure.message));
                        }
                        Err(errno)
                    }
                    Status::TimedOut | Status::Cancelled | Status::Faulted(_) => Err(Errno::IO),
                }
            }
            Ok(Reply::Denied(denial)) => {
                self.note(format!("{tool} `{shown}`: denied: {}", denial.reason));
                Err(Errno::ACCESS)
            }
            Ok(Reply::Pending(ticket)) => {
                self.note(format!("{tool} `{shown}`: needs an approval: {}", ticket.id));
                Err(Errno::ACCESS)
            }
            Err(fault) => {
                self.note(format!("{tool} `{shown}`: {fault}"));
                Err(Errno::IO)
            }
        }
    }

    fn note(&mut self, note: String) {
        if self.notes.len() < NOTES_MAX && !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }
}

fn kind_of(word: &str) -> GuestFileKind {
    match word {
        "file" => GuestFileKind::File,
        "folder" => GuestFileKind::Folder,
        "link" => GuestFileKind::Link,
        _special => GuestFileKind::Device,
    }
}

/// What Linux would say to a tool's failure.
fn errno_of(code: &str) -> Errno {
    match code {
        "fs.not_found" => Errno::NOENT,
        "fs.exists" => Errno::EXIST,
        "fs.is_folder" => Errno::ISDIR,
        "fs.not_folder" => Errno::NOTDIR,
        "fs.full" => Errno::NOSPC,
        "fs.too_large" => Errno::FBIG,
        "path.links" => Errno::LOOP,
        "fs.failed" => Errno::IO,
        // Everything else is a way of saying that this path is not for the guest.
        _refused => Errno::ACCESS,
    }
}
