//! Reads static ELF programs for x86-64: `ET_EXEC`, and `ET_DYN` without an interpreter. Nothing in the file is believed unchecked.

use super::areas::{Protection, USER_END, USER_START, page_down, page_up};
use super::layout::Packed;

/// Where a program that can be anywhere is put.
const MOVABLE_AT: u64 = 0x5555_5540_0000;
const HEADER_BYTES: usize = 64;
const ENTRY_BYTES: usize = 56;
const SEGMENTS_MAX: u16 = 64;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const PT_PHDR: u32 = 6;

/// Why a file is no program for a microVM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ElfError {
    /// Not one at all, or for another machine.
    #[error("it is not an ELF program for x86-64")]
    NotElf,
    /// It needs libraries, and there are none inside.
    #[error("it is not static: it needs a loader and libraries, which a microVM lacks")]
    NotStatic,
    /// What it says about itself doesn't fit.
    #[error("it is malformed: {0}")]
    Malformed(&'static str),
}

/// A program as its file describes it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Elf<'a> {
    /// Where it begins.
    pub(super) entry: u64,
    /// Its parts.
    pub(super) segments: Vec<ElfSegment<'a>>,
    /// Where its program headers are in memory, and how many there are.
    pub(super) headers: (u64, u64),
    /// The first whole page behind it.
    pub(super) end: u64,
}

/// One part of a program.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ElfSegment<'a> {
    /// Where it goes.
    pub(super) at: u64,
    /// What the file has of it.
    pub(super) content: &'a [u8],
    /// The first and last whole page it touches.
    pub(super) pages: (u64, u64),
    /// What the program may do there.
    pub(super) protection: Protection,
}

/// Reads numbers of a part of the file.
struct ElfFields<'a>(&'a [u8]);

impl ElfFields<'_> {
    fn u16(&self, at: usize) -> Option<u16> {
        Some(u16::from_le_bytes(*self.0.get(at..)?.first_chunk()?))
    }

    fn u32(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(*self.0.get(at..)?.first_chunk()?))
    }

    fn u64(&self, at: usize) -> Option<u64> {
        Some(u64::from_le_bytes(*self.0.get(at..)?.first_chunk()?))
    }
}

const SHORT: ElfError = ElfError::Malformed("a segment is outside the file");
const RANGE: ElfError = ElfError::Malformed("a segment is outside the address space");

/// Reads a program.
pub(super) fn parse(file: &[u8]) -> Result<Elf<'_>, ElfError> {
    let header = file.get(..HEADER_BYTES).map(ElfFields).ok_or(ElfError::NotElf)?;
    // 64 bit, little-endian, version 1.
    if !file.starts_with(b"\x7fELF\x02\x01\x01") || header.u16(18) != Some(62) {
        return Err(ElfError::NotElf);
    }
    let slide = match header.u16(16) {
        Some(2) => 0,
        Some(3) => MOVABLE_AT,
        _ => return Err(ElfError::NotElf),
    };
    let count = header.u16(56).filter(|count| (1..=SEGMENTS_MAX).contains(count));
    let count = count.ok_or(ElfError::Malformed("it has no segments, or too many"))?;
    if header.u16(54).map(usize::from) != Some(ENTRY_BYTES) {
        return Err(ElfError::Malformed("its program headers have an odd size"));
    }
    let table = header.u64(32).ok_or(SHORT)?;
    let from = usize::try_from(table).map_err(|_| SHORT)?;
    let bytes = ENTRY_BYTES.saturating_mul(usize::from(count));
    let headers = from.checked_add(bytes).and_then(|to| file.get(from..to)).ok_or(SHORT)?;
    let mut reading = ElfReading { file, slide, segments: Vec::new(), headers: None, dynamic: false };
    for entry in headers.chunks_exact(ENTRY_BYTES) {
        reading.take(&ElfFields(entry), table)?;
    }
    let entry = header.u64(24).and_then(|entry| entry.checked_add(slide)).ok_or(RANGE)?;
    reading.finish(entry, u64::from(count), slide != 0)
}

/// What has been read so far.
struct ElfReading<'a> {
    file: &'a [u8],
    slide: u64,
    segments: Vec<ElfSegment<'a>>,
    headers: Option<u64>,
    dynamic: bool,
}

impl<'a> ElfReading<'a> {
    fn take(&mut self, entry: &ElfFields<'_>, table: u64) -> Result<(), ElfError> {
        let word = |at| entry.u64(at).ok_or(SHORT);
        let (offset, address, in_file, in_memory) = (word(8)?, word(16)?, word(32)?, word(40)?);
        let at = address.checked_add(self.slide).ok_or(RANGE)?;
        match entry.u32(0) {
            Some(PT_INTERP) => return Err(ElfError::NotStatic),
            Some(PT_DYNAMIC) => self.dynamic = true,
            Some(PT_PHDR) => self.headers = Some(at),
            Some(PT_LOAD) if in_memory > 0 => {
                let from = usize::try_from(offset).map_err(|_| SHORT)?;
                let to =
                    usize::try_from(in_file).ok().and_then(|bytes| from.checked_add(bytes)).ok_or(SHORT)?;
                let content = self.file.get(from..to).ok_or(SHORT)?;
                if in_memory < in_file {
                    return Err(ElfError::Malformed("a segment is larger in the file than in memory"));
                }
                let end = at.checked_add(in_memory).and_then(page_up).filter(|end| *end <= USER_END);
                let pages = (page_down(at), end.ok_or(RANGE)?);
                if pages.0 < USER_START || self.segments.last().is_some_and(|last| last.pages.1 > pages.0) {
                    return Err(ElfError::Malformed("its segments overlap, are out of order, or too low"));
                }
                // Where the headers are, if no part says so itself.
                if self.headers.is_none() && offset <= table && table < offset.saturating_add(in_file) {
                    self.headers = at.checked_add(table - offset);
                }
                let flags = u64::from(entry.u32(4).ok_or(SHORT)?);
                // The file counts execute, write, read from the lowest bit; `mmap` the other way round.
                let bits = (flags & 4) >> 2 | flags & 2 | (flags & 1) << 2;
                let protection = Protection::from_bits(bits);
                self.segments.push(ElfSegment { at, content, pages, protection });
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(self, entry: u64, count: u64, movable: bool) -> Result<Elf<'a>, ElfError> {
        let end = self.segments.last().map(|last| last.pages.1).ok_or(SHORT)?;
        // A shared library has neither interpreter nor entry.
        if movable && (!self.dynamic || entry == MOVABLE_AT) {
            return Err(ElfError::NotStatic);
        }
        let runs = |segment: &ElfSegment<'_>| {
            segment.protection.execute && (segment.pages.0..segment.pages.1).contains(&entry)
        };
        if !self.segments.iter().any(runs) {
            return Err(ElfError::Malformed("its entry point is not executable"));
        }
        let headers = (self.headers.unwrap_or(0), count);
        Ok(Elf { entry, segments: self.segments, headers, end })
    }
}

/// The smallest program: this code and nothing else, to be read and run, at `0x400078`.
pub(super) fn program(code: &[u8]) -> Vec<u8> {
    small(2, PT_LOAD, code)
}

fn small(kind: u16, first: u32, code: &[u8]) -> Vec<u8> {
    const AT: u64 = 0x40_0000;
    let mut file = Packed(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec());
    let before = HEADER_BYTES + ENTRY_BYTES;
    file = file.u16(kind).u16(62).u32(1).u64(AT + before as u64).u64(HEADER_BYTES as u64).u64(0).u32(0);
    file = file.u16(HEADER_BYTES as u16).u16(ENTRY_BYTES as u16).u16(1).u16(0).u16(0).u16(0);
    let bytes = (before + code.len()) as u64;
    file = file.u32(first).u32(5).u64(0).u64(AT).u64(AT).u64(bytes).u64(bytes).u64(4096);
    file.0.extend(code);
    file.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_a_program_and_rejects_other_files() {
        let file = small(2, PT_LOAD, &[0x0f, 0x05]);
        let elf = parse(&file).unwrap();
        assert_eq!((elf.entry, elf.headers, elf.end), (0x40_0078, (0x40_0040, 1), 0x40_1000));
        assert_eq!(elf.segments[0].protection, Protection { read: true, write: false, execute: true });
        assert_eq!(parse(&small(2, PT_INTERP, &[])), Err(ElfError::NotStatic));
        assert_eq!(parse(&small(3, PT_LOAD, &[])), Err(ElfError::NotStatic));
        assert_eq!(parse(&small(1, PT_LOAD, &[])), Err(ElfError::NotElf));
        for broken in [&b""[..], b"#!/bin/sh\n", &file[..40], b"\x7fELF"] {
            assert_eq!(parse(broken), Err(ElfError::NotElf), "{broken:?}");
        }
        assert!(matches!(parse(&file[..100]), Err(ElfError::Malformed(_))));
    }

    proptest! {
        #[test]
        fn any_file_is_read_or_refused(changes in proptest::collection::vec((0_usize..140, any::<u8>()), 0..12), cut in 0_usize..140) {
            let mut file = small(2, PT_LOAD, &[0x90; 20]);
            for (at, byte) in changes {
                file[at] = byte;
            }
            file.truncate(140.min(cut.max(60) + 40));
            if let Ok(elf) = parse(&file) {
                for segment in &elf.segments {
                    prop_assert!(segment.pages.0 >= USER_START && segment.pages.1 <= USER_END);
                    prop_assert!(segment.at >= segment.pages.0 && segment.at + segment.content.len() as u64 <= segment.pages.1);
                }
            }
        }
    }
}
