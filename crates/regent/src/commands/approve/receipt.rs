//! What an answer to several calls came to.

use regent_kernel::{OpenQuestion, SkipReason, Skipped};

use crate::question::Batch;
use crate::term;

/// The calls that got the answer, and those that didn't with the reason.
pub(super) fn text(word: &str, by: &str, batch: &Batch, skipped: &[Skipped]) -> String {
    let why = |one: &OpenQuestion| skipped.iter().find(|skipped| skipped.id == one.id).map(|one| one.why);
    let by = term::inline(by);
    let (left, got): (Vec<_>, Vec<_>) = batch.questions().iter().partition(|one| why(one).is_some());
    let mut text = match got.as_slice() {
        [one] => format!("{word} {} as {by}\n", term::inline(&one.id.0)),
        several => format!("{word} {} calls as {by}\n", several.len()),
    };
    for one in got {
        text.push_str(&format!("  {}\n", term::block(&one.summary).replace('\n', "\n  ")));
    }
    for one in left {
        let why = match why(one) {
            Some(SkipReason::Denied) => "it was denied before, and a denial is final",
            Some(SkipReason::Over) | None => "it was used or has expired",
        };
        text.push_str(&format!("skipped {}: {why}\n", term::inline(&one.id.0)));
        text.push_str(&format!("  {}\n", term::block(&one.summary).replace('\n', "\n  ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use regent_kernel::TicketId;
    use serde_json::json;

    use super::*;

    fn question(number: u32) -> OpenQuestion {
        let value = json!({
            "id": format!("q{number}"), "summary": format!("rm {number}.txt"), "reason": "", "rule": "", "caller": "", "session": "",
            "project": "p", "approvers": 1, "agreed": [], "created_at_ms": 0, "expires_at_ms": 1, "cause": "readme", "number": number,
        });
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn only_calls_that_got_the_answer_are_counted_and_the_others_are_named() {
        let open = [question(1), question(2), question(3)];
        let batch = Batch::up_to(&open[2], &open);
        assert_eq!(
            text("approved", "ada", &batch, &[]),
            "approved 3 calls as ada\n  rm 1.txt\n  rm 2.txt\n  rm 3.txt\n"
        );
        let skip = |id: &str, why| Skipped { id: TicketId(id.to_owned()), why };
        let skipped = [skip("q1", SkipReason::Denied), skip("q3", SkipReason::Over)];
        assert_eq!(
            text("approved", "ada", &batch, &skipped),
            "approved q2 as ada\n  rm 2.txt\nskipped q1: it was denied before, and a denial is final\n  rm 1.txt\n\
             skipped q3: it was used or has expired\n  rm 3.txt\n"
        );
    }
}
