//! Finds the few entries of a lane that contain a text, without parsing the others.

use memchr::memmem;

use crate::lane::SEGMENT_BYTES_CAP;
use crate::layout::{segment_path, segments};
use crate::line::Line;
use crate::read::{ProofState, ReadError, Reader, ends};
use crate::{Entry, LaneId};

/// Bytes to search at once. Lines are only split in a piece that contains a match.
const PIECE_BYTES: usize = 64 << 10;
/// Bytes of a segment to read at once when testing for a match. The window fits the processor's cache: copying a segment through memory
/// takes longer than searching it, and most segments contain no match.
const WINDOW_BYTES: u64 = 128 << 10;

impl Reader {
    /// Calls the visitor with each entry of a lane whose line contains one of these texts, in order. The visitor may add texts to search
    /// for from there on, or remove some.
    ///
    /// The search doesn't verify the chain: opening the ledger and `verify` do.
    pub fn search(
        &self,
        lane: LaneId,
        texts: &mut Vec<String>,
        show: impl FnMut(&Entry, &mut Vec<String>),
    ) -> Result<(), ReadError> {
        self.search_since(lane, 0, texts, show)
    }

    /// [`Reader::search`] from a position on.
    pub fn search_since(
        &self,
        lane: LaneId,
        seq: u64,
        texts: &mut Vec<String>,
        mut show: impl FnMut(&Entry, &mut Vec<String>),
    ) -> Result<(), ReadError> {
        let settled = self.settled()?.get(&lane).copied();
        let mut bytes = Vec::new();
        let firsts = segments(self.storage.as_ref(), lane)?;
        let position = firsts.partition_point(|first| *first <= seq).saturating_sub(1);
        for first in firsts.into_iter().skip(position) {
            let file = segment_path(lane, first);
            if !self.mentions(&file, texts, &mut bytes)? {
                continue;
            }
            self.storage.read(&file, 0, SEGMENT_BYTES_CAP, &mut bytes)?;
            let (proven_bytes, unvouched) = ends(&bytes);
            let mut at = 0;
            while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
                let end = memchr::memchr(b'\n', rest.get(PIECE_BYTES..).unwrap_or_default());
                let end = end.map_or(rest.len(), |newline| PIECE_BYTES + newline + 1);
                let piece = rest.get(..end).unwrap_or_default();
                let mut line_at = at;
                at += end;
                if !contains(piece, texts) {
                    continue;
                }
                for text in piece.split_inclusive(|byte| *byte == b'\n') {
                    let here = line_at;
                    line_at += text.len();
                    let Some(line) = contains(text, texts).then(|| Line::parse(text)).flatten() else {
                        continue;
                    };
                    let ends = ProofState { settled, proven: here < proven_bytes, unvouched: &unvouched };
                    let entry = ends.entry(lane, &line, line.hash()).ok_or_else(|| ReadError::Broken {
                        file: file.clone(),
                        line: memchr::memchr_iter(b'\n', bytes.get(..here).unwrap_or_default()).count()
                            as u64
                            + 1,
                    })?;
                    if entry.seq >= seq {
                        show(&entry, texts);
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether a segment contains one of these texts.
    fn mentions(&self, file: &str, texts: &[String], window: &mut Vec<u8>) -> Result<bool, ReadError> {
        let longest = texts.iter().map(String::len).max().unwrap_or(0) as u64;
        if longest > WINDOW_BYTES / 2 {
            return Ok(true);
        }
        let mut from = 0;
        loop {
            self.storage.read(file, from, WINDOW_BYTES, window)?;
            if contains(window, texts) {
                return Ok(true);
            }
            if (window.len() as u64) < WINDOW_BYTES {
                return Ok(false);
            }
            // A match may span two windows.
            from += WINDOW_BYTES - longest;
        }
    }

    /// Whether a lane's own writer abandoned it. Calls that began there may have ended in another lane.
    pub fn was_left(&self, lane: LaneId) -> Result<bool, ReadError> {
        Ok(self.settled()?.get(&lane).is_some_and(|settled| settled.refused))
    }
}

fn contains(bytes: &[u8], texts: &[String]) -> bool {
    texts.iter().any(|text| memmem::find(bytes, text.as_bytes()).is_some())
}
