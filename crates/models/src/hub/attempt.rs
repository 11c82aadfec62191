//! One permitted call: its turn, its tries, and what it comes to.

use std::time::Duration;

use regent_kernel::{Channel, Completion, Inference, Op, Permit, RawOutput, Secret, tier};
use serde_json::{Value, json};

use super::account::CallAccount;
use super::{Hub, ProviderEntry, class_of, outgoing};
use crate::capability::Capability;
use crate::event::{Event, Gathered};
use crate::names::Names;
use crate::patience::draw;
use crate::provider::{Events, Next, ProviderError, ProviderRequest};
use crate::scheduler::SchedulerTurn;
use crate::tokens;

/// A call that is being performed.
pub(super) struct ProviderCall<'h> {
    pub(super) permit: &'h Permit<'h, tier::Host>,
    pub(super) entry: &'h ProviderEntry,
    /// As its provider spells it.
    pub(super) model: &'h str,
    /// As policy judged it.
    pub(super) inference: &'h Inference,
    /// As it leaves.
    outgoing: &'h Inference,
    names: Names,
    capability: Capability,
    secret: Option<Secret>,
}

impl Hub {
    pub(super) async fn perform(&self, permit: &Permit<'_, tier::Host>) -> RawOutput {
        let inference: Inference = match serde_json::from_value(permit.args().clone()) {
            Ok(inference) => inference,
            Err(error) => return RawOutput::failed("args.invalid", error.to_string()),
        };
        let (entry, model) = match self.find(&inference.model) {
            Ok(found) => found,
            Err(reason) => return RawOutput::failed(&reason.code, reason.message),
        };
        let is_remote = entry.provider.endpoint(model).is_some();
        let mut account = CallAccount::default();
        account.is_remote = is_remote;
        let fitting = outgoing::fitting(&inference, &entry.name, model);
        let redacted = (is_remote && entry.redact).then(|| outgoing::redacted(permit, &fitting));
        account.redacted = redacted.as_ref().map_or(0, |redacted| redacted.places);
        let outgoing = redacted.as_ref().map_or(&*fitting, |redacted| &redacted.inference);
        let names = Names::from_inference(outgoing);
        let capability = self.capable(entry, model);
        let price = capability.price;
        let running = ProviderCall {
            permit,
            entry,
            model,
            inference: &inference,
            outgoing,
            names,
            capability,
            secret: None,
        };
        let began = self.clock.elapsed();
        let ended = tokio::select! {
            biased;
            () = permit.cancelled() => Err(ProviderError::Stopped),
            ended = self.in_turn(running, &mut account) => ended,
        };
        // The clock of what was seen is the call's own; waiting for a turn is not the model's fault, but it is what callers feel.
        let took_ms =
            u64::try_from(self.clock.elapsed().saturating_sub(began).as_millis()).unwrap_or(u64::MAX);
        account.settle(&inference);
        let asked = if let Op::Infer(asked) = permit.call().op() { asked.model.as_str() } else { "" };
        let class = class_of(asked);
        let full = entry.full(model);
        let mut receipt = account.receipt(&full, &*entry.provider, price);
        if let (Err(error), Some(fields)) = (&ended, receipt.as_object_mut()) {
            fields.insert("retry".to_owned(), retry_of(error, self.clock.now_ms()));
        }
        if asked != full
            && let Some(fields) = receipt.as_object_mut()
        {
            fields.insert("asked".to_owned(), asked.into());
        }
        let output = match ended {
            Ok(mut completion) => {
                if let Some(redacted) = &redacted {
                    completion.redacted = redacted.named_in(&completion);
                }
                self.seen().took(class, &full, took_ms.max(1));
                self.learn(class, &full, true);
                completed(permit, &completion)
            }
            Err(error) => {
                if error.is_outage() {
                    self.learn(class, &full, false);
                }
                let again = account.has_begun();
                match self.fall_back(permit, entry, &inference, &error, again).await {
                    Some(output) => output,
                    None => RawOutput::failed(error.code(), format!("`{full}`: {error}")),
                }
            }
        };
        output.with_spent(account.spent(price)).with_obtained(receipt)
    }

    /// Waits for a turn, and asks within the time that there is.
    async fn in_turn(
        &self,
        mut running: ProviderCall<'_>,
        account: &mut CallAccount,
    ) -> Result<Completion, ProviderError> {
        let ProviderCall { permit, entry, inference, .. } = running;
        if let Some(name) = entry.provider.secret() {
            running.secret = Some(permit.secret(name)?);
        }
        let who = permit.call().principal();
        let cost = tokens::of_conversation(inference).saturating_add(inference.tokens_max);
        let turn = entry
            .scheduler
            .turn(who.name(), who.priority(), cost)
            .await
            .map_err(|busy| ProviderError::Busy(busy.waiting))?;
        let total = Duration::from_millis(entry.patience.total_ms_max);
        match tokio::time::timeout(total, self.tries(&running, &turn, account)).await {
            Ok(ended) => ended,
            Err(_) => Err(ProviderError::Late(entry.patience.total_ms_max)),
        }
    }

    /// Asks until there is an answer, or it is no use. Once an answer has begun it is charged for, and there is no second try under
    /// this call's reservation.
    async fn tries(
        &self,
        running: &ProviderCall<'_>,
        turn: &SchedulerTurn,
        account: &mut CallAccount,
    ) -> Result<Completion, ProviderError> {
        let ProviderEntry { breaker, patience, .. } = running.entry;
        let mut last = None;
        loop {
            // A breaker that opens meanwhile must not hide why.
            let Some(pass) = breaker.pass() else {
                return Err(last.unwrap_or_else(|| ProviderError::Down(running.entry.last_failure())));
            };
            account.tries = account.tries.saturating_add(1);
            let error = match ask(running, turn, account).await {
                Ok(completion) => {
                    pass.is_up();
                    return Ok(completion);
                }
                Err(error) => error,
            };
            match error.is_outage() {
                true => {
                    running.entry.note_failure(&error);
                    pass.is_down();
                }
                false => pass.is_up(),
            }
            if account.has_begun() {
                return Err(error);
            }
            if let ProviderError::Status { parameter: Some(parameter), .. } = &error
                && running.entry.go_without(running.model, parameter)
            {
                account.errors.push("model.parameter");
                continue;
            }
            let Next::Again(after) = error.next() else { return Err(error) };
            let after_ms = after.map(|wait| wait.ms_from(self.clock.now_ms()));
            let Some(wait_ms) = patience.wait(account.tries, after_ms, draw()) else { return Err(error) };
            account.errors.push(error.code());
            last = Some(error);
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        }
    }
}

/// A model that has said nothing for so long is thinking: what might begin a secret, and was held back, is passed on as for a program.
const IDLE: Duration = Duration::from_millis(30);

/// For the receipt: whether, and when, the same call can succeed.
fn retry_of(error: &ProviderError, now_ms: i64) -> Value {
    if error.is_permanent() {
        return json!("never");
    }
    match error.next() {
        Next::Again(Some(wait)) => json!({"at_ms": wait.at_ms(now_ms)}),
        Next::Again(None) | Next::Elsewhere | Next::Fail => json!("later"),
    }
}

/// Asks once; forwards the answer while it streams.
async fn ask(
    running: &ProviderCall<'_>,
    turn: &SchedulerTurn,
    account: &mut CallAccount,
) -> Result<Completion, ProviderError> {
    account.gathered = Gathered::default();
    let refused = running.entry.refused_by(running.model);
    account.refused.clone_from(&refused);
    let CallAccount { gathered, bytes_out, .. } = account;
    let (events, mut coming) = Events::channel();
    let ask = ProviderRequest {
        model: running.model,
        inference: running.outgoing,
        names: &running.names,
        secret: running.secret.as_ref(),
        turn,
        bytes_out,
        capability: &running.capability,
        refused: &refused,
    };
    let mut asking = running.entry.provider.ask(ask, events);
    let (mut ended, mut flowing, mut may_wait) = (None, Channel::Output, false);
    loop {
        tokio::select! {
            biased;
            event = coming.recv() => match event {
                Some(event) => {
                    flow(running.permit, &event, &mut flowing).await?;
                    gathered.take(event)?;
                    may_wait = true;
                }
                None => break,
            },
            result = &mut asking, if ended.is_none() => ended = Some(result),
            () = tokio::time::sleep(IDLE), if may_wait => {
                may_wait = false;
                let flushed = running.permit.flush(flowing).await;
                flushed.map_err(|_| ProviderError::TooLarge("the answer"))?;
            }
        }
    }
    match ended {
        Some(result) => result?,
        None => (&mut asking).await?,
    }
    drop(asking);
    end(running.permit, flowing).await?;
    account.has_begun = account.gathered.has_begun();
    let usage = account.settle(running.inference);
    let gathered = std::mem::take(&mut account.gathered);
    gathered.finish(&running.entry.full(running.model), &running.names, usage)
}

/// Text and reasoning are separate channels. A channel ends when the other one goes on, so that nothing of it comes late.
async fn flow(
    permit: &Permit<'_, tier::Host>,
    event: &Event,
    flowing: &mut Channel,
) -> Result<(), ProviderError> {
    let (channel, text) = match event {
        Event::Text(text) => (Channel::Output, text),
        Event::Reasoning(text) => (Channel::Reasoning, text),
        Event::Opaque(_) | Event::Tool(_) | Event::Usage(_) | Event::Stop(_) => return Ok(()),
    };
    if *flowing != channel {
        end(permit, std::mem::replace(flowing, channel)).await?;
    }
    let flowed = permit.emit(channel, text.as_bytes()).await;
    flowed.map(drop).map_err(|_| ProviderError::TooLarge("the answer"))
}

async fn end(permit: &Permit<'_, tier::Host>, channel: Channel) -> Result<(), ProviderError> {
    permit.end(channel).await.map(drop).map_err(|_| ProviderError::TooLarge("the answer"))
}

/// A completion as the call's output: whole, or not at all. Half of it would be no JSON.
fn completed(permit: &Permit<'_, tier::Host>, completion: &Completion) -> RawOutput {
    match serde_json::to_vec(completion) {
        Ok(bytes) if bytes.len() as u64 > permit.limits().output_bytes_max => {
            let too_large = ProviderError::TooLarge("the answer");
            RawOutput::failed(too_large.code(), too_large.to_string())
        }
        Ok(bytes) => RawOutput::new(bytes),
        Err(error) => RawOutput::failed("model.garbled", error.to_string()),
    }
}
