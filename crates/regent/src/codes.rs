//! Every error code that a user can meet: its exit code, and the longer text of `regent explain CODE`.
//!
//! Codes of our own are constants of type [`Code`], so that a failure can't carry one that isn't explained. Codes that the
//! kernel, policy and tools answer with arrive as text; a test reads their sources and demands an entry here for each.

mod callers;
mod guests;
mod models;
mod others;

use callers::CALLERS;
use guests::GUESTS;
use models::MODELS;
use others::OTHERS;

/// The exit codes.
pub(crate) mod exit {
    /// As it should.
    pub(crate) const OK: u8 = 0;
    /// Something went wrong that has no code of its own.
    pub(crate) const ERROR: u8 = 1;
    /// The command line is at fault.
    pub(crate) const USAGE: u8 = 2;
    /// A config or policy file is at fault.
    pub(crate) const INVALID_FILE: u8 = 3;
    /// Somebody has to say who they are.
    pub(crate) const AUTHENTICATION: u8 = 4;
    /// It isn't there.
    pub(crate) const NOT_FOUND: u8 = 5;
    /// Already there, or already running.
    pub(crate) const CONFLICT: u8 = 6;
    /// Policy denies the call.
    pub(crate) const DENIED: u8 = 10;
    /// An approval is needed first.
    pub(crate) const APPROVAL: u8 = 11;
    /// A budget is used up.
    pub(crate) const BUDGET: u8 = 12;
    /// The sandbox isn't available, or a limit of it was reached.
    pub(crate) const SANDBOX: u8 = 13;
    /// The ledger doesn't verify.
    pub(crate) const LEDGER: u8 = 14;
    /// Another kernel process can't be reached.
    pub(crate) const UNREACHABLE: u8 = 15;
    /// The call took effect, but its outcome couldn't be recorded. Not to be repeated.
    pub(crate) const UNRECORDED: u8 = 16;
    /// The command was done and recorded, but the kernel did not close well. Not to be repeated.
    pub(crate) const UNCLOSED: u8 = 17;
    /// The task failed.
    pub(crate) const TASK: u8 = 20;
    /// The task has an answer, and what was done doesn't bear it out.
    pub(crate) const UNVERIFIED: u8 = 21;
    /// Try again later.
    pub(crate) const TEMPORARY: u8 = 75;
    /// Interrupted from the keyboard, as shells count it.
    pub(crate) const INTERRUPTED: u8 = 130;
}

/// An error code with its exit code and explanation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code {
    /// The stable word.
    pub(crate) id: &'static str,
    /// How the program ends.
    pub(crate) exit: u8,
    /// What `regent explain` says.
    pub(crate) text: &'static str,
}

const fn code(id: &'static str, exit: u8, text: &'static str) -> Code {
    Code { id, exit, text }
}

macro_rules! codes {
    ($($name:ident = $id:literal, $exit:expr, $text:literal;)*) => {
        $(pub(crate) const $name: Code = Code { id: $id, exit: $exit, text: $text };)*
        /// All codes of the command line itself.
        const OWN: &[Code] = &[$($name),*];
    };
}

codes! {
    APPROVAL_NEEDED = "approval.needed", exit::APPROVAL, "A rule requires your approval for this exact call. On a terminal `regent` asks; elsewhere it exits with 11 and names the question. `regent approve list` shows pending questions. `regent approve ID` approves one (once, unless `--scope` says otherwise), `regent deny ID` denies it. An approval covers exactly the call that was shown: other arguments, another caller or a changed file need a new approval.";
    APPROVAL_REFUSED = "approval.refused", exit::DENIED, "This call was denied at the prompt.";
    APPROVAL_SESSION = "approval.session", exit::CONFLICT, "The process that asked has ended, and its session with it, so an approval for that session would have no effect. Approve with `--scope once` (the default) or `--scope project`.";
    APPROVAL_UNKNOWN = "approval.unknown", exit::NOT_FOUND, "No open question has this id. It may have been answered, or have expired. `regent approve list` shows the open ones.";
    APPROVAL_ELSEWHERE = "approval.elsewhere", exit::USAGE, "The question belongs to another project. All projects of a user share one list of questions, but the call, its files and its ledger are in the other project. Answer it there, with `regent -C DIR approve ID`.";
    APPROVAL_UNSEEN = "approval.unseen", exit::USAGE, "The short form of the question left out a part of the call. `regent approve show ID --all` shows it in full and ends with a digest. Pass that with `--digest`, or pass `--unseen` to approve without having seen all of it.";
    APPROVAL_WAITING = "approval.waiting", exit::APPROVAL, "Your approval is recorded, but the rule requires more approvers. One person counts once, in any session. The call can run when the others have approved.";
    AGENT_UNKNOWN = "agent.unknown", exit::NOT_FOUND, "None of your running kernels has an agent with this id. `regent agent ps` lists running agents.";
    AUDIT_BROKEN = "audit.broken", exit::LEDGER, "The ledger on disk is not what was written: an entry was changed, removed, added or reordered, or a signature doesn't match. The message names the first bad entry. Regent repairs nothing: keep the folder as it is, compare it with a backup or an exported checkpoint, and find out who could write there. Regent refuses new calls until the ledger verifies.";
    AUDIT_OTHER_KEY = "audit.other_key", exit::LEDGER, "The ledger is signed with another key: it belongs to somebody else, or it is yours from before the key was replaced. It isn't damaged: `regent audit verify --ledger DIR --key KEY` verifies it with the key that signed it. Regent doesn't write to it. `regent audit begin-anew --because REASON` moves it aside and starts a new ledger.";
    AUDIT_REPLACED = "audit.replaced", exit::LEDGER, "The ledger in this project isn't the one that was here: it is gone, older, truncated, or a different one. A witness in your state folder remembers the head of every lane. `git clean -fdx`, a new clone at the same path, a folder that was removed and recreated, and a backup restored by hand all cause this; so would someone who wants to hide history. Decide first: `regent audit restore DIR --because REASON` puts a backup in place, or, without DIR, accepts the current ledger; `regent audit begin-anew --because REASON` starts a new one and moves the current one aside. Either way the first entry of the new lane records what the witness knew and what is lost.";
    AUDIT_UNPROVEN = "audit.unproven", exit::LEDGER, "The ledger verifies up to its last signed checkpoint, but no signature covers the entries after it. A crash causes this, and so could someone who cut off the end and wrote another. The next kernel that opens the ledger records and settles the tail. If in doubt, compare with an exported checkpoint (`--expect`).";
    AUDIT_NO_ENTRY = "audit.no_entry", exit::NOT_FOUND, "The ledger has no such entry. `regent audit tail` shows the newest ones with their LANE/SEQ.";
    AUDIT_NONE = "audit.none", exit::NOT_FOUND, "This project has no ledger yet: Regent has recorded nothing here.";
    AUDIT_UNREADABLE = "audit.unreadable", exit::ERROR, "The ledger's files can't be read: a permission is missing, or the disk fails.";
    AUDIT_PROOF = "audit.proof", exit::LEDGER, "An inclusion proof or an export doesn't lead to the signed root: its content isn't in that ledger.";
    AUTH_FILE = "auth.file", exit::AUTHENTICATION, "Others can read the file with the token, or it isn't a regular file. `chmod 600 FILE`, or pass the token with `--token-fd`.";
    BUDGET_VALUE = "budget.value", exit::USAGE, "The limit can't be parsed. Money is `0.50usd` (up to six decimal places), the others are `tokens=20000`, `calls=50`, `time=10m`, `bytes=1000000` and `questions=3`. Separate several with commas.";
    CONFIG_INVALID = "config.invalid", exit::INVALID_FILE, "A settings file has an unknown key or an invalid value. The message points at the line. `regent config show --origin` lists every key with its value and source.";
    CONFIG_KEY = "config.key", exit::USAGE, "There is no such setting, or a project may not set it. `regent config show` lists the settings.";
    CONFIG_VALUE = "config.value", exit::USAGE, "The setting can't have this value; the message lists the valid ones.";
    CONTROL_UNREACHABLE = "control.unreachable", exit::UNREACHABLE, "A kernel process exists but didn't answer on its control socket. It may be shutting down or stopped. `regent doctor` checks the sockets.";
    DEMO_UNEXPECTED = "demo.unexpected", exit::ERROR, "A step of the demonstration failed on this machine. The message names the step; `regent doctor` says what the machine lacks.";
    DOCTOR_FAILED = "doctor.failed", exit::ERROR, "At least one check failed. Each names the problem and the fix; `regent doctor --fix` fixes what is safe to fix automatically.";
    FOLDER_LINKED = "folder.linked", exit::DENIED, "`.regent`, a folder in it, or a control file of the project is a link or has the wrong type. Regent keeps tools out of `.regent` by its name; behind a link they could reach the ledger and the policy, and a clone can contain such a link. Check where it leads, remove it, and run `regent init` or `regent trust` again.";
    FOLDER_NONE = "folder.none", exit::NOT_FOUND, "Neither this folder nor one above it has a `.regent/` folder. `regent init` creates one here.";
    FOLDER_WIDE = "folder.wide", exit::USAGE, "An agent in this folder could reach your home folder or a folder where Regent keeps its keys, policy, state or control socket, because one contains the other. Or all users of the machine share the folder, like `/tmp`. Regent checks this at every start, with links resolved. A folder below your home is fine: create one for the work and run `regent init` there.";
    FOLDER_UNTRUSTED = "folder.untrusted", exit::DENIED, "Nothing in a folder takes effect before you have trusted it: its policy and settings may come from a download. Review `.regent/policy.yml`, then run `regent trust`. A change to one of these files needs trust again. A project's files can only narrow your own policy.";
    HOME_NONE = "home.none", exit::ERROR, "HOME isn't set, so Regent has no place for your policy and keys. Set HOME, or the XDG_*_HOME variables.";
    INPUT_JSON = "input.json", exit::USAGE, "The input isn't JSON as Regent reads it: one value, no duplicate keys, no number that readers interpret differently (NaN, 1e999, beyond 2^53), no lone surrogate, no byte order mark, at most 64 levels. Policy and the tool must see the same value.";
    INPUT_SIZE = "input.size", exit::USAGE, "The input is larger than the command line accepts.";
    INTERNAL = "internal", exit::ERROR, "This is a bug in Regent. Nothing that was acknowledged is lost: Regent writes the ledger before anything happens. Please report the message; `RUST_BACKTRACE=1` adds where it happened.";
    INTERRUPTED = "interrupted", exit::INTERRUPTED, "You interrupted the command. A running call was stopped, and the ledger says so. An open question stays open.";
    GC_NOT_REMOVED = "gc.not_removed", exit::ERROR, "`regent gc` couldn't remove something; the message says what and why. Earlier removals are recorded, and the next `regent gc` continues with the rest.";
    IO = "io", exit::ERROR, "A file or folder can't be read or written; the message says which and why.";
    KERNEL_SEALED = "kernel.sealed", exit::LEDGER, "The kernel accepts no calls because its ledger can't be trusted. `regent audit verify` says what is wrong.";
    KERNEL_FAULT = "kernel.fault", exit::ERROR, "The kernel failed to process the call. If an effect had begun, the ledger has its outcome.";
    LEDGER_UNWRITABLE = "ledger.unwritable", exit::TEMPORARY, "The ledger can't be written, so nothing was done: no record, no effect. The message says why (no space, a read-only disk, permissions). Fix that and run the same command again; nothing needs repair.";
    OUTCOME_UNRECORDED = "outcome.unrecorded", exit::UNRECORDED, "The call took effect, but its outcome couldn't be written to the ledger (the disk is full or fails). Don't repeat the command: that would do it twice. The exit status is 16, which no other error has. The message names the call's intent; `regent audit show LANE/SEQ` shows it. Check the result yourself, fix the disk, and start Regent again: the next start settles the record, and asks you if it can't determine what happened.";
    KERNEL_UNCLOSED = "kernel.unclosed", exit::UNCLOSED, "The command succeeded and the ledger has its outcome; then closing the ledger or the shared state failed (the disk is full or fails). Don't repeat the command. The exit status is 17, which no other error has. Fix the disk; the next start signs and indexes the rest.";
    LEDGER_KEY = "ledger.key", exit::ERROR, "The ledger's signing key in your data folder can't be used. It must be your own file that nobody else can read (mode 0600).";
    LEDGER_KEY_MISSING = "ledger.key_missing", exit::LEDGER, "The key that signs your ledgers is gone from your data folder, but ledgers that it signed exist. Regent doesn't create a new key silently: all your ledgers would look like somebody else's. Restore `ledger.key` from a backup. If it is lost, `regent audit begin-anew --new-key --because REASON` starts a new ledger for a project; the old one is kept beside it and still verifies with its public key.";
    LIMIT_FILES = "limit.files", exit::ERROR, "This process may open too few files to run a kernel, a sandbox and a ledger. `ulimit -n` shows the limit; `ulimit -n 1024` raises it if the system allows.";
    LIMIT_HIT = "limit.hit", exit::SANDBOX, "The program reached a limit and was stopped: wall clock, memory, output or processes. The message says which. A rule's `limits` sets them.";
    MODEL_CLASS = "model.class", exit::NOT_FOUND, "No settings and no earlier calls are about this class of tasks, so the router chooses as without one. `[router.classes.NAME]` in your settings file defines a class.";
    MODEL_DIGEST = "model.digest", exit::ERROR, "The downloaded weights have a different SHA-256. Regent kept nothing. If it happens again, the source has changed.";
    MODEL_NONE = "model.none", exit::NOT_FOUND, "No model is set up. `regent model pull` downloads one, or add `[models.NAME]` to your settings file; `regent model list` says where that file is.";
    MODEL_SOURCE = "model.source", exit::TEMPORARY, "The weights couldn't be downloaded, or the download was interrupted; the message says from where. The partial file is kept, and the same command resumes it. Without a hub, `pip` must be able to download packages.";
    MODEL_WEIGHTS = "model.weights", exit::NOT_FOUND, "There are no weights of this name to download. The message lists the available ones. You can put others into a folder and name it as `file` of a `[models.NAME]` with `kind = \"local\"`.";
    MODEL_WRITE = "model.write", exit::ERROR, "The weights can't be written: the disk is full, or the folder isn't writable. On a full disk nothing is left behind.";
    TASK_BUDGET = "task.budget", exit::BUDGET, "The task stopped because a budget is exhausted. Nothing is lost: raise it (`regent task resume ID --budget …`, or `regent budget set` for the project or the day), and the task continues.";
    TASK_BUSY = "task.busy", exit::CONFLICT, "The task is already running, here or in another process. `regent task cancel ID` stops it there.";
    TASK_CANCELLED = "task.cancelled", exit::INTERRUPTED, "The task was cancelled and won't run again. `regent task fork ID --at STEP` starts a new one from it.";
    TASK_DENIED = "task.denied", exit::DENIED, "Policy doesn't allow Regent to record the task or to start its agent.";
    TASK_FAILED = "task.failed", exit::TASK, "The task ended without an answer; the message says why. `regent task show ID` shows each step. After a temporary problem (a provider that is down) try `regent task resume ID`; otherwise `regent task fork ID --at STEP`, perhaps with another model.";
    TASK_FULL = "task.full", exit::TEMPORARY, "Too many tasks are waiting. Try again when some have ended.";
    TASK_GOAL = "task.goal", exit::USAGE, "A task needs a goal, on the command line or on standard input (`-`).";
    TASK_LATER = "task.later", exit::TEMPORARY, "The model's provider is unavailable or asked to be called later. Regent retried as often as useful, and nothing is lost: the message says when, and `regent task resume` continues all tasks whose time has come.";
    TASK_OVER = "task.over", exit::CONFLICT, "The task is over and won't run again. `regent task continue ID \"…\"` says more to one that has completed; `regent task fork ID --at STEP` starts a new one from its earlier steps.";
    TASK_PAUSED = "task.paused", exit::INTERRUPTED, "You interrupted the task. It stopped between two steps; `regent task resume ID` continues it, `regent task cancel ID` ends it.";
    TASK_PLANNED = "task.planned", exit::CONFLICT, "The task follows a plan, which has no place for a message. Start a new task, or `regent task fork ID --at STEP`.";
    TASK_REPLAY = "task.replay", exit::ERROR, "Replayed from the ledger, the task gave another answer than the recorded one.";
    TASK_ROLLBACK = "task.rollback", exit::ERROR, "Some files couldn't be restored; each is listed with the reason. All others match the snapshot. Fix the reason, then run the same command again.";
    TASK_SNAPSHOT = "task.snapshot", exit::NOT_FOUND, "There is no such snapshot of the workspace, or it can't be restored. `regent task show ID` lists the snapshots.";
    TASK_STEP = "task.step", exit::USAGE, "The task has no such step. Give a turn such as `3`, or a full step such as `3/tool/0`; `regent task show ID` lists them.";
    TASK_TOOL_CHANGED = "task.tool_changed", exit::CONFLICT, "A task continues only with the tools that it started with, and one of them has changed. Restore the tool, or start the task again.";
    TASK_NO_TOOL = "task.no_tool", exit::NOT_FOUND, "There is no tool of that name. `regent tool list` shows them.";
    TASK_UNKNOWN = "task.unknown", exit::NOT_FOUND, "No task of this project has this id, or several ids begin with it. `regent task list` shows them.";
    TASK_UNDONE = "task.undone", exit::DENIED, "The task ended, but some of its calls were denied because no operator was available (`--unattended deny`, or the setting `task.unattended`). They are listed, and the answer is on stdout. Regent didn't record this as your answer. Name what you want in the goal, allow it by a rule, or run the task at a terminal.";
    TASK_UNVERIFIED = "task.unverified", exit::UNVERIFIED, "The task has an answer, but what was done doesn't bear it out: a change was asked for and none was made, the last change failed, or a file that the goal names isn't there. `regent task show ID` shows each step, `regent task rollback ID` undoes what was changed, `regent task continue ID \"…\"` says what is missing.";
    TASK_WAITS = "task.waits", exit::APPROVAL, "A call of the task needs your approval, and no operator was available. Answer the question (`regent approve ID` or `regent deny ID`), then run `regent task resume`.";
    TASK_DIVERGED = "task.diverged", exit::ERROR, "To continue, a task runs again and its record supplies the results. At this step it made another call than the recorded one, so nothing was done. A different program, prompt file or tool causes this. `regent task fork --at STEP` starts a new task from the earlier steps.";
    TASK_ERASED = "task.erased", exit::ERROR, "The output of a step was erased, so the task can't be replayed beyond it. The ledger still proves that the step ran.";
    POLICY_NONE = "policy.none", exit::DENIED, "You have no policy of your own yet, and without one Regent denies everything. `regent init` writes a default policy with comments.";
    POLICY_INVALID = "policy.invalid", exit::INVALID_FILE, "A policy file has errors; each is shown with line and column. Regent never uses a policy that it can't read completely.";
    POLICY_BUNDLE = "policy.bundle", exit::INVALID_FILE, "The file isn't a bundle, the given key didn't sign it, or its content differs from what was signed. Regent used nothing of it.";
    POLICY_CASES = "policy.cases", exit::ERROR, "A test case of the policy gave another result than expected.";
    POLICY_LINT = "policy.lint", exit::ERROR, "The policy loads, but has a likely mistake.";
    PROGRAM_FAILED = "program.failed", exit::ERROR, "The program exited with a code other than 0, which is passed on.";
    SANDBOX_UNAVAILABLE = "sandbox.unavailable", exit::SANDBOX, "This machine can't provide the required sandbox, so the program was not run; Regent never falls back silently. `regent doctor` says what is missing and how to get it, often one sysctl for user namespaces.";
    SANDBOX_ESCAPE = "sandbox.escape", exit::SANDBOX, "A live probe escaped the sandbox, or reached something that it must not. Don't run programs until you know why.";
    SKILL_RENAMED = "skill.renamed", exit::CONFLICT, "The source of the skill now contains a skill of another name, so this isn't an update.";
    STATE_UNUSABLE = "state.unusable", exit::ERROR, "The database of approvals, rates and budgets can't be used. Regent refuses calls that need it.";
    STATE_FEATURE = "state.feature", exit::ERROR, "The setting `state.url_file` names a server of a kind that this build has no client for. Each kind is a feature, and none is in the default build. The message names the build command.";
    STATE_UNREACHABLE = "state.unreachable", exit::TEMPORARY, "The server of the shared state can't be reached, or the connection was lost. Calls that need approvals, rates or budgets fail until it is back. A step on the server is made whole or not at all. The setting `state.url_file` names the file with its address.";
    STATE_URL = "state.url", exit::INVALID_FILE, "The file with the address of the shared state holds a password, and others can read it, or it isn't a regular file. `chmod 600 FILE`.";
    STATE_FULL = "state.full", exit::TEMPORARY, "There is no space for the database of approvals, rates and budgets: the disk with your state folder is full, or a limit on file sizes (`ulimit -f`) is reached. Nothing was done. Free some space, then run the same command again.";
    STATE_GONE = "state.gone", exit::ERROR, "The database of approvals, rates and budgets existed and is now gone or empty. Budgets and rates would start from zero, so Regent does nothing until you decide: restore the file from a backup, or let `regent doctor --fix` create a new one. The ledger is not affected.";
    STATE_FILE = "state.file", exit::INVALID_FILE, "The file that lists your trusted folders is damaged. Until it is removed or repaired, nothing is trusted.";
    TERMINAL_NEEDED = "terminal.needed", exit::USAGE, "This command would ask you something, but there is no terminal. The message names the flag that answers.";
    TOKEN_UNKNOWN = "token.unknown", exit::NOT_FOUND, "No token has this id, or it was revoked. `regent token list` shows the tokens.";
    TOOL_FAILED = "tool.failed", exit::ERROR, "The call was allowed and made, and the tool reports a failure.";
    TOOL_NOT_BUILT = "tool.not_built", exit::SANDBOX, "This build has no WASM tier, which runs generated tools. It was built without the feature `wasm`.";
    TOOL_TIMED_OUT = "tool.timed_out", exit::SANDBOX, "The call reached its time limit (`limits.wall`) and was stopped.";
    TOOL_CANCELLED = "tool.cancelled", exit::INTERRUPTED, "A signal stopped the call before it had finished.";
    USAGE = "usage", exit::USAGE, "Regent doesn't know this command line. `regent help` lists the commands.";
    VAULT_EXISTS = "vault.exists", exit::CONFLICT, "The vault already has this secret. `regent vault rotate` gives a secret a new value, `regent vault remove` removes it.";
    VAULT_IMPORT = "vault.import", exit::INVALID_FILE, "The file can't be imported: it is neither a `.env` file nor a SOPS file for one of your age keys, or it was changed after encryption. Nothing was imported.";
    VAULT_LOCKED = "vault.locked", exit::AUTHENTICATION, "The vault needs a passphrase, and none or a wrong one was given. At a terminal `regent` prompts for it; elsewhere pass a file descriptor with `--passphrase-fd N`. Regent never reads it from the command line or the environment.";
    VAULT_NONE = "vault.none", exit::NOT_FOUND, "The vault has no secret of this name. `regent vault list` shows the names.";
    VAULT_UNUSABLE = "vault.unusable", exit::ERROR, "The vault's file or key can't be used: missing, damaged, or readable by others. Nothing was changed. Both must be your own files with mode 0600 in your data folder.";
    VAULT_VALUE = "vault.value", exit::USAGE, "A secret can't have this name, value or scope. Names are lower case letters, digits, and `.` `_` `/` `-` between them. Values have 8 to 16384 bytes: shorter ones occur in ordinary text, so masking them would destroy it.";
    UNKNOWN_CODE = "explain.unknown", exit::NOT_FOUND, "There is no such error code.";
}

/// The code of this name, wherever it comes from.
pub(crate) fn find(id: &str) -> Option<Code> {
    let policy = regent_policy::codes::ALL.iter().find(|(code, _)| *code == id).map(|(id, text)| Code {
        id,
        exit: exit::DENIED,
        text,
    });
    OWN.iter()
        .chain(OTHERS)
        .chain(MODELS)
        .chain(GUESTS)
        .chain(CALLERS)
        .find(|code| code.id == id)
        .copied()
        .or(policy)
}

/// All of them, by name.
pub(crate) fn all() -> Vec<Code> {
    let policy = regent_policy::codes::ALL.iter().map(|(id, text)| Code { id, exit: exit::DENIED, text });
    let mut all: Vec<Code> =
        OWN.iter().chain(OTHERS).chain(MODELS).chain(GUESTS).chain(CALLERS).copied().chain(policy).collect();
    all.sort_by_key(|code| code.id);
    all.dedup_by_key(|code| code.id);
    all
}

/// How a refusal with this code ends the program. Unknown ones are refusals all the same.
pub(crate) fn exit_of(id: &str) -> u8 {
    find(id).map_or(exit::DENIED, |code| code.exit)
}

#[cfg(test)]
mod tests;
