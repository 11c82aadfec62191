//! The kernel's own rules: what no policy can allow. They hold whatever the rule files say, and are refusals like any other:
//! recorded, with a code.

use regent_policy::{Access, Class, Reason};
use regent_workspace::Workspace;

use crate::agent::{AgentId, check_spec};
use crate::authenticate::may_rotate;
use crate::call::{Call, Op};
use crate::catalogue::{FOR_OPERATOR, Tool};
use crate::facts::refusal;
use crate::kernel::Core;
use crate::pipe::PipeId;
use crate::principal::Principal;
use crate::role;
use crate::vfs::VfsPath;

impl Core {
    /// Why the kernel itself says no to an operation, if it does.
    pub(crate) fn own_rule(&self, call: &Call, op: &Op) -> Option<Reason> {
        let who = &call.principal;
        match op {
            Op::Signal { agent, group, .. } => self.may_signal(who, agent, *group),
            Op::Wait { agent } => self.is_own_child(who, agent),
            Op::Spawn(spec) => check_spec(who, spec),
            Op::Exit { .. } | Op::Sigaction { .. } | Op::Sigprocmask { .. } | Op::Sigpending => {
                is_an_agent(who)
            }
            Op::Open { path, .. } | Op::Stat { path } | Op::List { path } => self.may_reach(who, path),
            Op::Mount { source, target, .. } => {
                self.may_reach(who, source).or_else(|| self.may_reach(who, target))
            }
            Op::Unmount { target } => self.may_reach(who, target),
            Op::Remember(memory) => {
                let path = format!("/self/mem/{}/{}", memory.region.folder(), memory.key);
                self.may_reach(who, &path)
            }
            // A number that isn't open has no path that policy could have judged, and mustn't get one before the effect.
            Op::Close { fd } | Op::Read { fd, .. } | Op::Write { fd, .. } => {
                let error = self.society.vfs.opened(&who.home(), *fd).err()?;
                Some(refusal(error.code(), error.to_string(), ""))
            }
            Op::Send { pipe, .. } => self.has_end(who, *pipe, PipeSide::Write),
            Op::Recv { pipe, .. } => self.has_end(who, *pipe, PipeSide::Read),
            Op::Answer { .. } | Op::Questions => {
                is_the_person(who, "approval.not_a_person", "only an operator can see and answer questions")
            }
            Op::Begin { agent, .. } if who.class() == Class::Service => self.is_own_child(who, agent),
            Op::Begin { .. } | Op::Declassify { .. } => is_the_person(
                who,
                "request.not_a_person",
                "only an operator can begin a request, plan it, or trust a value",
            ),
            Op::CreateToken(spec) => self.may_create_token(&spec.subject),
            Op::RotateToken { id, .. } => may_rotate(who, id),
            Op::SetBudget { .. } => {
                is_the_person(who, "budget.not_a_person", "only an operator can set a budget")
            }
            // On what is the caller's own by construction, or decided elsewhere.
            Op::RunTool(_)
            | Op::Elsewhere(_)
            | Op::Infer(_)
            | Op::Recall(_)
            | Op::Agents
            | Op::Pipe(_)
            | Op::GetPolicy
            | Op::CheckPolicy { .. }
            | Op::Tokens
            | Op::RevokeToken { .. }
            | Op::Whoami => None,
        }
    }

    /// An agent signals itself and its descendants. The answer is the same for a foreign agent and for a missing one, so that ids can't be
    /// probed for.
    fn may_signal(&self, who: &Principal, agent: &AgentId, group: bool) -> Option<Reason> {
        if who.class() == Class::Operator {
            return None;
        }
        let fine = match self.society.agents.get(agent) {
            None => false,
            Some(_) if group => self.society.agents.group_of(agent).iter().all(|one| one.answers_to(who)),
            Some(one) => one.answers_to(who),
        };
        (!fine).then(|| not_yours(agent, "an agent may signal only itself and its descendants"))
    }

    fn is_own_child(&self, who: &Principal, agent: &AgentId) -> Option<Reason> {
        let fine = who.class() == Class::Operator
            || self.society.agents.get(agent).is_some_and(|child| child.was_started_by(who));
        (!fine).then(|| not_yours(agent, "an agent may wait only for its own children"))
    }

    /// A path that is one, in the caller's own tree or a descendant's.
    fn may_reach(&self, who: &Principal, path: &str) -> Option<Reason> {
        let path = match VfsPath::parse(path, &who.home()) {
            Ok(path) => path,
            Err(error) => return Some(refusal("path.invalid", error.to_string(), "")),
        };
        let tree = path.tree();
        let fine = who.class() == Class::Operator
            || *tree == who.home()
            || self.society.agents.get(tree).is_some_and(|owner| owner.answers_to(who));
        (!fine).then(|| not_yours(tree, "ask an agent that may see it to mount it into your tree"))
    }

    fn has_end(&self, who: &Principal, pipe: PipeId, end: PipeSide) -> Option<Reason> {
        let ends = self.society.pipes.ends(pipe);
        let fine = ends.is_some_and(|(writer, reader)| match end {
            PipeSide::Write => writer == who.home(),
            PipeSide::Read => reader == who.home(),
        });
        let message = || format!("the caller doesn't hold that end of pipe {}", pipe.0);
        (!fine)
            .then(|| refusal("pipe.not_yours", message(), "the creator of a pipe writes; its `reader` reads"))
    }
}

/// No tool reaches Regent's own files, and none makes a folder a repository that git would believe. In `.git` itself policy decides.
pub(crate) fn guarded_path(workspace: &Workspace, path: &str, access: Access) -> Option<Reason> {
    if workspace.is_reserved(path) {
        let message =
            format!("`{}` is one of Regent's own files, which no tool reaches", path.escape_debug());
        let help = "`regent audit` reads the ledger; agents read `vfs:/self/audit` and `vfs:/self/policy`";
        return Some(refusal("path.reserved", message, help));
    }
    let completes = access == Access::Write && workspace.makes_repository(path);
    completes.then(|| {
        let message = format!(
            "writing `{}` would turn its folder into a bare git repository, whose `config` git obeys",
            path.escape_debug()
        );
        refusal("path.repository", message, "don't use the names `HEAD`, `objects` and `refs` in one folder")
    })
}

#[derive(Clone, Copy)]
enum PipeSide {
    Write,
    Read,
}

fn is_an_agent(who: &Principal) -> Option<Reason> {
    let message = || "only an agent can exit and have signals".to_owned();
    who.life().is_none().then(|| refusal("agent.not_an_agent", message(), ""))
}

/// An agent can't approve its own call or raise its own budget.
fn is_the_person(who: &Principal, code: &'static str, message: &str) -> Option<Reason> {
    (who.class() != Class::Operator).then(|| refusal(code, message.to_owned(), ""))
}

/// Whether a tool is for the operator alone.
pub(crate) fn is_for_operator(tool: &Tool) -> bool {
    tool.spec().capabilities.iter().any(|one| one == FOR_OPERATOR)
}

/// A tool for the operator is called by the operator, and from within another such tool; not by an agent, and not by a guest that the
/// operator runs.
pub(crate) fn for_operator(call: &Call, tool: &Tool) -> Option<Reason> {
    if !is_for_operator(tool) {
        return None;
    }
    let is_inside_one = || call.within.last().is_some_and(|outer| is_for_operator(outer));
    let name = &tool.spec().name;
    if call.principal.class() == Class::Operator && (call.depth == 0 || is_inside_one()) {
        return role::demands_admin(&call.principal, &format!("`{name}`"));
    }
    Some(refusal("tool.operator_only", format!("only the operator may call `{name}`"), ""))
}

fn not_yours(agent: &AgentId, help: &str) -> Reason {
    let message = format!("`{}` is not one of the caller's agents", agent.as_str().escape_debug());
    refusal("agent.not_yours", message, help)
}
