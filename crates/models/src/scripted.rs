//! A model that says what a file says: for tests, demos and trying things out. The same conversation gets the same answer, also in
//! another process: nothing but the conversation decides which turn it is, except for faults that pass after some times.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use regent_kernel::{BoxFuture, Message, ModelUsage, Part, Role, StopReason};
use serde::Deserialize;
use serde_json::Value;

use crate::event::{Event, TokenUsage, ToolDelta};
use crate::provider::{Events, Provider, ProviderError, ProviderRequest};
use crate::tokens;

/// A script may be so long.
const SCRIPT_BYTES_MAX: usize = 16 << 20;

/// The turns of a model that only plays one.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// In order; see [`ScriptedTurn::when`] for those out of order.
    pub turns: Vec<ScriptedTurn>,
    /// Where it leads, if it should pass for a remote one; nothing is ever sent there.
    #[serde(default)]
    pub pretend_remote: Option<String>,
}

/// One turn of it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScriptedTurn {
    /// Only in conversations whose first user message contains this.
    pub about: Option<String>,
    /// Whenever the last message contains this. Turns without it come in order, one for each turn that the model has had.
    pub when: Option<String>,
    /// The text of the answer.
    pub text: String,
    /// What is thought.
    pub reasoning: String,
    /// What it wants back with the thought.
    pub opaque: Option<Value>,
    /// Tools that are asked for.
    pub calls: Vec<ScriptedCall>,
    /// Why it stops; as usual if absent.
    pub stop: Option<StopReason>,
    /// What is reported as used; counted if absent. Of `input`, `cached`, `output` and `reasoning`, what isn't named is 0.
    #[serde(deserialize_with = "usage")]
    pub usage: Option<ModelUsage>,
    /// How long it takes.
    pub delay_ms: u64,
    /// What goes wrong.
    pub fault: Option<Fault>,
    /// How often, before it goes right; always if absent.
    pub fault_times: Option<u32>,
}

fn usage<'de, D: serde::Deserializer<'de>>(given: D) -> Result<Option<ModelUsage>, D::Error> {
    #[derive(Deserialize, Default)]
    #[serde(default, deny_unknown_fields)]
    struct Named {
        input: u64,
        cached: u64,
        output: u64,
        reasoning: u64,
    }
    let named = Option::<Named>::deserialize(given)?;
    Ok(named.map(|Named { input, cached, output, reasoning }| ModelUsage {
        input,
        cached,
        output,
        reasoning,
    }))
}

/// A tool that a turn asks for.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedCall {
    /// Which.
    pub tool: String,
    /// With what.
    #[serde(default)]
    pub args: Value,
}

/// A scripted fault.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// A bad status.
    Status(u16),
    /// It never answers.
    Hang,
    /// It is cut half-way.
    Cut,
    /// It is garbled after half of it.
    Garbled,
    /// It reports far more than it can have used.
    WrongUsage,
    /// It reports nothing.
    NoUsage,
}

/// Plays a script.
#[derive(Debug)]
pub struct Scripted {
    script: Script,
    /// How often each turn's fault has happened.
    faults: Mutex<Vec<u32>>,
}

impl Scripted {
    /// Plays this one.
    pub fn new(script: Script) -> Self {
        let faults = Mutex::new(vec![0; script.turns.len()]);
        Self { script, faults }
    }

    /// Reads one, as JSON.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > SCRIPT_BYTES_MAX {
            return Err(format!("a script has at most {SCRIPT_BYTES_MAX} bytes"));
        }
        serde_json::from_str(text).map(Self::new).map_err(|error| error.to_string())
    }

    fn turn(&self, ask: &ProviderRequest<'_>) -> Result<(usize, &ScriptedTurn), ProviderError> {
        let messages = &ask.inference.messages;
        let first = messages.iter().find(|message| message.role == Role::User);
        let is_about = |turn: &ScriptedTurn| {
            turn.about
                .as_ref()
                .is_none_or(|about| first.is_some_and(|first| first.text().contains(about.as_str())))
        };
        let turns = || self.script.turns.iter().enumerate().filter(|(_, turn)| is_about(turn));
        let last = messages.last().map(Message::text).unwrap_or_default();
        let said = |turn: &ScriptedTurn| turn.when.as_ref().is_some_and(|when| last.contains(when.as_str()));
        let had = messages.iter().filter(|message| message.role == Role::Assistant).count();
        turns()
            .find(|(_, turn)| said(turn))
            .or_else(|| turns().filter(|(_, turn)| turn.when.is_none()).nth(had))
            .ok_or_else(|| ProviderError::Unfit(format!("the script has no turn {}", had.saturating_add(1))))
    }

    /// The fault of a turn, if it is still due.
    fn fault(&self, at: usize, turn: &ScriptedTurn) -> Option<Fault> {
        let fault = turn.fault.clone()?;
        let Some(times) = turn.fault_times else { return Some(fault) };
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let happened = faults.get_mut(at)?;
        *happened = happened.saturating_add(1);
        (*happened <= times).then_some(fault)
    }

    async fn play(&self, ask: ProviderRequest<'_>, events: Events) -> Result<(), ProviderError> {
        let (at, turn) = self.turn(&ask)?;
        let fault = self.fault(at, turn);
        tokio::time::sleep(Duration::from_millis(turn.delay_ms)).await;
        match &fault {
            Some(Fault::Status(status)) => {
                let message = "as the script says".to_owned();
                return Err(ProviderError::Status { status: *status, message, wait: None, parameter: None });
            }
            Some(Fault::Hang) => std::future::pending::<()>().await,
            Some(Fault::Cut | Fault::Garbled | Fault::WrongUsage | Fault::NoUsage) | None => {}
        }
        if !turn.reasoning.is_empty() {
            events.give(Event::Reasoning(turn.reasoning.clone())).await?;
        }
        if let Some(opaque) = &turn.opaque {
            events.give(Event::Opaque(opaque.clone())).await?;
        }
        let words: Vec<&str> = turn.text.split_inclusive(' ').collect();
        let is_cut = matches!(fault, Some(Fault::Cut | Fault::Garbled));
        let said = if is_cut { words.len().div_ceil(2) } else { words.len() };
        for word in words.into_iter().take(said) {
            events.give(Event::Text(word.to_owned())).await?;
        }
        match fault {
            Some(Fault::Cut) => return Ok(()),
            Some(Fault::Garbled) => return Err(ProviderError::Malformed("as the script says".to_owned())),
            Some(Fault::Status(_) | Fault::Hang | Fault::WrongUsage | Fault::NoUsage) | None => {}
        }
        for (index, call) in (0..).zip(&turn.calls) {
            let args = if call.args.is_null() { String::new() } else { call.args.to_string() };
            let name = Some(ask.names.wire(&call.tool).to_owned());
            events.give(Event::Tool(ToolDelta { index, id: None, name, args })).await?;
        }
        if fault != Some(Fault::NoUsage) {
            events.give(Event::Usage(used(&ask, turn, fault == Some(Fault::WrongUsage)))).await?;
        }
        events.give(Event::Stop(turn.stop.unwrap_or(StopReason::End))).await
    }
}

fn used(ask: &ProviderRequest<'_>, turn: &ScriptedTurn, is_wrong: bool) -> TokenUsage {
    let counted = || {
        let args: u64 = turn.calls.iter().map(|call| tokens::of_text(&call.args.to_string())).sum();
        let output = tokens::of_text(&turn.text).saturating_add(args).max(1).min(ask.inference.tokens_max);
        ModelUsage { input: tokens::of_conversation(ask.inference), output, ..ModelUsage::default() }
    };
    let mut tokens = turn.usage.unwrap_or_else(counted);
    if is_wrong {
        tokens.output = ask.inference.tokens_max.saturating_mul(1_000);
    }
    tokens.into()
}

impl Provider for Scripted {
    fn endpoint(&self, _model: &str) -> Option<String> {
        self.script.pretend_remote.clone()
    }

    fn takes(&self, _part: &Part) -> bool {
        true
    }

    fn ask<'a>(
        &'a self,
        ask: ProviderRequest<'a>,
        events: Events,
    ) -> BoxFuture<'a, Result<(), ProviderError>> {
        Box::pin(self.play(ask, events))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_names_what_it_wants_and_the_rest_is_zero() {
        let script: Script =
            serde_json::from_str(r#"{"turns": [{"text": "a", "usage": {"output": 7}}, {"text": "b"}]}"#)
                .unwrap();
        assert_eq!(script.turns[0].usage, Some(ModelUsage { output: 7, ..ModelUsage::default() }));
        assert_eq!(script.turns[1].usage, None);
        assert!(serde_json::from_str::<Script>(r#"{"turns": [{"usage": {"tokens": 7}}]}"#).is_err());
    }
}
