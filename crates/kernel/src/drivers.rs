//! The kernel's own effects: what the operations that aren't tools do, once they are permitted.

mod agents;
mod files;
mod pipes;
mod policies;

use std::sync::Arc;

use regent_wire::result::BudgetSet;

use crate::authenticate::whoami;
use crate::call::Op;
use crate::executor::{BoxFuture, ExecuteError, RawOutput};
use crate::kernel::Core;
use crate::syscall::{Permit, tier};

type Performed = Result<RawOutput, ExecuteError>;
type HostPermit<'s> = Permit<'s, tier::Host>;

/// Performs one of the kernel's own operations. Results are JSON, except that a read gives what was read.
pub(crate) fn perform<'s>(core: &'s Arc<Core>, permit: HostPermit<'s>) -> BoxFuture<'s, Performed> {
    Box::pin(async move {
        match permit.call().op() {
            Op::Spawn(spec) => agents::spawn(core, permit, spec).await,
            Op::Wait { agent } => agents::wait(core, permit, agent).await,
            Op::Exit { code } => agents::exit(core, permit, *code),
            Op::Agents => agents::list(core, permit),
            Op::Signal { agent, signal, group } => agents::signal(core, permit, agent, *signal, *group).await,
            Op::Sigaction { signal, disposition } => agents::action(permit, *signal, *disposition),
            Op::Sigprocmask { change } => agents::mask(core, permit, change).await,
            Op::Sigpending => agents::pending(permit),
            Op::Open { path, mode } => files::open(core, permit, path, *mode),
            Op::Close { fd } => files::close(core, permit, *fd),
            Op::Read { fd, offset, bytes_max } => files::read(core, permit, *fd, *offset, *bytes_max),
            Op::Write { fd, offset, content } => files::write(core, permit, *fd, *offset, content),
            Op::Stat { path } => files::stat(core, permit, path),
            Op::List { path } => files::list(core, permit, path),
            Op::Mount { source, target, writable } => files::mount(core, permit, source, target, *writable),
            Op::Unmount { target } => files::unmount(core, permit, target),
            Op::Remember(memory) => files::remember(core, permit, memory),
            Op::Recall(query) => files::recall(core, permit, query),
            Op::Pipe(spec) => pipes::make(core, permit, spec),
            Op::Send { pipe, message } => pipes::send(core, permit, *pipe, message),
            Op::Recv { pipe, wait_ms_max } => pipes::recv(core, permit, *pipe, *wait_ms_max).await,
            Op::GetPolicy => policies::get(core, permit),
            Op::CheckPolicy { op } => policies::check(core, permit, op).await,
            Op::Answer { ticket, with, answer } => {
                core.answer((ticket, with), answer, permit.call().principal()).await
            }
            Op::Questions => core.questions(permit.call().principal()).await,
            Op::SetBudget { scope, limits } => {
                core.gate.budgets.set(scope, *limits, core.clock.now_ms()).await?;
                Ok(RawOutput::result(&BudgetSet { limits: *limits, scope: scope.clone() }))
            }
            Op::CreateToken(spec) => core.create_token(spec, permit.call().principal()).await,
            Op::Tokens => core.list_tokens().await,
            Op::RevokeToken { id } => core.revoke_token(id).await,
            Op::RotateToken { id, sha256 } => core.rotate_token(id, *sha256, permit.call().principal()).await,
            Op::Whoami => Ok(RawOutput::result(&whoami(permit.call().principal()))),
            Op::Begin { agent, begin } => Ok(core.begin_request(agent, begin)),
            Op::Declassify { agent, value } => Ok(core.declassify(agent, value)),
            Op::RunTool(_) | Op::Elsewhere(_) | Op::Infer(_) => {
                Err(ExecuteError::NoDriver(permit.call().op().name().to_owned()))
            }
        }
    })
}

/// The kernel's own part broke while it did something for a caller.
fn broken(error: impl std::fmt::Display) -> ExecuteError {
    ExecuteError::Broken(error.to_string())
}
