//! Idle requests leave memory. The process that runs the kernel saves the transcript; it is read back before the
//! request is looked at again. A request that can't be read back denies everything.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use regent_provenance::Resumable;

use super::offer::Offer;
use crate::agent::AgentId;
use crate::principal::Principal;
use crate::syscall::Kernel;

/// Reads back what was saved. Once this is dropped, the saved bytes can be discarded.
pub type Saved = Box<dyn Fn() -> io::Result<Vec<u8>> + Send + Sync>;

/// What of a request leaves memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aside {
    /// All of it.
    Everything,
    /// The transcript. Its index stays in memory.
    History,
}

/// How much memory a request takes, about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestSize {
    /// In all.
    pub bytes: usize,
    /// What of that is history which isn't saved yet.
    pub unsaved_bytes: usize,
    /// It is not in memory.
    pub is_aside: bool,
}

/// A session in memory, or the means to have it back.
pub(super) struct StoredSession {
    session: Resumable,
    is_aside: bool,
    offer: Arc<Offer>,
    /// The parts of its history, in their order.
    saved: Vec<Saved>,
}

impl StoredSession {
    pub(super) fn new(session: Resumable, offer: Arc<Offer>) -> Self {
        Self { session, is_aside: false, offer, saved: Vec::new() }
    }

    pub(super) fn offer(&self) -> &Offer {
        &self.offer
    }

    /// Brings it back into memory. What can't be brought back is lost for good.
    pub(super) fn come_back(&mut self) {
        if std::mem::take(&mut self.is_aside) {
            self.session = self.read_back().unwrap_or_else(|why| Resumable::lost(&why));
        }
    }

    fn read_back(&self) -> Result<Resumable, String> {
        let mut history = Vec::new();
        for part in &self.saved {
            history.extend(part().map_err(|error| error.to_string())?);
        }
        Resumable::resume(Arc::clone(&self.offer.labels), &history).map_err(|error| error.to_string())
    }

    fn put_aside(&mut self, what: Aside, save: &dyn Fn(&[u8]) -> io::Result<Saved>) -> io::Result<()> {
        if self.is_aside {
            return Ok(());
        }
        let Some(history) = self.session.take_history() else {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "its history isn't kept"));
        };
        if !history.is_empty() {
            match save(&history) {
                Ok(saved) => self.saved.push(saved),
                Err(error) => {
                    self.session.put_back(history);
                    return Err(error);
                }
            }
        }
        if what == Aside::Everything {
            self.session = Resumable::lost("it is not in memory");
            self.is_aside = true;
        }
        Ok(())
    }

    /// It is no longer needed. A late call is denied.
    fn give_up(&mut self) {
        (self.session, self.is_aside) = (Resumable::lost("its agent has ended"), false);
        self.saved.clear();
    }

    fn size(&self) -> RequestSize {
        let unsaved_bytes = self.session.unsaved_bytes();
        let bytes = self.session.session().bytes().saturating_add(unsaved_bytes);
        RequestSize { bytes, unsaved_bytes, is_aside: self.is_aside }
    }
}

impl Deref for StoredSession {
    type Target = Resumable;

    fn deref(&self) -> &Resumable {
        &self.session
    }
}

impl DerefMut for StoredSession {
    fn deref_mut(&mut self) -> &mut Resumable {
        &mut self.session
    }
}

impl std::fmt::Debug for StoredSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredSession")
            .field("is_aside", &self.is_aside)
            .field("saved", &self.saved.len())
            .finish()
    }
}

impl Kernel {
    /// How much memory the request of an agent takes, for the principal that started the agent.
    pub fn request_size(&self, caller: &Principal, agent: &AgentId) -> RequestSize {
        let agent = self.0.society.agents.get(agent).filter(|agent| agent.was_started_by(caller));
        let size = agent.and_then(|agent| agent.life.work().lock().as_ref().map(|one| one.session.size()));
        size.unwrap_or_default()
    }

    /// Brings the request of an agent back into memory, for the principal that started the agent. This blocks: it reads the history and
    /// indexes it again. A call that needs the request does the same where this was not called before.
    pub fn bring_back(&self, caller: &Principal, agent: &AgentId) {
        let agent = self.0.society.agents.get(agent).filter(|agent| agent.was_started_by(caller));
        agent.into_iter().for_each(|agent| drop(agent.life.work().get()));
    }

    /// Forgets the request of an agent that has ended, for the principal that started it: no call for it is possible any more.
    pub fn forget_request(&self, caller: &Principal, agent: &AgentId) {
        let agent = self.0.society.agents.get(agent).filter(|agent| agent.was_started_by(caller));
        if let Some(agent) = agent.filter(|agent| agent.life.stage().is_over()) {
            agent.life.work().lock().iter_mut().for_each(|working| working.session.give_up());
        }
    }

    /// Takes the request of an agent out of memory, or its history, for the principal that started the agent. `save` keeps a part of the history.
    /// The request comes back by itself with the next call that it is needed for.
    pub fn put_aside(
        &self,
        caller: &Principal,
        agent: &AgentId,
        what: Aside,
        save: &dyn Fn(&[u8]) -> io::Result<Saved>,
    ) -> io::Result<()> {
        let Some(agent) = self.0.society.agents.get(agent).filter(|agent| agent.was_started_by(caller))
        else {
            return Ok(());
        };
        match agent.life.work().lock().as_mut() {
            Some(working) => working.session.put_aside(what, save),
            None => Ok(()),
        }
    }
}
