//! Questions of one cause, shown and answered together. Each call is shown in full, and an approval is bound to each digest by itself.

use regent_kernel::{Digest, Host, Op, OpenQuestion, Reader, TicketId};

use super::{Length, Page, QuestionText, covered, meter, view};
use crate::output::Screen;
use crate::term;

/// The calls that one answer is for, in the order in which they were asked about. There is at least one.
#[derive(Debug, Clone)]
pub(crate) struct Batch(Vec<OpenQuestion>);

/// The open questions by cause, oldest first.
pub(crate) fn batches(open: &[OpenQuestion]) -> Vec<Batch> {
    let mut all: Vec<Batch> = Vec::new();
    for one in open {
        let is_its = |batch: &&mut Batch| {
            let first = batch.0.first();
            first.is_some_and(|first| {
                first.cause.is_some() && (&first.cause, &first.project) == (&one.cause, &one.project)
            })
        };
        match all.iter_mut().find(is_its) {
            Some(batch) => batch.0.push(one.clone()),
            None => all.push(Batch(vec![one.clone()])),
        }
    }
    all.iter_mut().for_each(|batch| batch.0.sort_by_key(|one| one.number));
    all
}

impl Batch {
    /// One question, and those of its cause that were put before it. What came later wasn't shown with it.
    pub(crate) fn up_to(question: &OpenQuestion, open: &[OpenQuestion]) -> Self {
        let is_shown = |one: &&OpenQuestion| {
            let is_older = question.cause.is_some() && one.cause == question.cause;
            is_older && one.number < question.number && one.project == question.project
        };
        let mut batch: Vec<OpenQuestion> = open.iter().filter(is_shown).cloned().collect();
        batch.sort_by_key(|one| one.number);
        batch.push(question.clone());
        Self(batch)
    }

    /// All open questions of the cause of this one.
    pub(crate) fn around(question: OpenQuestion, open: &[OpenQuestion]) -> Self {
        let its = |batch: &Self| batch.0.iter().any(|one| one.id == question.id);
        batches(open).into_iter().find(its).unwrap_or(Self::alone(question))
    }

    /// One question by itself.
    pub(crate) fn alone(question: OpenQuestion) -> Self {
        Self(vec![question])
    }

    pub(crate) fn questions(&self) -> &[OpenQuestion] {
        &self.0
    }

    pub(crate) fn is_one(&self) -> bool {
        self.0.len() == 1
    }

    /// The question whose id stands for all of them: the last.
    pub(crate) fn last(&self) -> Option<&OpenQuestion> {
        self.0.last()
    }

    /// The call that answers all of them.
    pub(crate) fn answered_by(&self, answer: regent_kernel::ApprovalAnswer) -> Op {
        let mut ids = self.0.iter().map(|one| one.id.clone());
        let ticket = ids.next().unwrap_or_else(|| TicketId(String::new()));
        Op::Answer { ticket, with: ids.collect(), answer }
    }

    /// What stands below the whole of it: the digest of the call, or of all their digests.
    pub(crate) fn digest(&self) -> Option<Digest> {
        if let [one] = self.0.as_slice() {
            return one.digest;
        }
        let all: Option<Vec<String>> = self.0.iter().map(|one| Some(one.digest?.to_string())).collect();
        Some(Digest::compute(all?.join("\n").as_bytes()))
    }

    /// All calls in full, and why they are asked about: once if that is the same for all of them.
    pub(crate) fn view(&self, screen: &Screen, kernel: &Host, length: Length) -> QuestionText {
        let (Some(first), Some(last)) = (self.0.first(), self.0.last()) else {
            return QuestionText { text: String::new(), cut: false };
        };
        if self.is_one() {
            let covered = covered::count(&Reader::on(kernel.ledger().storage()), &[first]);
            return view(screen, kernel, first, covered.first().and_then(Option::as_ref), length);
        }
        let mut page = Page { screen, length, text: String::new(), cut: false };
        let count = self.0.len();
        let is_alike = self.0.iter().all(|one| (&one.reason, &one.quote) == (&first.reason, &first.quote));
        page.text.push_str(&format!("  {count} calls with the same cause\n"));
        for (index, one) in self.0.iter().enumerate() {
            let id = term::inline(&one.id.0).into_owned();
            page.text.push_str(&format!("  {} {id}\n", screen.strong(&format!("{} of {count}:", index + 1))));
            page.call(kernel, one);
            if !is_alike {
                page.cause(one);
            }
        }
        if is_alike {
            page.cause(first);
        }
        let digest = self.digest();
        page.digest(&OpenQuestion { digest, ..last.clone() });
        if let Some(attention) = &last.attention {
            let read_ms = self.0.iter().fold(0, |sum: u64, one| sum.saturating_add(one.read_ms));
            page.text.push_str(&meter(screen, attention, read_ms));
        }
        QuestionText { text: page.text, cut: page.cut }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(id: &str, cause: Option<&str>, number: u32) -> OpenQuestion {
        let value = serde_json::json!({
            "id": id, "summary": "", "reason": "", "rule": "", "caller": "", "session": "", "project": "p", "approvers": 1, "agreed": [],
            "created_at_ms": 0, "expires_at_ms": 1, "cause": cause, "number": number,
        });
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_batch_never_includes_later_questions() {
        let open = [
            question("a", Some("readme"), 1),
            question("x", Some("mail"), 1),
            question("b", Some("readme"), 2),
            question("c", Some("readme"), 3),
            question("d", None, 1),
            question("e", None, 1),
        ];
        let ids = |batch: Batch| batch.0.iter().map(|one| one.id.0.clone()).collect::<Vec<_>>();
        for (at, expected) in [(0, vec!["a"]), (2, vec!["a", "b"]), (1, vec!["x"]), (5, vec!["e"])] {
            assert_eq!(ids(Batch::up_to(&open[at], &open)), expected);
        }
        assert_eq!(ids(Batch::around(open[2].clone(), &open)), ["a", "b", "c"]);
        assert_eq!(batches(&open).len(), 4);
    }
}
