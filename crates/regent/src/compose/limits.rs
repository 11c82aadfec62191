//! The limits of a task's agents: what a flag says, else a setting, else what the model can do. They are recorded with the task.

use regent_kernel::Budget;
use regent_models::Capability;
use regent_runtime::TaskSpec;
use regent_runtime::agent::AgentLimits;

use super::BootedKernel;
use crate::context::Context;

/// An answer reserves its whole limit, so that it gets a part of the window and of the budget.
const ANSWER_SHARE: u64 = 8;
const BUDGET_SHARE: u64 = 4;
/// Less than this is no answer, whatever the budget.
const ANSWER_TOKENS_MIN: u64 = 1_024;

/// Limits that somebody named.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AskedLimits {
    pub(crate) turns: Option<u32>,
    pub(crate) window: Option<u64>,
    pub(crate) answer: Option<u64>,
}

/// The limits of a task that is about to be recorded.
pub(crate) fn of_task(
    context: &Context,
    running: &BootedKernel,
    spec: &TaskSpec,
    asked: AskedLimits,
) -> AgentLimits {
    let can = running.hub.capability(&spec.model);
    let set = |name: &str| context.settings.number(name);
    let turns = asked.turns.or_else(|| u32::try_from(set("task.turns")?).ok());
    let window = asked.window.or_else(|| set("task.window")).unwrap_or(can.window_tokens);
    let answer = asked.answer.or_else(|| set("task.max_answer"));
    let answer = answer.unwrap_or_else(|| usual_answer(&can, window, spec.budget));
    let usual = AgentLimits::default();
    AgentLimits {
        turns_max: turns.unwrap_or(usual.turns_max),
        window_tokens_max: window,
        answer_tokens_max: answer.min(can.answer_tokens).min(window / 2).max(1),
        ..usual
    }
}

fn usual_answer(can: &Capability, window: u64, budget: Budget) -> u64 {
    let mut answer = can.answer_tokens.min(window / ANSWER_SHARE);
    if let Some(tokens) = budget.tokens {
        answer = answer.min((tokens / BUDGET_SHARE).max(ANSWER_TOKENS_MIN));
    }
    if let (Some(money), Some(price)) = (budget.money_microusd, can.price) {
        while answer > ANSWER_TOKENS_MIN && price.most(0, answer) > money / BUDGET_SHARE {
            answer = (answer / 2).max(ANSWER_TOKENS_MIN);
        }
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_follows_the_model_and_the_budget() {
        let can = |window_tokens, answer_tokens| Capability {
            window_tokens,
            answer_tokens,
            ..Capability::default()
        };
        let tokens = |tokens| Budget { tokens: Some(tokens), ..Budget::default() };
        let cases = [
            (can(200_000, 64_000), 200_000, Budget::default(), 25_000),
            (can(200_000, 8_192), 200_000, Budget::default(), 8_192),
            (can(32_768, 32_768), 32_768, Budget::default(), 4_096),
            (can(200_000, 64_000), 200_000, tokens(20_000), 5_000),
            (can(200_000, 64_000), 200_000, tokens(100), ANSWER_TOKENS_MIN),
        ];
        for (can, window, budget, answer) in cases {
            assert_eq!(usual_answer(&can, window, budget), answer, "{window} {budget:?}");
        }
    }
}
