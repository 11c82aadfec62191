//! The virtual file system of agents: one tree per agent, made of mounts.
//!
//! ```text
//! /agent/<id>/mem/{working,episodic,semantic}   the agent's own files, in memory
//!            /state/{checkpoints,diagnostics}   written by the kernel on USR1 and USR2, read-only
//!            /policy /audit /tools /ipc         views of the kernel, read-only
//!            /mnt/<name>                        mapped from another place
//! ```
//!
//! `/self` is the caller's own tree. An agent reaches its own tree and those of its descendants. An agent that may see a region can map
//! it into a tree that it reaches, so a parent shares with its child by mapping a region into the child's `mnt`. A mapping points
//! directly to the mount below it, never to another mapping, so there are no cycles. Access to a mapping is judged when it is created,
//! and from then on by its new name.
//!
//! Nothing here decides. The call path and policy decide beforehand who reaches which path; `views` has what the kernel shows of itself.
mod mount;
mod path;
mod region;
mod trees;
mod views;

use std::sync::Arc;

use regent_policy::Access;

use crate::agent::AgentId;
use crate::call::{Call, Op};
use crate::kernel::Core;
use crate::principal::Principal;
pub(crate) use mount::{Content, Folder, Mount, Recalled, Stat, VfsError};
pub use mount::{Fd, OpenMode};
pub(crate) use path::VfsPath;
pub(crate) use trees::{MountedPath, Node, Vfs};

impl Core {
    /// Gives an agent its tree.
    pub(crate) fn grow_tree(self: &Arc<Self>, who: &Principal) {
        let home = who.home();
        let views = views::all(self, &home, who);
        self.society.vfs.grow(home, views);
    }

    /// The trees, where the caller's own is among them if it is the one that is meant: the person's comes into being when it is
    /// first used.
    pub(crate) fn trees(self: &Arc<Self>, who: &Principal, tree: &AgentId) -> &Vfs {
        if *tree == who.home() && !self.society.vfs.has(tree) {
            self.grow_tree(who);
        }
        &self.society.vfs
    }

    /// The absolute virtual paths that an operation touches, in the form policy sees. A path that can't be parsed is refused by
    /// the kernel's own rules, so it needs no form here.
    pub(crate) fn vfs_paths(&self, call: &Call, op: &Op) -> Vec<(String, Access)> {
        let home = call.principal().home();
        let spelt =
            |path: &str, access| VfsPath::parse(path, &home).ok().map(|path| (path.to_string(), access));
        let opened = |fd: &Fd, access| {
            self.society.vfs.opened(&home, *fd).ok().map(|(path, _)| (path.to_string(), access))
        };
        let access = |writes: bool| if writes { Access::Write } else { Access::Read };
        let (one, other) = match op {
            Op::Open { path, mode } => (spelt(path, access(*mode == OpenMode::Write)), None),
            Op::Close { fd } | Op::Read { fd, .. } => (opened(fd, Access::Read), None),
            Op::Write { fd, .. } => (opened(fd, Access::Write), None),
            Op::Stat { path } => (spelt(path, Access::Read), None),
            Op::List { path } => (spelt(path, Access::List), None),
            Op::Mount { source, target, writable } => {
                (spelt(source, access(*writable)), spelt(target, Access::Write))
            }
            Op::Unmount { target } => (spelt(target, Access::Delete), None),
            Op::Remember(memory) => {
                let path = format!("/self/mem/{}/{}", memory.region.folder(), memory.key);
                (spelt(&path, Access::Write), None)
            }
            Op::Recall(query) => (spelt(&format!("/self/mem/{}", query.region.folder()), Access::Read), None),
            Op::RunTool(_)
            | Op::Elsewhere(_)
            | Op::Begin { .. }
            | Op::Declassify { .. }
            | Op::Infer(_)
            | Op::Spawn(_)
            | Op::Wait { .. }
            | Op::Exit { .. }
            | Op::Agents
            | Op::Pipe(_)
            | Op::Send { .. }
            | Op::Recv { .. }
            | Op::Signal { .. }
            | Op::Sigaction { .. }
            | Op::Sigprocmask { .. }
            | Op::Sigpending
            | Op::GetPolicy
            | Op::CheckPolicy { .. }
            | Op::Answer { .. }
            | Op::Questions
            | Op::SetBudget { .. }
            | Op::CreateToken(_)
            | Op::Tokens
            | Op::RevokeToken { .. }
            | Op::RotateToken { .. }
            | Op::Whoami => (None, None),
        };
        one.into_iter().chain(other).collect()
    }
}

#[cfg(test)]
mod tests;
