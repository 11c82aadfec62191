//! The one error type of the command line: what, where, why, and what to do next.

use std::borrow::Cow;
use std::path::Path;

use regent_kernel::{Denial, Fault, Reason};
use regent_runtime::TaskError;
use regent_skills::SkillError;
use regent_store::StateError;
use regent_tools::generated::GeneratedError;
use serde_json::{Value, json};

use crate::codes::{self, Code};
use crate::commands::audit;
use crate::state;

/// Why a command did not do what was asked.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    /// A stable word that `regent explain` knows.
    pub(crate) code: Cow<'static, str>,
    /// How the program ends.
    pub(crate) exit: u8,
    /// What happened, in a sentence.
    pub(crate) message: String,
    /// What to do next.
    pub(crate) help: Option<String>,
    /// The lines of a file that are at fault.
    pub(crate) excerpt: Option<Box<Excerpt>>,
    /// What is known all the same, for `--json`.
    pub(crate) data: Value,
}

/// What a mistyped word most likely means, before the usual help.
pub(crate) fn did_you_mean<'w>(
    word: &str,
    known: impl IntoIterator<Item = &'w str>,
    otherwise: &str,
) -> String {
    match regent_policy::nearest(word, known) {
        Some(meant) => format!("did you mean `{meant}`? {otherwise}"),
        None => otherwise.to_owned(),
    }
}

/// A file with the places that are at fault.
#[derive(Debug, Clone)]
pub(crate) struct Excerpt {
    /// The file's name as it is shown.
    pub(crate) name: String,
    /// All of its text.
    pub(crate) text: String,
    /// The places.
    pub(crate) marks: Vec<ExcerptMark>,
}

/// One place in a file.
#[derive(Debug, Clone)]
pub(crate) struct ExcerptMark {
    /// Line, from 1.
    pub(crate) line: usize,
    /// Column, from 1.
    pub(crate) column: usize,
    /// Byte offset.
    pub(crate) offset: usize,
    /// Length in bytes.
    pub(crate) length: usize,
    /// What is wrong there.
    pub(crate) message: String,
    /// What to do about it.
    pub(crate) help: Option<String>,
}

impl Failure {
    /// A failure of our own.
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code: code.id.into(),
            exit: code.exit,
            message: message.into(),
            help: None,
            excerpt: None,
            data: Value::Null,
        }
    }

    /// A failure that another part has named.
    pub(crate) fn named(code: impl Into<Cow<'static, str>>, exit: u8, message: impl Into<String>) -> Self {
        Self { code: code.into(), exit, ..Self::new(codes::INTERNAL, message) }
    }

    /// A refusal with its reason.
    pub(crate) fn of_reason(reason: Reason) -> Self {
        let exit = codes::exit_of(&reason.code);
        Self { help: reason.help, ..Self::named(reason.code, exit, reason.message) }
    }

    /// The kernel didn't close well after the command was done. What was done is recorded; it must not be done again.
    pub(crate) fn unclosed(fault: Fault) -> Self {
        if let Fault::Unrecorded { .. } = &fault {
            return fault.into();
        }
        Self::new(
            codes::KERNEL_UNCLOSED,
            format!("the command finished, but the kernel did not close: {fault}"),
        )
        .help("don't repeat it: it was done and recorded. Fix the disk; the next start does the rest")
        .data(json!({"happened": true}))
    }

    /// A file or folder could not be used.
    pub(crate) fn io(doing: &str, path: &Path, error: &std::io::Error) -> Self {
        let is_full =
            matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded);
        let code = if is_full { codes::LEDGER_UNWRITABLE } else { codes::IO };
        Self::new(code, format!("can't {doing} `{}`: {error}", path.display()))
    }

    /// Adds what to do next.
    #[must_use]
    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Adds what is known all the same.
    #[must_use]
    pub(crate) fn data(mut self, data: Value) -> Self {
        self.data = data;
        self
    }

    /// Adds the lines that are at fault.
    #[must_use]
    pub(crate) fn excerpt(mut self, excerpt: Excerpt) -> Self {
        self.excerpt = Some(Box::new(excerpt));
        self
    }

    /// What `--json` says.
    pub(crate) fn to_json(&self) -> Value {
        let places = self.excerpt.as_ref().map(|excerpt| {
            let places = excerpt.marks.iter().map(|mark| {
                json!({"file": excerpt.name, "line": mark.line, "column": mark.column, "message": mark.message, "help": mark.help})
            });
            places.collect::<Vec<_>>()
        });
        let mut error = json!({"code": self.code, "message": self.message, "help": self.help});
        if let (Some(places), Some(fields)) = (places, error.as_object_mut()) {
            fields.insert("places".to_owned(), places.into());
        }
        error
    }
}

impl From<Denial> for Failure {
    fn from(denial: Denial) -> Self {
        let reason = denial.reason;
        let by = reason.rule.as_ref().map(|rule| format!(" by rule {rule}")).unwrap_or_default();
        let failure = Self::named(
            reason.code.clone().into_owned(),
            codes::exit_of(&reason.code),
            format!("denied{by}: {}", reason.message),
        );
        let data = json!({"verdict": "deny", "code": reason.code, "reason": reason.message, "rule": reason.rule, "intent": denial.intent});
        Self { help: reason.help, ..failure }.data(data)
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        let message = fault.to_string();
        match fault {
            Fault::NotRunning(_) => {
                Self::new(codes::KERNEL_SEALED, message).help("`regent audit verify` says what is wrong")
            }
            Fault::Ledger(_) => {
                Self::new(codes::LEDGER_UNWRITABLE, message).help("nothing was done; fix this and try again")
            }
            Fault::Unrecorded { intent, .. } => {
                let help = format!(
                    "don't repeat it before you have checked its effect. `regent audit show {}/{}` shows the call; the next start settles the record",
                    intent.lane, intent.seq
                );
                Self::new(codes::OUTCOME_UNRECORDED, message)
                    .help(help)
                    .data(json!({"happened": true, "intent": intent}))
            }
            Fault::State(StateError::Full) => state::full(message),
            Fault::State(StateError::Unreachable(_)) => state::unreachable(message),
            Fault::State(_) => Self::new(codes::STATE_UNUSABLE, message).help("`regent doctor` checks it"),
            Fault::Record(_) => Self::new(codes::INPUT_JSON, message),
            Fault::Read(_) => {
                Self::new(codes::AUDIT_UNREADABLE, message).help("for details run `regent audit verify`")
            }
            Fault::Body(error) => audit::unreadable_body(&error),
            Fault::Executor { .. } => {
                sandbox_closed().unwrap_or_else(|| Self::new(codes::KERNEL_FAULT, message))
            }
            Fault::Diverged { .. } => Self::new(codes::TASK_DIVERGED, message).help(
                "`regent task replay` shows how far the record goes; `regent task fork` continues from a step",
            ),
            Fault::Erased(_) => Self::new(codes::TASK_ERASED, message)
                .help("`regent task fork --at STEP` continues from an earlier step"),
            Fault::TooDeep | Fault::TornDown => Self::new(codes::KERNEL_FAULT, message),
        }
    }
}

impl From<TaskError> for Failure {
    fn from(error: TaskError) -> Self {
        let message = error.to_string();
        let code = match error {
            TaskError::Fault(fault) => return fault.into(),
            TaskError::Unknown(_) => {
                return Self::new(codes::TASK_UNKNOWN, message).help("`regent task list` shows them");
            }
            TaskError::Over(..) => {
                return Self::new(codes::TASK_OVER, message)
                    .help("`regent task fork ID --at STEP` starts a new task from it");
            }
            TaskError::Denied(reason) => {
                let exit = codes::exit_of(&reason.code);
                return Self {
                    help: reason.help.clone(),
                    ..Self::named(reason.code.clone().into_owned(), exit, message)
                };
            }
            TaskError::NoTool(..) => {
                return Self::new(codes::TASK_NO_TOOL, message).help("`regent tool list` shows them");
            }
            TaskError::Busy(_) => codes::TASK_BUSY,
            TaskError::Planned(_) => codes::TASK_PLANNED,
            TaskError::Full(_) => codes::TASK_FULL,
            TaskError::Goal => codes::TASK_GOAL,
            TaskError::ToolChanged(_) => codes::TASK_TOOL_CHANGED,
            TaskError::Random(_) => codes::INTERNAL,
            TaskError::Lock(_) => codes::IO,
            TaskError::Snapshot(_) => codes::TASK_SNAPSHOT,
            TaskError::Stop(_) => codes::TASK_FAILED,
        };
        Self::new(code, message)
    }
}

impl From<GeneratedError> for Failure {
    fn from(error: GeneratedError) -> Self {
        let failure = Self::named(error.code(), codes::exit_of(error.code()), error.to_string());
        if let GeneratedError::Interpreter(name) = &error {
            return failure.help(format!("`regent tool renew {name}` tests it again"));
        }
        if let GeneratedError::Changed { .. } = &error {
            return failure.help("restore the approved version, or run `regent tool remove`");
        }
        failure
    }
}

impl From<SkillError> for Failure {
    fn from(error: SkillError) -> Self {
        let failure = Self::named(error.code(), codes::exit_of(error.code()), error.to_string());
        match &error {
            SkillError::Changed { differences, .. } => {
                let data = json!({"differences": differences});
                failure
                    .data(data)
                    .help("`regent skill update` downloads it again, `regent skill remove` removes it")
            }
            SkillError::NotGranted { wanted, .. } => {
                let flags: Vec<String> = wanted.split(", ").map(|one| format!("--grant {one}")).collect();
                failure.help(format!("to grant it: {}", flags.join(" ")))
            }
            SkillError::Blocked(_) => failure
                .help("review the findings (`regent skill scan`); to install anyway: --accept-findings"),
            SkillError::Unknown(_) => failure.help("`regent skill list` shows installed skills"),
            SkillError::Unagreed(_) | SkillError::NotAgreed { .. } => {
                failure.help("review it (`regent skill scan .regent/skills/NAME`), then run `regent trust`")
            }
            SkillError::Pins { .. } => {
                failure.help("remove it and approve your skills again with `regent trust`")
            }
            SkillError::Io { .. }
            | SkillError::Package(_)
            | SkillError::Skill(_)
            | SkillError::Lock(_)
            | SkillError::Signature(_)
            | SkillError::Swapped { .. } => failure,
        }
    }
}

/// Why no program can be confined here, if that is so. Found out by trying, so it is asked only after something broke.
fn sandbox_closed() -> Option<Failure> {
    let probe = regent_sandbox::probe();
    let closed = probe.full.as_ref()?;
    let message = match &probe.fallback {
        Some(also) => format!("no sandbox is available here: {}; {}", closed.reason, also.reason),
        None => format!("the required sandbox (`sandbox.floor`) is not available: {}", closed.reason),
    };
    let failure = Failure::new(codes::SANDBOX_UNAVAILABLE, message);
    Some(match &closed.fix {
        Some(fix) => failure.help(fix.clone()),
        None => failure.help("`regent doctor` says what this machine lacks"),
    })
}

#[cfg(test)]
mod tests {
    use regent_kernel::Fault;
    use regent_ledger::{AppendError, Digest, Ledger, LedgerKey};

    use super::{Failure, StateError};
    use crate::codes;

    #[test]
    fn f2_what_happened_and_was_not_recorded_has_a_code_and_an_exit_status_of_its_own() {
        let ledger = Ledger::in_memory(LedgerKey::generate().unwrap());
        let lane = ledger.head().lane;
        let intent = regent_ledger::Receipt { lane, seq: 7, hash: Digest::compute(b"") };
        let happened = Failure::from(Fault::Unrecorded { intent, why: "no room".to_owned() });
        assert_eq!((happened.code.as_ref(), happened.exit), ("outcome.unrecorded", 16));
        assert!(happened.message.contains("was made"), "{}", happened.message);
        let help = happened.help.as_deref().unwrap();
        assert!(help.contains("don't repeat") && help.contains("/7"), "{help}");
        assert!(!help.contains("nothing was done"), "{help}");
        // Nobody else ends with it, and the other case still says that nothing was done.
        assert_eq!(codes::all().iter().filter(|code| code.exit == 16).count(), 1);
        // A close that fails after the command was done is neither.
        for fault in [Fault::Ledger(AppendError::Full), Fault::State(StateError::Full)] {
            let unclosed = crate::calls::settled(Ok(()), Err(fault)).unwrap_err();
            assert_eq!((unclosed.code.as_ref(), unclosed.exit), ("kernel.unclosed", 17));
            let said = format!("{} {:?}", unclosed.message, unclosed.help);
            assert!(said.contains("don't repeat") && !said.contains("nothing was done"), "{said}");
        }
        let nothing = Failure::from(Fault::Ledger(AppendError::Full));
        assert_eq!((nothing.code.as_ref(), nothing.exit), ("ledger.unwritable", 75));
        assert!(nothing.help.as_deref().unwrap().contains("nothing was done"));
    }
}
