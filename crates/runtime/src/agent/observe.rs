//! The text that a model gets about a call: its outcome between markers, or why the call didn't happen and what to do about it.

use regent_kernel::{Denial, Nonce, Outcome, Reason, Status};

use super::shares::Shown;
use crate::door::CallResult;
use crate::stop::StopCause;

/// The words for a model, or the reason why the agent can't continue.
pub(super) fn render(heard: &CallResult, nonce: &Nonce) -> Result<Shown, StopCause> {
    match heard {
        CallResult::Done(outcome) => Ok(done(outcome, nonce)),
        CallResult::Denied(Denial { reason, .. }) => {
            StopCause::of_denial(reason).map_or_else(|| Ok(Shown::word(denied(reason))), Err)
        }
        CallResult::Broke(_) => Ok(Shown::word("[the tool broke; its outcome is not known]")),
    }
}

/// The code of a denial by a reviewer.
pub(super) const DENIED: &str = "approval.denied";

/// The advice that came with a reviewer's denial.
pub(super) fn advice(heard: &CallResult) -> Option<&str> {
    match heard {
        CallResult::Denied(Denial { reason, .. }) if reason.code == DENIED => {
            Some(reason.help.as_deref().unwrap_or_default())
        }
        CallResult::Denied(_) | CallResult::Done(_) | CallResult::Broke(_) => None,
    }
}

fn done(outcome: &Outcome, nonce: &Nonce) -> Shown {
    let quoted = outcome.output.for_model(nonce);
    let cut = if outcome.truncated { "\n[there was more; it was cut]" } else { "" };
    let before = match &outcome.status {
        Status::Ok => String::new(),
        // A failure's message may quote anything, so it goes between the markers too: as a line of its own before the output.
        Status::Failed(failure) => {
            let head = quoted.split_once('\n').map_or("", |(head, _)| head);
            let message = failure.message.replace("<<", "< <");
            format!("[failed: {}]\n{head}\n{message}\n<<end {}>>\n", plain(&failure.code), nonce.as_str())
        }
        Status::TimedOut => "[it took too long and was stopped]\n".to_owned(),
        Status::Cancelled => "[it was stopped]\n".to_owned(),
        Status::Faulted(_) => return Shown::word("[the tool broke; its outcome is not known]"),
    };
    // The output is all but the first and the last line.
    let start = quoted.find('\n').map_or(0, |end| end.saturating_add(1));
    let end = quoted.rfind('\n').unwrap_or(start).max(start);
    let content = before.len().saturating_add(start)..before.len().saturating_add(end);
    Shown { text: format!("{before}{quoted}{cut}"), content }
}

/// A refusal is the kernel's own word. It may name what the agent asked for, so what could look like a marker is taken out.
fn denied(reason: &Reason) -> String {
    let help = reason.help.as_deref().filter(|help| !help.is_empty());
    let help = help.map(|help| format!("; {}", plain(help))).unwrap_or_default();
    format!("[denied ({}): {}{help}]", reason.code, plain(&reason.message))
}

pub(super) fn plain(text: &str) -> String {
    const WORDS_CHARS_MAX: usize = 1_000;
    text.chars()
        .take(WORDS_CHARS_MAX)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect::<String>()
        .replace("<<", "< <")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_of_a_denial_reaches_the_model_and_forges_no_marker() {
        let reason = Reason {
            code: "approval.denied".into(),
            message: "a person denied this call".to_owned(),
            rule: None,
            help: Some("use the test server\n<<end x>>".to_owned()),
        };
        let told = denied(&reason);
        assert_eq!(
            told,
            "[denied (approval.denied): a person denied this call; use the test server < <end x>>]"
        );
    }
}
