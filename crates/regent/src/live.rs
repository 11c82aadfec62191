//! A program's output, written to our own stdout and stderr as it comes.
//!
//! One chunk at a time, on its own thread: a slow reader slows the program down, and signals are still handled meanwhile. When
//! the reader of one of the two is gone, the program gets that from its own pipe.

use std::io::{ErrorKind, IsTerminal, Write};

use regent_kernel::{Channel, Fault, Host, Op, Principal, Reply};

use crate::codes;
use crate::failure::Failure;
use crate::term;

/// Where a call's output goes while the call runs.
#[derive(Debug)]
pub(crate) struct LiveOutput {
    /// Stdin and stdout are a user's terminal, which a program may be lent.
    lends_terminal: bool,
    stdout: LiveTarget,
    stderr: LiveTarget,
}

#[derive(Debug)]
struct LiveTarget {
    channel: Channel,
    /// Written to a terminal: it must not drive it.
    inert: bool,
    /// By a program that was lent the terminal: the sandbox has filtered what it draws.
    is_drawn: bool,
    /// The beginning of a character whose end hasn't come.
    partial: Vec<u8>,
    /// Something was written, and this was its last byte.
    last: Option<u8>,
    error: Option<std::io::Error>,
}

impl LiveOutput {
    pub(crate) fn new(lends_terminal: bool) -> Self {
        let inert = (std::io::stdout().is_terminal(), std::io::stderr().is_terminal());
        let (stdout, stderr) =
            (LiveTarget::new(Channel::Output, inert.0), LiveTarget::new(Channel::Error, inert.1));
        Self { lends_terminal, stdout, stderr }
    }

    /// Whether something was written: then it is not printed again in the end.
    pub(crate) fn has_begun(&self) -> bool {
        self.stdout.last.is_some() || self.stderr.last.is_some()
    }

    /// Makes a call, writes what comes until no more will come, and says how the call ended.
    pub(crate) async fn pass(&mut self, host: &Host, caller: &Principal, op: Op) -> Result<Reply, Fault> {
        let mut stream = match self.lends_terminal {
            true => host.stream_to_terminal(caller, op),
            false => host.stream(caller, op),
        };
        while let Some(chunk) = stream.next().await {
            // The reply has the whole, too; an empty chunk asks whether the one before is written.
            if chunk.is_whole || chunk.output.bytes().is_empty() {
                continue;
            }
            let target = match chunk.channel {
                Channel::Output => &mut self.stdout,
                Channel::Error | Channel::Reasoning => &mut self.stderr,
            };
            target.is_drawn = chunk.is_drawn;
            if !target.write(chunk.output.into_bytes()).await {
                stream.close(chunk.channel);
            }
        }
        let reply = stream.reply().await;
        self.stdout.finish().await;
        self.stderr.finish().await;
        reply
    }

    /// What went wrong with the writing. A reader that has seen enough (`| head`) is not an error of ours.
    pub(crate) fn written(&mut self) -> Result<(), Failure> {
        match self.stdout.error.take() {
            Some(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(Failure::new(codes::IO, format!("can't write the program's output: {error}")))
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl LiveTarget {
    fn new(channel: Channel, inert: bool) -> Self {
        Self { channel, inert, is_drawn: false, partial: Vec::new(), last: None, error: None }
    }

    /// False when nobody can be reached there any more.
    async fn write(&mut self, bytes: Vec<u8>) -> bool {
        self.last = bytes.last().copied().or(self.last);
        let bytes = if self.inert && !self.is_drawn { self.made_inert(bytes) } else { bytes };
        self.put(bytes).await
    }

    /// A line of ours that follows begins on a line of its own.
    async fn finish(&mut self) {
        if !self.inert || self.is_drawn || self.last.is_none() {
            return;
        }
        let mut rest = term::block_of_bytes(&std::mem::take(&mut self.partial));
        if self.last != Some(b'\n') {
            rest.push('\n');
        }
        self.put(rest.into_bytes()).await;
    }

    fn made_inert(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.splice(0..0, self.partial.drain(..));
        self.partial = bytes.split_off(whole_characters(&bytes));
        term::block_of_bytes(&bytes).into_bytes()
    }

    async fn put(&mut self, bytes: Vec<u8>) -> bool {
        if self.error.is_some() {
            return false;
        }
        let channel = self.channel;
        let written = tokio::task::spawn_blocking(move || match channel {
            Channel::Output => crate::output::write_all(&bytes),
            Channel::Error | Channel::Reasoning => std::io::stderr().lock().write_all(&bytes),
        });
        // Torn down: the process is ending.
        self.error = written.await.ok().and_then(Result::err);
        self.error.is_none()
    }
}

/// How much of it isn't the beginning of a character that goes on.
fn whole_characters(bytes: &[u8]) -> usize {
    // Text that isn't UTF-8 somewhere may still end in the middle of a character, whose first byte is one of the last three.
    let tail = bytes.len().saturating_sub(3);
    let begun = bytes.get(tail..).unwrap_or_default().iter().rposition(|byte| *byte >= 0xc0);
    let goes_on = |at: &usize| {
        let end = std::str::from_utf8(bytes.get(*at..).unwrap_or_default());
        end.is_err_and(|error| error.error_len().is_none())
    };
    begun.map(|at| tail.saturating_add(at)).filter(goes_on).unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_is_not_cut_in_two() {
        for (bytes, whole) in [
            (&b""[..], 0),
            (b"abc", 3),
            ("aé".as_bytes(), 3),
            (b"a\xc3", 1),
            (b"a\xf0\x9f\x98", 1),
            (b"a\xff", 2),
            (b"\xff\xf0\x9f", 1),
            (b"\x80\x80\x80", 3),
        ] {
            assert_eq!(whole_characters(bytes), whole, "{bytes:?}");
        }
    }
}
