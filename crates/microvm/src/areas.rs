//! Which parts of the guest's address space exist, and what may be done there. This, not the page tables, is what every pointer of
//! the guest is checked against.

use std::collections::BTreeMap;

use super::memory::PAGE_BYTES;

/// Nothing is ever mapped below, so that a null pointer with an offset is a fault.
pub(super) const USER_START: u64 = 0x1_0000;
/// Nothing of the guest's is at or above.
pub(super) const USER_END: u64 = 0x7fff_f000_0000;
/// Separate mappings of one guest.
const AREAS_MAX: usize = 32_768;

/// What may be done with a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Protection {
    /// Read; writing and executing include it, as on the real machine.
    pub(super) read: bool,
    /// Write.
    pub(super) write: bool,
    /// Execute.
    pub(super) execute: bool,
}

impl Protection {
    /// From the bits of `mmap`.
    pub(super) fn from_bits(bits: u64) -> Self {
        let has = |bit: i32| bits & bit.unsigned_abs() as u64 != 0;
        let (write, execute) = (has(libc::PROT_WRITE), has(libc::PROT_EXEC));
        Self { read: has(libc::PROT_READ) || write || execute, write, execute }
    }

    /// Data.
    pub(super) const READ_WRITE: Self = Self { read: true, write: true, execute: false };
}

/// One mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Area {
    end: u64,
    protection: Protection,
}

/// All mappings, by their first address. They never overlap and are whole pages.
#[derive(Debug, Clone, Default)]
pub(super) struct Areas(BTreeMap<u64, Area>);

impl Areas {
    /// The mapping around an address: its bounds and what may be done.
    pub(super) fn around(&self, at: u64) -> Option<(u64, u64, Protection)> {
        let (start, area) = self.0.range(..=at).next_back()?;
        (at < area.end).then_some((*start, area.end, area.protection))
    }

    /// Whether every byte of a range is mapped so that `fits` holds.
    pub(super) fn all(&self, start: u64, end: u64, fits: impl Fn(Protection) -> bool) -> bool {
        let mut at = start;
        while at < end {
            match self.around(at) {
                Some((_, next, protection)) if fits(protection) => at = next,
                _ => return false,
            }
        }
        true
    }

    /// Whether anything of a range is mapped.
    pub(super) fn any(&self, start: u64, end: u64) -> bool {
        self.0.range(..end).next_back().is_some_and(|(_, area)| area.end > start)
    }

    /// Whether there is room for more mappings, with the splits that one operation can cause.
    pub(super) fn has_room(&self) -> bool {
        self.0.len().saturating_add(4) <= AREAS_MAX
    }

    /// Adds a mapping where nothing is. Neighbours of the same kind become one.
    pub(super) fn insert(&mut self, start: u64, end: u64, protection: Protection) {
        let (mut start, mut end) = (start, end);
        if let Some((&before, area)) = self.0.range(..start).next_back()
            && area.end == start
            && area.protection == protection
        {
            start = before;
        }
        if let Some(after) = self.0.get(&end)
            && after.protection == protection
        {
            let next = end;
            end = after.end;
            self.0.remove(&next);
        }
        self.0.insert(start, Area { end, protection });
    }

    /// Takes a range away; gives back the parts that were mapped.
    pub(super) fn remove(&mut self, start: u64, end: u64) -> Vec<(u64, u64, Protection)> {
        self.split(start);
        self.split(end);
        let starts: Vec<u64> = self.0.range(start..end).map(|(&at, _)| at).collect();
        let taken = starts
            .into_iter()
            .filter_map(|at| self.0.remove(&at).map(|area| (at, area.end, area.protection)));
        taken.collect()
    }

    /// Makes an address a border.
    fn split(&mut self, at: u64) {
        if let Some((&start, area)) = self.0.range_mut(..at).next_back()
            && area.end > at
        {
            let rest = Area { end: area.end, protection: area.protection };
            area.end = at;
            debug_assert!(start < at);
            self.0.insert(at, rest);
        }
    }

    /// The highest free range of that length below `top`.
    pub(super) fn free_below(&self, top: u64, len: u64) -> Option<u64> {
        let mut end = top;
        for (&start, area) in self.0.range(..top).rev() {
            if area.end < end && end.saturating_sub(area.end) >= len {
                return Some(end - len);
            }
            end = end.min(start);
        }
        (end.saturating_sub(USER_START) >= len).then(|| end - len)
    }
}

/// Rounds up to whole pages.
pub(super) fn page_up(bytes: u64) -> Option<u64> {
    bytes.checked_add(PAGE_BYTES - 1).map(|bytes| bytes & !(PAGE_BYTES - 1))
}

/// Rounds down to whole pages.
pub(super) fn page_down(bytes: u64) -> u64 {
    bytes & !(PAGE_BYTES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const P: u64 = PAGE_BYTES;

    fn protection(bits: u8) -> Protection {
        Protection::from_bits(u64::from(bits & 7))
    }

    proptest! {
        /// Against the simplest thing that could be right: one entry a page.
        #[test]
        fn areas_are_a_set_of_pages(steps in proptest::collection::vec((any::<bool>(), 16_u64..64, 1_u64..16, 0_u8..8), 1..60)) {
            let (mut areas, mut pages) = (Areas::default(), BTreeMap::new());
            for (add, page, count, bits) in steps {
                let (start, end) = (page * P, (page + count) * P);
                areas.remove(start, end);
                pages.retain(|at, _| !(page..page + count).contains(at));
                if add {
                    areas.insert(start, end, protection(bits));
                    pages.extend((page..page + count).map(|at| (at, protection(bits))));
                }
                for page in 0..96 {
                    let found = areas.around(page * P + 7).map(|(.., protection)| protection);
                    prop_assert_eq!(found, pages.get(&page).copied());
                }
                prop_assert_eq!(areas.any(20 * P, 30 * P), pages.keys().any(|page| (20..30).contains(page)));
                if let Some(free) = areas.free_below(96 * P, 5 * P) {
                    prop_assert!(free >= USER_START && !areas.any(free, free + 5 * P));
                }
            }
        }
    }
}
