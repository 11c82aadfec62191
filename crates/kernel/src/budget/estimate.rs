//! What a call may cost, before anyone knows what it will.

use super::{Amounts, Estimate};
use regent_policy::{Class, Limits};

use crate::call::{Call, Op};
use crate::facts::{Sheet, Target};

/// What a request costs on the wire beside its own text: names, headers, handshakes.
const WIRE_BYTES: u64 = 4_096;

/// The most that a call may use.
pub(crate) fn estimate(call: &Call, sheet: &Sheet, limits: &Limits) -> Estimate {
    if is_free(call) {
        return Estimate::default();
    }
    let mut most = Amounts { calls: 1, wall_ms: limits.wall_ms_max, ..Amounts::default() };
    let reaches_out = sheet.resources.iter().any(|target| matches!(target, Target::Endpoint { .. }));
    if reaches_out {
        most.bytes_out = size_of(&sheet.args).saturating_add(WIRE_BYTES);
    }
    let mut unpriced = false;
    if let (Op::Infer(inference), Some(plan)) = (&call.op, &sheet.model) {
        most.tokens = inference.tokens_max.saturating_add(plan.tokens_in);
        most.money_microusd = plan.money_microusd_max.unwrap_or(0);
        unpriced = plan.money_microusd_max.is_none();
    }
    Estimate { most, unpriced }
}

/// What must work when everything is spent: ending, and an operator's own control.
fn is_free(call: &Call) -> bool {
    match &call.op {
        Op::Exit { .. }
        | Op::Answer { .. }
        | Op::Questions
        | Op::SetBudget { .. }
        | Op::CreateToken(_)
        | Op::Tokens
        | Op::RevokeToken { .. }
        | Op::RotateToken { .. }
        | Op::Whoami
        | Op::Declassify { .. } => true,
        Op::Signal { .. } | Op::Agents | Op::GetPolicy | Op::CheckPolicy { .. } => {
            call.principal.class() == Class::Operator
        }
        Op::RunTool(_)
        | Op::Elsewhere(_)
        | Op::Begin { .. }
        | Op::Infer(_)
        | Op::Remember(_)
        | Op::Recall(_)
        | Op::Open { .. }
        | Op::Close { .. }
        | Op::Read { .. }
        | Op::Write { .. }
        | Op::Stat { .. }
        | Op::List { .. }
        | Op::Mount { .. }
        | Op::Unmount { .. }
        | Op::Spawn(_)
        | Op::Wait { .. }
        | Op::Pipe(_)
        | Op::Send { .. }
        | Op::Recv { .. }
        | Op::Sigaction { .. }
        | Op::Sigprocmask { .. }
        | Op::Sigpending => false,
    }
}

fn size_of(value: &serde_json::Value) -> u64 {
    value.to_string().len() as u64
}
