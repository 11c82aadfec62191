//! Which sessions are in memory. The one that was used longest ago leaves first; it comes back by itself when it is used again.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use regent_kernel::{AgentId, Aside, Kernel, Principal};

use super::shelf::Shelf;

/// What all sessions in memory may take at least, and the part of this machine's memory that they may take if it is more. Sessions that work at
/// the same time and don't fit would be read back for every message.
const BYTES_MIN: usize = 192 << 20;
const MEMORY_DIVISOR: u64 = 64;
/// History of one session that waits to be saved.
const UNSAVED_BYTES_MAX: usize = 1 << 20;

/// The sessions in memory, and where the others are.
#[derive(Debug)]
pub struct Memory {
    shelf: Shelf,
    bytes_max: usize,
    used: Mutex<MemoryUse>,
}

#[derive(Debug, Default)]
struct MemoryUse {
    bytes: usize,
    uses: u64,
    /// By their last use.
    oldest: BTreeMap<u64, AgentId>,
    /// Their last use, what they take, and who started them.
    of: HashMap<AgentId, (u64, usize, Option<Principal>)>,
}

impl Memory {
    /// Sessions that are not in memory are saved in this folder.
    pub fn new(folder: PathBuf) -> Self {
        let system = rustix::system::sysinfo();
        let memory_bytes = system.totalram.saturating_mul(u64::from(system.mem_unit));
        let share = usize::try_from(memory_bytes / MEMORY_DIVISOR).unwrap_or(BYTES_MIN);
        Self { shelf: Shelf::new(folder), bytes_max: share.max(BYTES_MIN), used: Mutex::default() }
    }

    /// Whether there is no room for another session: those in memory could not be saved.
    pub(super) fn is_full(&self) -> bool {
        self.used().bytes > self.bytes_max.saturating_mul(2)
    }

    /// The same where nothing has to be saved for it; otherwise it says no.
    pub(super) fn note_in_memory(&self, kernel: &Kernel, operator: &Principal, agent: &AgentId) -> bool {
        let size = kernel.request_size(operator, agent);
        let mut used = self.used();
        used.put(agent, size.bytes, Some(operator));
        size.unsaved_bytes <= UNSAVED_BYTES_MAX && used.bytes <= self.bytes_max
    }

    /// A session was used. Others make room for it: they are encrypted and written, so this needs a thread that may block.
    pub(super) fn note(&self, kernel: &Kernel, operator: &Principal, agent: &AgentId) {
        let mut size = kernel.request_size(operator, agent);
        let save = |history: &[u8]| self.shelf.save(history);
        if size.unsaved_bytes > UNSAVED_BYTES_MAX
            && kernel.put_aside(operator, agent, Aside::History, &save).is_ok()
        {
            size.bytes = size.bytes.saturating_sub(size.unsaved_bytes);
        }
        let leaving = {
            let mut used = self.used();
            used.put(agent, size.bytes, Some(operator));
            used.over(self.bytes_max, agent)
        };
        for (other, owner) in leaving {
            let owner = owner.as_ref().unwrap_or(operator);
            // The disk may be full. Then it stays, and still counts.
            if kernel.put_aside(owner, &other, Aside::Everything, &save).is_err() {
                let size = kernel.request_size(owner, &other);
                self.used().put(&other, size.bytes, Some(owner));
            }
        }
    }

    /// A session has ended.
    pub(super) fn forget(&self, agent: &AgentId) {
        drop(self.used().remove(agent));
    }

    fn used(&self) -> MutexGuard<'_, MemoryUse> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryUse {
    fn put(&mut self, agent: &AgentId, bytes: usize, owner: Option<&Principal>) {
        drop(self.remove(agent));
        self.uses = self.uses.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
        self.oldest.insert(self.uses, agent.clone());
        self.of.insert(agent.clone(), (self.uses, bytes, owner.cloned()));
    }

    /// Takes one out, and says who started it.
    fn remove(&mut self, agent: &AgentId) -> Option<Principal> {
        let (use_number, bytes, owner) = self.of.remove(agent)?;
        self.oldest.remove(&use_number);
        self.bytes = self.bytes.saturating_sub(bytes);
        owner
    }

    /// Takes out those that have to leave, oldest first, but not the one that is being used.
    fn over(&mut self, bytes_max: usize, except: &AgentId) -> Vec<(AgentId, Option<Principal>)> {
        let mut leaving = Vec::new();
        while self.bytes > bytes_max
            && let Some((_, oldest)) = self.oldest.first_key_value()
            && oldest != except
        {
            let oldest = oldest.clone();
            let owner = self.remove(&oldest);
            leaving.push((oldest, owner));
        }
        leaving
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_used_longest_ago_leaves_first() {
        let id = |name: &str| AgentId::from(name);
        let mut used = MemoryUse::default();
        for name in ["a", "b", "c"] {
            used.put(&id(name), 100, None);
        }
        used.put(&id("a"), 150, None);
        assert_eq!(used.bytes, 350);
        let names =
            |left: Vec<(AgentId, Option<Principal>)>| left.into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        assert_eq!(names(used.over(260, &id("c"))), [id("b")], "`a` was used again");
        assert_eq!(names(used.over(0, &id("a"))), [id("c")], "never the one that is being used");
        drop(used.remove(&id("a")));
        assert_eq!((used.bytes, used.of.len(), used.oldest.len()), (0, 0, 0));
    }
}
