//! The guest's address space: page tables in its own memory, pages given when they are first touched, and every copy in and out.
//!
//! The tables lie in guest memory that no table maps, so that the guest can't reach them. Even so nothing here trusts them: whatever
//! they say, [`GuestRam`] bounds the access to the guest's own memory.

use rustix::io::Errno;

use super::areas::{Areas, Protection, USER_END, page_down, page_up};
use super::memory::{GuestRam, PAGE_BYTES};

/// Bits of a page table entry.
const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
/// A bit that the processor leaves to us: there is a page, although it may not be touched.
const HELD: u64 = 1 << 9;
const NO_EXECUTE: u64 = 1 << 63;
const FRAME: u64 = 0x000f_ffff_ffff_f000;

/// Pages that one fault brings in, if they are wanted at all.
const AROUND_PAGES: u64 = 64;
/// One in so many pages is kept for page tables.
const TABLES_SHARE: u64 = 128;
/// The root of the page tables.
pub(super) const ROOT: u64 = PAGE_BYTES;
/// The first page that can be given away.
const FIRST_FREE: u64 = 2 * PAGE_BYTES;

/// There is no page left to give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OutOfMemory;

impl From<OutOfMemory> for Errno {
    fn from(_: OutOfMemory) -> Self {
        Self::NOMEM
    }
}

/// Which pages of the guest's memory are in use.
#[derive(Debug, Clone)]
pub(super) struct Frames {
    /// Everything from here up is untouched.
    next: u64,
    end: u64,
    /// Given back, and zero again.
    free: Vec<u64>,
}

impl Frames {
    fn new(bytes: u64) -> Self {
        Self { next: FIRST_FREE, end: page_down(bytes), free: Vec::new() }
    }

    /// The same pages in use, in a memory of another size.
    pub(super) fn resized(&self, bytes: u64) -> Self {
        Self { end: page_down(bytes), ..self.clone() }
    }

    /// How much from the bottom is in use.
    pub(super) fn used_bytes(&self) -> u64 {
        self.next
    }

    fn take(&mut self) -> Result<u64, OutOfMemory> {
        if let Some(frame) = self.free.pop() {
            return Ok(frame);
        }
        let kept = self.end / TABLES_SHARE;
        self.bump(self.end.saturating_sub(kept))
    }

    /// A page for a table. Never one that held the guest's content: a translation that the hypervisor kept must not lead here.
    fn take_for_table(&mut self) -> Result<u64, OutOfMemory> {
        self.bump(self.end)
    }

    fn bump(&mut self, end: u64) -> Result<u64, OutOfMemory> {
        let frame = self.next;
        if frame >= end {
            return Err(OutOfMemory);
        }
        self.next = frame.saturating_add(PAGE_BYTES);
        Ok(frame)
    }
}

/// What a copy of a program's address space needs besides the memory itself.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    /// Pages in use.
    pub(super) frames: Frames,
    /// Mappings.
    pub(super) areas: Areas,
}

/// The guest's address space.
#[derive(Debug)]
pub(super) struct Space {
    memory: GuestRam,
    frames: Frames,
    areas: Areas,
}

impl Space {
    /// An empty one.
    pub(super) fn new(memory: GuestRam) -> Self {
        let frames = Frames::new(memory.bytes());
        Self { memory, frames, areas: Areas::default() }
    }

    /// One whose memory holds already what the layout says.
    pub(super) fn from_layout(memory: GuestRam, layout: &Layout) -> Self {
        let frames = layout.frames.resized(memory.bytes());
        Self { memory, frames, areas: layout.areas.clone() }
    }

    /// What is where, for the next one of the same kind.
    pub(super) fn layout(&self) -> Layout {
        Layout { frames: self.frames.clone(), areas: self.areas.clone() }
    }

    /// The mappings.
    pub(super) fn areas(&self) -> &Areas {
        &self.areas
    }

    /// A word of physical memory.
    pub(super) fn physical_word(&self, at: u64) -> Option<u64> {
        self.memory.word(at)
    }

    /// Maps one page for the machine itself, with content; gives back where it is in physical memory. `flags` as the processor has
    /// them.
    pub(super) fn install(&mut self, at: u64, content: &[u8], access: Machinery) -> Result<u64, OutOfMemory> {
        let frame = self.frames.take_for_table()?;
        self.memory.write(frame, content).ok_or(OutOfMemory)?;
        let flags = match access {
            Machinery::Gate => PRESENT | USER,
            Machinery::Code => PRESENT,
            Machinery::State => PRESENT | WRITABLE | NO_EXECUTE,
        };
        self.set_entry(at, frame | flags)?;
        Ok(frame)
    }

    /// Adds a mapping where nothing is. Its pages come when they are touched.
    pub(super) fn map(&mut self, start: u64, end: u64, protection: Protection) {
        self.areas.insert(start, end, protection);
    }

    /// Takes a range away, with its pages.
    pub(super) fn unmap(&mut self, start: u64, end: u64) {
        for (from, to, _) in self.areas.remove(start, end) {
            self.discard(from, to);
        }
    }

    /// Gives the pages of a range back; it stays mapped, and reads as zeros.
    pub(super) fn discard(&mut self, start: u64, end: u64) {
        let frames = self.take_entries(start, end);
        for (at, bytes) in runs(&frames) {
            // What can't be forgotten is not given to anyone again.
            if self.memory.forget(at, bytes).is_some() {
                self.frames.free.extend((at..at.saturating_add(bytes as u64)).step_by(PAGE_BYTES as usize));
            }
        }
    }

    /// Changes what may be done in a range, all of which must be mapped.
    pub(super) fn protect(&mut self, start: u64, end: u64, protection: Protection) -> Result<(), Errno> {
        if !self.areas.all(start, end, |_| true) {
            return Err(Errno::NOMEM);
        }
        self.areas.remove(start, end);
        self.areas.insert(start, end, protection);
        let mut changed = Vec::new();
        self.each_entry(start, end, |entry| {
            changed.push(entry & FRAME);
            (entry & FRAME) | flags_of(protection)
        });
        self.retranslate(changed)
    }

    /// Moves the pages of a range elsewhere; both must be mapped, and nothing may have been touched there yet.
    pub(super) fn move_pages(&mut self, from: u64, to: u64, bytes: u64) -> Result<(), Errno> {
        let mut moved = Vec::new();
        let mut at = 0;
        while at < bytes {
            if let Some(entry) = self.take_entry(from.saturating_add(at)) {
                let (_, _, protection) = self.areas.around(to.saturating_add(at)).ok_or(Errno::FAULT)?;
                self.set_entry(to.saturating_add(at), (entry & FRAME) | flags_of(protection))?;
                moved.push(entry & FRAME);
            }
            at = at.saturating_add(PAGE_BYTES);
        }
        self.retranslate(moved)
    }

    fn retranslate(&mut self, mut frames: Vec<u64>) -> Result<(), Errno> {
        frames.sort_unstable();
        for (at, bytes) in runs(&frames) {
            self.memory.retranslate(at, bytes).ok_or(Errno::NOMEM)?;
        }
        Ok(())
    }

    /// The guest touched a page that isn't there: gives it, if it may have it. Says no if the guest had no right to it.
    pub(super) fn fault(&mut self, at: u64, write: bool, execute: bool) -> Result<bool, OutOfMemory> {
        let Some((start, end, protection)) = self.areas.around(at) else { return Ok(false) };
        if !protection.read || (write && !protection.write) || (execute && !protection.execute) {
            return Ok(false);
        }
        // A page that is there already was forgotten by the hypervisor, which looks again; the caller sees to it that it ends.
        self.populate(at, (start, end), protection)?;
        Ok(true)
    }

    /// Brings in the page at `at`, and its neighbours as far as there is memory.
    fn populate(
        &mut self,
        at: u64,
        (start, end): (u64, u64),
        protection: Protection,
    ) -> Result<(), OutOfMemory> {
        let window = AROUND_PAGES * PAGE_BYTES;
        let first = (at / window * window).max(start);
        let last = (at / window * window).saturating_add(window).min(end);
        self.give(page_down(at), protection)?;
        let mut page = first;
        while page < last && self.give(page, protection).is_ok() {
            page = page.saturating_add(PAGE_BYTES);
        }
        Ok(())
    }

    fn give(&mut self, page: u64, protection: Protection) -> Result<(), OutOfMemory> {
        if self.entry(page).is_some_and(|entry| entry != 0) {
            return Ok(());
        }
        let frame = self.frames.take()?;
        self.set_entry(page, frame | flags_of(protection)).inspect_err(|_| self.frames.free.push(frame))
    }

    /// Copies out of the guest: `EFAULT` unless all of it is mapped for reading.
    pub(super) fn read(&mut self, at: u64, into: &mut [u8]) -> Result<(), Errno> {
        self.check(at, into.len(), |protection| protection.read)?;
        let mut at = at;
        let mut rest = into;
        while !rest.is_empty() {
            let (physical, room) = self.translate(at)?;
            let count = room.min(rest.len());
            let (now, later) = rest.split_at_mut_checked(count).ok_or(Errno::FAULT)?;
            self.memory.read(physical, now).ok_or(Errno::FAULT)?;
            at = at.saturating_add(count as u64);
            rest = later;
        }
        Ok(())
    }

    /// Copies into the guest: `EFAULT` unless all of it is mapped for writing.
    pub(super) fn write(&mut self, at: u64, from: &[u8]) -> Result<(), Errno> {
        self.check(at, from.len(), |protection| protection.write)?;
        self.copy(at, from)
    }

    /// The same for what we load ourselves, whatever the guest may do there.
    pub(super) fn copy(&mut self, at: u64, from: &[u8]) -> Result<(), Errno> {
        let (mut at, mut rest) = (at, from);
        while !rest.is_empty() {
            let (physical, room) = self.translate(at)?;
            let (now, later) = rest.split_at_checked(room.min(rest.len())).ok_or(Errno::FAULT)?;
            self.memory.write(physical, now).ok_or(Errno::FAULT)?;
            at = at.saturating_add(now.len() as u64);
            rest = later;
        }
        Ok(())
    }

    /// A range of the guest's own, with the rights that are needed.
    pub(super) fn check(&self, at: u64, len: usize, fits: impl Fn(Protection) -> bool) -> Result<(), Errno> {
        let end = at.checked_add(len as u64).filter(|end| *end <= USER_END).ok_or(Errno::FAULT)?;
        if self.areas.all(at, end, fits) { Ok(()) } else { Err(Errno::FAULT) }
    }

    /// A text of the guest's, up to its end or `bytes_max`.
    pub(super) fn read_text(&mut self, at: u64, bytes_max: usize) -> Result<Vec<u8>, Errno> {
        let mut text = Vec::new();
        let mut at = at;
        while text.len() < bytes_max {
            // Never past the page: the text may end there, and what follows need not be mapped.
            let room = (PAGE_BYTES - at % PAGE_BYTES) as usize;
            let mut part = vec![0; room.min(bytes_max - text.len())];
            self.read(at, &mut part)?;
            if let Some(end) = part.iter().position(|&byte| byte == 0) {
                text.extend(part.iter().take(end));
                return Ok(text);
            }
            at = at.saturating_add(part.len() as u64);
            text.extend(part);
        }
        Err(Errno::NAMETOOLONG)
    }

    /// Where a mapped byte is in physical memory, and how much of its page follows. Brings the page in if need be.
    fn translate(&mut self, at: u64) -> Result<(u64, usize), Errno> {
        let (start, end, protection) = self.areas.around(at).ok_or(Errno::FAULT)?;
        if self.entry(at).is_none_or(|entry| entry == 0) {
            self.populate(at, (start, end), protection)?;
        }
        let entry = self.entry(at).filter(|entry| *entry != 0).ok_or(Errno::FAULT)?;
        let offset = at % PAGE_BYTES;
        Ok(((entry & FRAME) | offset, (PAGE_BYTES - offset) as usize))
    }

    /// The place of a page's entry, or how large the hole around it is: that much has no table at all.
    fn slot(&self, at: u64) -> Result<u64, u64> {
        let mut table = ROOT;
        for level in (1..4).rev() {
            match self.memory.word(slot_in(table, at, level)) {
                Some(entry) if entry & PRESENT != 0 => table = entry & FRAME,
                _ => return Err(PAGE_BYTES << (9 * level)),
            }
        }
        Ok(slot_in(table, at, 0))
    }

    fn entry(&self, at: u64) -> Option<u64> {
        self.memory.word(self.slot(at).ok()?)
    }

    fn set_entry(&mut self, at: u64, entry: u64) -> Result<(), OutOfMemory> {
        let mut table = ROOT;
        for level in (1..4).rev() {
            let slot = slot_in(table, at, level);
            let mut next = self.memory.word(slot).ok_or(OutOfMemory)?;
            if next & PRESENT == 0 {
                // What the leaves say decides; the upper levels let through.
                next = self.frames.take_for_table()? | PRESENT | WRITABLE | USER;
                self.memory.set_word(slot, next).ok_or(OutOfMemory)?;
            }
            table = next & FRAME;
        }
        self.memory.set_word(slot_in(table, at, 0), entry).ok_or(OutOfMemory)
    }

    fn take_entry(&mut self, at: u64) -> Option<u64> {
        let slot = self.slot(at).ok()?;
        let entry = self.memory.word(slot).filter(|entry| *entry != 0)?;
        self.memory.set_word(slot, 0)?;
        Some(entry)
    }

    /// Clears all entries of a range; gives back the pages they led to, in order of their place in memory.
    fn take_entries(&mut self, start: u64, end: u64) -> Vec<u64> {
        let mut frames = Vec::new();
        self.each_entry(start, end, |entry| {
            frames.push(entry & FRAME);
            0
        });
        frames.sort_unstable();
        frames
    }

    /// Replaces every entry of a range that leads to a page.
    fn each_entry(&mut self, start: u64, end: u64, mut change: impl FnMut(u64) -> u64) {
        let mut at = start;
        while at < end {
            match self.slot(at) {
                Err(hole) => at = (at / hole).saturating_add(1).saturating_mul(hole),
                Ok(slot) => {
                    if let Some(entry) = self.memory.word(slot).filter(|entry| *entry != 0) {
                        let done = self.memory.set_word(slot, change(entry));
                        debug_assert!(done.is_some());
                    }
                    at = at.saturating_add(PAGE_BYTES);
                }
            }
        }
    }

    /// How much the guest holds, at most.
    pub(super) fn used_bytes(&self) -> u64 {
        self.frames.next.saturating_sub((self.frames.free.len() as u64).saturating_mul(PAGE_BYTES))
    }

    /// The whole of memory, in pages.
    pub(super) fn total_bytes(&self) -> u64 {
        self.memory.bytes()
    }
}

/// What a page of the machine itself is for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Machinery {
    /// The gate of system calls: the guest may run it, not write it.
    Gate,
    /// Code that only exceptions reach.
    Code,
    /// Tables and the stack of exceptions.
    State,
}

fn flags_of(protection: Protection) -> u64 {
    if !protection.read {
        return HELD;
    }
    let write = if protection.write { WRITABLE } else { 0 };
    let execute = if protection.execute { 0 } else { NO_EXECUTE };
    PRESENT | USER | HELD | write | execute
}

fn slot_in(table: u64, at: u64, level: u32) -> u64 {
    table | (((at >> (12 + 9 * level)) & 0x1ff) << 3)
}

/// Neighbouring pages as ranges: where, and how many bytes.
fn runs(frames: &[u64]) -> Vec<(u64, usize)> {
    let mut runs: Vec<(u64, usize)> = Vec::new();
    for &frame in frames {
        match runs.last_mut() {
            Some((at, bytes)) if at.saturating_add(*bytes as u64) == frame => *bytes += PAGE_BYTES as usize,
            _ => runs.push((frame, PAGE_BYTES as usize)),
        }
    }
    runs
}

/// A range of whole pages below the end of the guest's space.
pub(super) fn whole_pages(at: u64, bytes: u64) -> Result<(u64, u64), Errno> {
    if !at.is_multiple_of(PAGE_BYTES) || bytes == 0 {
        return Err(Errno::INVAL);
    }
    let end = page_up(bytes).and_then(|bytes| at.checked_add(bytes)).filter(|end| *end <= USER_END);
    Ok((at, end.ok_or(Errno::NOMEM)?))
}
