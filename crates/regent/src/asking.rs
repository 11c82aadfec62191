//! Asks the user at the terminal while a task waits. One question at a time, and only an explicit `y` approves.

use std::sync::Arc;

use regent_kernel::{
    Answered, ApprovalAnswer, Attention, BoxFuture, Host, Kernel, Op, OpenQuestion, Principal, Reply, Scope,
    Status, Ticket,
};
use regent_runtime::door::{Asker, Asking};
use tokio::sync::Mutex;

use crate::compose::BootedKernel;
use crate::prompt::Keyboard;
use crate::question::{self, Batch, Length, placed};
use crate::stage::Stage;
use crate::term;

/// Asks on the terminal; an answer from another one counts as well.
#[derive(Debug)]
pub(crate) struct TerminalAsker {
    host: Host,
    /// Who answers.
    person: Principal,
    stage: Arc<Stage>,
    keyboard: Mutex<Keyboard>,
    valid_ms: u64,
}

impl TerminalAsker {
    /// Asks on this stage; an approval is valid for this long.
    pub(crate) fn new(running: &BootedKernel, stage: Arc<Stage>, valid_ms: u64) -> Self {
        Self::with(running, stage, Keyboard::start(), valid_ms)
    }

    /// The same with answers from this keyboard.
    pub(crate) fn with(running: &BootedKernel, stage: Arc<Stage>, keyboard: Keyboard, valid_ms: u64) -> Self {
        let (host, person) = (running.host.clone(), running.caller());
        Self { host, person, stage, keyboard: Mutex::new(keyboard), valid_ms }
    }

    async fn put(&self, ticket: &Ticket) -> Asking {
        let kernel = &self.host;
        // Calls side by side may all be asked about; a user reads one question at a time.
        let mut keyboard = self.keyboard.lock().await;
        // The answer to the question before may have been for this call too.
        let standing = kernel.standing(&ticket.id).await;
        if !matches!(standing, Ok(Answered::Waiting { .. })) {
            return over(standing.ok().as_ref());
        }
        let mut batch = self.batch(ticket).await;
        let (text, mut unseen) = render_question(&self.stage, kernel, &batch, Length::Cut);
        self.ask(&mut keyboard, &text);
        loop {
            let line = tokio::select! {
                line = keyboard.line() => line,
                answered = kernel.answered(&ticket.id) => {
                    self.stage.go_on("answered from another terminal");
                    return over(answered.ok().as_ref());
                }
            };
            // A closed terminal is no answer.
            let Some(line) = line else { return Asking::Later };
            // What was left out has to be looked at before it can be agreed to.
            let wanted = match line.trim() {
                "a" | "all" if unseen => Some(Length::Whole),
                "1" if !batch.is_one() => {
                    batch = Batch::alone(placed(ticket));
                    Some(Length::Cut)
                }
                _other => None,
            };
            if let Some(length) = wanted {
                let (text, cut) = render_question(&self.stage, kernel, &batch, length);
                unseen = cut;
                self.ask(&mut keyboard, &text);
                continue;
            }
            let Some(answer) = meant(line.trim(), self.valid_ms) else {
                self.ask(&mut keyboard, "  y, s or n: ");
                continue;
            };
            if unseen && matches!(answer, ApprovalAnswer::Approve { .. }) {
                let help = question::unseen_help(&ticket.id);
                self.ask(&mut keyboard, &format!("  {help} [a] show it  [N] no: "));
                continue;
            }
            match given(kernel, &self.person, &batch, answer).await {
                AnswerResult::Taken => {
                    self.stage.go_on("");
                    return Asking::Answered;
                }
                // It takes others too: who has agreed here waits for them.
                AnswerResult::OthersToo => {
                    self.stage.go_on("another person must approve too: `regent approve`");
                    return over(kernel.answered(&ticket.id).await.ok().as_ref());
                }
                AnswerResult::Refused(why) => {
                    self.ask(&mut keyboard, &format!("  {}\n  y or n: ", term::inline(&why)))
                }
                AnswerResult::Nobody => {
                    self.stage.go_on("");
                    return Asking::Later;
                }
            }
        }
    }

    /// The question with all others of its cause that are open now.
    async fn batch(&self, ticket: &Ticket) -> Batch {
        let kernel = &self.host;
        let listed = match kernel.syscall(&self.person, Op::Questions).await {
            Ok(Reply::Done(outcome)) => serde_json::from_slice(outcome.output.bytes()).ok(),
            Ok(Reply::Denied(_) | Reply::Pending(_)) | Err(_) => None,
        };
        // Where they can't be listed, there is still the one.
        let open: Vec<OpenQuestion> = listed.unwrap_or_default();
        Batch::around(placed(ticket), &open)
    }
}

impl TerminalAsker {
    fn ask(&self, keyboard: &mut Keyboard, text: &str) {
        keyboard.asks();
        self.stage.ask(text);
        keyboard.asked();
    }
}

/// The question and its prompt, and whether it leaves out a part of the call. Only the no is marked as what comes of a bare Enter.
fn render_question(stage: &Stage, kernel: &Host, batch: &Batch, length: Length) -> (String, bool) {
    let question::QuestionText { text, cut } = batch.view(stage.screen(), kernel, length);
    let is_worn = |one: &OpenQuestion| one.attention.as_ref().is_some_and(Attention::is_worn);
    let is_narrow = batch.questions().iter().any(|one| one.open_names || is_worn(one));
    let wide = if is_narrow { "" } else { "  [s] this session" };
    let all = if cut { "  [a] show in full" } else { "" };
    let (which, one) = match batch.questions().len() {
        1 => (String::new(), ""),
        count => (format!(" all {count}"), "  [1] only this one"),
    };
    let prompt = format!(
        "\n{text}  Allow{which}? [y] once{wide}{one}{all}  [N] no  [n TEXT] no, and tell the agent TEXT: "
    );
    (prompt, cut)
}

/// The result of an answer.
enum AnswerResult {
    Taken,
    OthersToo,
    Refused(String),
    Nobody,
}

async fn given(kernel: &Host, person: &Principal, batch: &Batch, answer: ApprovalAnswer) -> AnswerResult {
    match kernel.syscall(person, batch.answered_by(answer)).await {
        Ok(Reply::Done(outcome)) => match outcome.status {
            Status::Ok => match serde_json::from_slice(outcome.output.bytes()) {
                Ok(Answered::Waiting { .. }) => AnswerResult::OthersToo,
                Ok(Answered::Approved | Answered::Denied { .. } | Answered::Gone) | Err(_) => {
                    AnswerResult::Taken
                }
            },
            // Somebody else was faster: the call finds out.
            Status::Failed(failure) if failure.code == "approval.gone" => AnswerResult::Taken,
            Status::Failed(failure) => AnswerResult::Refused(failure.message),
            Status::TimedOut | Status::Cancelled | Status::Faulted(_) => AnswerResult::Nobody,
        },
        Ok(Reply::Denied(_) | Reply::Pending(_)) | Err(_) => AnswerResult::Nobody,
    }
}

fn over(answered: Option<&Answered>) -> Asking {
    match answered {
        Some(Answered::Approved | Answered::Denied { .. }) => Asking::Answered,
        Some(Answered::Waiting { .. } | Answered::Gone) | None => Asking::Later,
    }
}

/// Only an explicit `y` approves. An empty line denies; unclear input is asked again.
fn meant(line: &str, valid_ms: u64) -> Option<ApprovalAnswer> {
    let yes = |scope| Some(ApprovalAnswer::Approve { scope, valid_ms });
    match line {
        "y" | "Y" | "yes" => yes(Scope::Once),
        "s" | "S" | "session" => yes(Scope::Session),
        "" | "n" | "N" | "no" => Some(ApprovalAnswer::Deny { because: None }),
        other => {
            let advice = other.strip_prefix("n ").or_else(|| other.strip_prefix("no "))?.trim();
            Some(ApprovalAnswer::Deny { because: Some(advice.to_owned()) })
        }
    }
}

impl Asker for TerminalAsker {
    fn ask<'a>(&'a self, _kernel: &'a Kernel, ticket: &'a Ticket) -> BoxFuture<'a, Asking> {
        Box::pin(self.put(ticket))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enter_alone_is_no_and_nothing_is_a_yes_by_accident() {
        assert_eq!(meant("", 1), Some(ApprovalAnswer::Deny { because: None }));
        for (line, scope) in [("y", Scope::Once), ("yes", Scope::Once), ("s", Scope::Session)] {
            assert_eq!(meant(line, 1), Some(ApprovalAnswer::Approve { scope, valid_ms: 1 }), "{line}");
        }
        let advice = ApprovalAnswer::Deny { because: Some("use the test server".to_owned()) };
        assert_eq!(meant("n use the test server", 1), Some(advice));
        for line in ["yy", "ye", "ok", "1", "true", "y n", "\u{443}", "\u{1b}[A", "p", "all", "always", "ys"]
        {
            assert_eq!(meant(line, 1), None, "{line} is asked again");
        }
    }
}
