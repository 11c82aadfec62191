//! Every error code that a person can meet: its exit code, and the longer text of `regent explain CODE`.
//!
//! Codes of our own are constants of type [`Code`], so that a failure can't carry one that isn't explained. Codes that the
//! kernel, policy and tools answer with arrive as text; a test reads their sources and demands an entry here for each.

mod guests;
mod models;
mod others;

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
    /// Policy says no.
    pub(crate) const DENIED: u8 = 10;
    /// A person has to agree first.
    pub(crate) const APPROVAL: u8 = 11;
    /// A budget is used up.
    pub(crate) const BUDGET: u8 = 12;
    /// The sandbox can't be had, or a limit of it was hit.
    pub(crate) const SANDBOX: u8 = 13;
    /// The ledger doesn't verify.
    pub(crate) const LEDGER: u8 = 14;
    /// Another kernel process can't be reached.
    pub(crate) const UNREACHABLE: u8 = 15;
    /// The call took effect, but what came of it couldn't be recorded. Not to be repeated.
    pub(crate) const UNRECORDED: u8 = 16;
    /// The command was done and recorded, but the kernel did not close well. Not to be repeated.
    pub(crate) const UNCLOSED: u8 = 17;
    /// The task failed.
    pub(crate) const TASK: u8 = 20;
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
    APPROVAL_NEEDED = "approval.needed", exit::APPROVAL, "A rule of the policy says that a person has to agree to this exact call first. On a terminal \
        `regent` asks; elsewhere it exits with 11 and names the question. `regent approve list` shows all open questions, \
        `regent approve ID` answers yes (once, unless `--scope` says more), `regent deny ID` no. A yes holds for exactly the call that was \
        shown: other arguments, another caller or a changed file are asked about anew.";
    APPROVAL_REFUSED = "approval.refused", exit::DENIED, "A person was asked whether this call may be made, and said no.";
    APPROVAL_UNKNOWN = "approval.unknown", exit::NOT_FOUND, "There is no open question with this id: it may have been answered, or have expired. \
        `regent approve list` shows the open ones.";
    APPROVAL_ELSEWHERE = "approval.elsewhere", exit::USAGE, "The question belongs to another project. All projects of a user keep their questions in one place, so they are \
        listed together; but the call, its files and its ledger are in the other project. Answer it there, with `regent -C DIR approve ID`.";
    APPROVAL_UNSEEN = "approval.unseen", exit::USAGE, "The call is longer than the short form of its question, so a part of it was not shown. `regent approve show ID --all` \
        shows all of it and ends with a digest; give that with `--digest`, or `--unseen` to approve without having seen all of it.";
    APPROVAL_WAITING = "approval.waiting", exit::APPROVAL, "Your approval is recorded, but the rule wants more people than have agreed so far. One person counts once, whatever \
        session they answer in. The call can be made when the others have agreed.";
    AGENT_UNKNOWN = "agent.unknown", exit::NOT_FOUND, "No running kernel of yours knows an agent with this id. `regent agent ps` shows those that run.";
    AUDIT_BROKEN = "audit.broken", exit::LEDGER, "The ledger on disk is not what was written: an entry was changed, removed, added or reordered, or a \
        signature doesn't match. The message names the first bad entry. Nothing is repaired: keep the folder as it is, compare it with a \
        backup or an exported checkpoint, and find out who could write there. New calls are refused until it verifies.";
    AUDIT_OTHER_KEY = "audit.other_key", exit::LEDGER, "The ledger is signed, but not with your key: it is somebody else's, or it is yours from before the key was replaced. That is \
        not damage: `regent audit verify --ledger DIR --key KEY` verifies it with the key that signed it. Nothing is written to it. `regent audit begin-anew --because REASON` moves it aside and starts a ledger \
        of your own.";
    AUDIT_REPLACED = "audit.replaced", exit::LEDGER, "The ledger in this project isn't the one that was here: it is gone, older than it was, cut short, or another one. A witness in your state folder remembers the head of every lane. \
        `git clean -fdx`, a new clone at the same path, a folder that was removed and made anew, and a backup that was put back by hand all do this; so would someone who wants history to vanish. Nothing is done before you decide: \
        `regent audit restore DIR --because REASON` puts a backup in place, or, without DIR, accepts the ledger that is there; `regent audit begin-anew --because REASON` starts a new one and moves what is there aside. \
        Either way the first entry of the new lane says what the witness knew and what is lost.";
    AUDIT_UNPROVEN = "audit.unproven", exit::LEDGER, "The ledger verifies up to its last signed checkpoint, but entries stand after it that no signature \
        covers. A crash leaves this, and so could someone who cut the end off and wrote another. The next kernel that opens the ledger \
        records the tail and settles it; compare with an exported checkpoint (`--expect`) if in doubt.";
    AUDIT_NO_ENTRY = "audit.no_entry", exit::NOT_FOUND, "There is no such entry in the ledger. `regent audit tail` shows the newest ones with their LANE/SEQ.";
    AUDIT_NONE = "audit.none", exit::NOT_FOUND, "This project has no ledger yet: nothing has been done under Regent here.";
    AUDIT_UNREADABLE = "audit.unreadable", exit::ERROR, "The ledger's files can't be read, for want of permission or because the disk fails.";
    AUDIT_PROOF = "audit.proof", exit::LEDGER, "An inclusion proof or an export doesn't lead to the root that was signed: what it claims isn't in that ledger.";
    BUDGET_VALUE = "budget.value", exit::USAGE, "A limit that can't be understood. Money is `0.50usd` (up to six digits after the point), the others are `tokens=20000`, `calls=50`, \
        `time=10m`, `bytes=1000000` and `questions=3`; several are separated by commas.";
    CONFIG_INVALID = "config.invalid", exit::INVALID_FILE, "A settings file has an unknown key, or a value that the key can't have. The message points at \
        the line. `regent config show --origin` lists every key with its value and where that comes from.";
    CONFIG_KEY = "config.key", exit::USAGE, "There is no such setting. `regent config show` lists them.";
    CONFIG_VALUE = "config.value", exit::USAGE, "The setting can't have this value; the message says which it can.";
    CONTROL_UNREACHABLE = "control.unreachable", exit::UNREACHABLE, "A kernel process was found but didn't answer on its control socket. It may be ending, or be \
        stopped. `regent doctor` checks the sockets.";
    DEMO_UNEXPECTED = "demo.unexpected", exit::ERROR, "Something in the demonstration didn't go as it should on this machine. The step is named; `regent doctor` \
        says what the machine lacks.";
    DOCTOR_FAILED = "doctor.failed", exit::ERROR, "At least one check failed. Each names what is wrong and what to do; `regent doctor --fix` repairs what can be \
        repaired without risk.";
    FOLDER_LINKED = "folder.linked", exit::DENIED, "`.regent`, a folder in it, or a control file of the project is a link, or not what it should be. Tools are kept out of \
        `.regent` by its name; behind a link the ledger and the policy would be in their reach, and a clone can bring such a link. Look where it leads, remove it, and run \
        `regent init` or `regent trust` again.";
    FOLDER_NONE = "folder.none", exit::NOT_FOUND, "Neither this folder nor one above it has a `.regent/` folder. `regent init` makes one here.";
    FOLDER_WIDE = "folder.wide", exit::USAGE, "The folder contains your home folder, or a folder where Regent keeps its keys, policy, state or control socket, or \
        lies in one of these: they would be within an agent's reach. Or all users of the machine share it, as `/tmp`. This is checked at every start, with links resolved. A folder below your home is fine. Make one \
        for the work and run `regent init` there.";
    FOLDER_UNTRUSTED = "folder.untrusted", exit::DENIED, "Nothing in a folder acts before you have trusted it: its policy and settings may have come with a \
        download. Look at `.regent/policy.yml`, then run `regent trust`. Changing one of these files asks for trust again. A project's files can only \
        narrow what your own policy allows, never widen it.";
    HOME_NONE = "home.none", exit::ERROR, "The environment has no HOME, so there is no place for your policy and keys. Set HOME, or the XDG_*_HOME variables.";
    INPUT_JSON = "input.json", exit::USAGE, "What was given isn't JSON as Regent reads it: one value, no key twice, no number that some reader would see differently \
        (NaN, 1e999, beyond 2^53), no half of a surrogate pair, no byte order mark, nested at most 64 deep. Policy and the tool must see the same value.";
    INPUT_SIZE = "input.size", exit::USAGE, "The input is larger than is taken from a command line.";
    INTERNAL = "internal", exit::ERROR, "A defect in Regent. Nothing that was acknowledged is lost: the ledger is written before anything happens. Please report it with the \
        message; `RUST_BACKTRACE=1` adds where it happened.";
    INTERRUPTED = "interrupted", exit::INTERRUPTED, "You interrupted the command. A call that ran was stopped, and the ledger says so; a question that was open stays open.";
    GC_NOT_REMOVED = "gc.not_removed", exit::ERROR, "`regent gc` could not remove something; the message says what and why. What it removed before that is recorded, and \
        the next `regent gc` goes on with the rest.";
    IO = "io", exit::ERROR, "A file or folder can't be read or written; the message says which and why.";
    KERNEL_SEALED = "kernel.sealed", exit::LEDGER, "The kernel takes no calls because its ledger can't be relied on. `regent audit verify` says what is wrong with it.";
    KERNEL_FAULT = "kernel.fault", exit::ERROR, "The kernel could not do its own part of the call. If an effect had begun, the ledger has its outcome.";
    LEDGER_UNWRITABLE = "ledger.unwritable", exit::TEMPORARY, "The ledger can't be written, so nothing is done: no record, no effect. The message says why (no space, a read-only \
        disk, permissions). Once that is fixed the same command works; nothing needs repair.";
    OUTCOME_UNRECORDED = "outcome.unrecorded", exit::UNRECORDED, "The call took effect, and then its outcome couldn't be written to the ledger (the disk is full or fails). Don't repeat the command: \
        that would do it twice. The exit status is 16, which no other error has. The message names the call's intent; `regent audit show LANE/SEQ` shows what it was. Check the result yourself, fix the disk, \
        and start Regent again: the next start settles the record, and asks you where it can't know what became of the call.";
    KERNEL_UNCLOSED = "kernel.unclosed", exit::UNCLOSED, "The command was done, and the ledger has what came of it; then closing the ledger or the shared state failed (the disk is full or \
        fails). Don't repeat the command. The exit status is 17, which no other error has. Fix the disk; the next start signs and indexes what is left.";
    LEDGER_KEY = "ledger.key", exit::ERROR, "The ledger's signing key in your data folder can't be used. It must be a file of yours that nobody else can read (mode 0600).";
    LEDGER_KEY_MISSING = "ledger.key_missing", exit::LEDGER, "The key that signs your ledgers is gone from your data folder, while ledgers that it signed are remembered. A new key is not made silently: \
        all your ledgers would look like somebody else's. Put `ledger.key` back from a backup. If it is lost for good, `regent audit begin-anew --new-key --because REASON` starts the ledger of a project anew; the old \
        one is kept beside it and still verifies with its public key.";
    LIMIT_FILES = "limit.files", exit::ERROR, "This process may open too few files at once to run a kernel, a sandbox and a ledger. `ulimit -n` shows the limit; `ulimit -n 1024` raises it where the \
        system allows.";
    LIMIT_HIT = "limit.hit", exit::SANDBOX, "The program was stopped because it reached a limit of its grant: wall clock, memory, output, processes. The \
        message says which. A rule's `limits` sets them.";
    MODEL_DIGEST = "model.digest", exit::ERROR, "The weights that came are not those that were asked for: their sha256 differs. Nothing of them was kept. If it happens again, the source has changed.";
    MODEL_NONE = "model.none", exit::NOT_FOUND, "No model is set up. `regent model pull` downloads one; or `[models.NAME]` in your settings file sets one up; `regent model list` says where that file is.";
    MODEL_SOURCE = "model.source", exit::TEMPORARY, "The weights could not be fetched, or were cut: the message says where it was tried. What came is kept, and the same command goes on from there. Without a hub, \
        `pip` has to be able to download packages.";
    MODEL_WEIGHTS = "model.weights", exit::NOT_FOUND, "There are no weights of this name to pull. The message lists those that there are; others can be put into a folder that `[models.NAME]` of `kind = \"local\"` names as its `file`.";
    MODEL_WRITE = "model.write", exit::ERROR, "The weights can't be written: the disk is full, or the folder can't be written to. Nothing is left behind when the disk is full.";
    TASK_BUDGET = "task.budget", exit::BUDGET, "The task has stopped because a budget is used up. Nothing is lost: give it more (`regent task resume ID --budget …`, or `regent budget set` for \
        the project's or the day's) and it goes on where it stopped.";
    TASK_BUSY = "task.busy", exit::CONFLICT, "The task is running already, here or in another process. `regent task cancel ID` stops it there.";
    TASK_CANCELLED = "task.cancelled", exit::INTERRUPTED, "The task was cancelled and won't run again. `regent task fork ID --at STEP` makes a new one out of it.";
    TASK_DENIED = "task.denied", exit::DENIED, "Policy doesn't let the task be recorded, or its agent be started.";
    TASK_FAILED = "task.failed", exit::TASK, "The task ended without an answer; the message says why. `regent task show ID` shows each step. What passes (a provider that is down) is worth \
        `regent task resume ID`; else `regent task fork ID --at STEP`, perhaps with another model, goes another way from there.";
    TASK_FULL = "task.full", exit::TEMPORARY, "As many tasks wait as may. Try again when some have ended.";
    TASK_GOAL = "task.goal", exit::USAGE, "A task needs a goal: some words that say what is to be done, on the command line or on standard input (`-`).";
    TASK_LATER = "task.later", exit::TEMPORARY, "The provider of the model doesn't answer now, or wants to be asked later. It was asked as often as is of use, and nothing is lost: \
        the message says when, and `regent task resume` goes on with all tasks whose time has come.";
    TASK_OVER = "task.over", exit::CONFLICT, "The task is over and won't run again. `regent task fork ID --at STEP` makes a new one out of its steps before that.";
    TASK_PAUSED = "task.paused", exit::INTERRUPTED, "You interrupted the task. It stopped between two steps and can go on: `regent task resume ID`. `regent task cancel ID` gives it up.";
    TASK_REPLAY = "task.replay", exit::ERROR, "Run again from the ledger alone, the task came to another answer than the one that is recorded.";
    TASK_ROLLBACK = "task.rollback", exit::ERROR, "Some files could not be put back; each is listed with the reason. All others are as the snapshot has them. Remove the reason, then \
        run the same command again.";
    TASK_SNAPSHOT = "task.snapshot", exit::NOT_FOUND, "There is no such snapshot of the workspace, or it can't be put back. `regent task show ID` lists those that were taken.";
    TASK_STEP = "task.step", exit::USAGE, "There is no such step in the task. A turn such as `3` or a whole step such as `3/tool/0` is meant; `regent task show ID` lists them.";
    TASK_TOOL_CHANGED = "task.tool_changed", exit::CONFLICT, "A task goes on with the tools that it began with, or not at all: what was agreed to then isn't what is there now. Put the tool \
        back, or start the task anew.";
    TASK_NO_TOOL = "task.no_tool", exit::NOT_FOUND, "There is no tool of that name. `regent tool list` shows them.";
    TASK_UNKNOWN = "task.unknown", exit::NOT_FOUND, "No task of this project has this id, or several begin with it. `regent task list` shows them.";
    TASK_UNDONE = "task.undone", exit::DENIED, "The task came to its end, but some of its calls were denied because nobody could be asked about them (`--unattended deny`, or the \
        setting `task.unattended`). They are listed, and the answer is on stdout. Nothing was recorded as an answer of yours. Name what you want in the goal, allow it by a rule, or run \
        the task at a terminal.";
    TASK_WAITS = "task.waits", exit::APPROVAL, "A rule wants a person to agree to a call of the task first, and nobody could be asked. Answer the question (`regent approve ID` or `regent deny ID`), then \
        `regent task resume` goes on.";
    TASK_DIVERGED = "task.diverged", exit::ERROR, "A task goes on by doing again what it did, and its record answers; here it asked for something else than the \
        record has at that step, so nothing was done. Another program, prompt file or tool than the one it began with does that. `regent task fork --at STEP` starts \
        a new task from the steps before it.";
    TASK_ERASED = "task.erased", exit::ERROR, "What a step of the task gave back has been erased from the payloads, so the task can't be told again beyond it. The ledger still \
        proves that the step was made.";
    POLICY_NONE = "policy.none", exit::DENIED, "You have no policy of your own yet, and no policy means deny. `regent init` writes one that is ready to use and \
        explains itself.";
    POLICY_INVALID = "policy.invalid", exit::INVALID_FILE, "A policy file has mistakes; all of them are shown with line and column. A policy that can't be read \
        completely is not used at all.";
    POLICY_BUNDLE = "policy.bundle", exit::INVALID_FILE, "The bundle isn't one, or wasn't signed by the key that was named, or holds something other than what was \
        signed. Nothing of it was used.";
    POLICY_CASES = "policy.cases", exit::ERROR, "A case of the policy's tests came out differently than it says.";
    POLICY_LINT = "policy.lint", exit::ERROR, "The policy loads, but something in it is probably not meant.";
    PROGRAM_FAILED = "program.failed", exit::ERROR, "The program ran and ended with an exit code other than 0, which is passed on.";
    SANDBOX_UNAVAILABLE = "sandbox.unavailable", exit::SANDBOX, "This machine doesn't give the confinement that is required, so the program was not run; there is no silent \
        fallback. `regent doctor` says what is missing and how to get it, often one sysctl for user namespaces.";
    SANDBOX_ESCAPE = "sandbox.escape", exit::SANDBOX, "A live probe got out of the sandbox, or reached something it must not. Don't run programs until this is understood.";
    SKILL_RENAMED = "skill.renamed", exit::CONFLICT, "The place that the skill came from now holds a skill of another name, so this is no update.";
    STATE_UNUSABLE = "state.unusable", exit::ERROR, "The database of approvals, rates and budgets can't be used. Calls that need it are refused.";
    STATE_FULL = "state.full", exit::TEMPORARY, "There is no room for the database of approvals, rates and budgets: the disk with your state folder is full, or a limit on file sizes (`ulimit -f`) \
        is reached. Nothing was done. Make room, then the same command works.";
    STATE_GONE = "state.gone", exit::ERROR, "The database of approvals, rates and budgets was used before and is now gone or empty. Budgets and rates would begin again from zero, so nothing is done before you \
        have seen it: put the file back from a backup, or let `regent doctor --fix` start a new one. The ledger is not affected.";
    STATE_FILE = "state.file", exit::INVALID_FILE, "The file that remembers which folders you trust is damaged. Until it is removed or repaired nothing is trusted.";
    TERMINAL_NEEDED = "terminal.needed", exit::USAGE, "This would ask you something, but there is no terminal to ask on. The message names the flag that answers.";
    TOOL_FAILED = "tool.failed", exit::ERROR, "The call was allowed and made, and the tool says that it did not work.";
    TOOL_NOT_BUILT = "tool.not_built", exit::SANDBOX, "This build has no interpreter for generated tools: the target wasm32-unknown-unknown was missing \
        when it was built (`rustup target add wasm32-unknown-unknown`, then build again), or a feature was off.";
    TOOL_TIMED_OUT = "tool.timed_out", exit::SANDBOX, "The call was stopped when the wall clock limit of its grant ran out.";
    TOOL_CANCELLED = "tool.cancelled", exit::INTERRUPTED, "The call was stopped by a signal before it had finished.";
    USAGE = "usage", exit::USAGE, "The command line isn't one that Regent knows. `regent help` lists the commands.";
    VAULT_EXISTS = "vault.exists", exit::CONFLICT, "The vault has that already. `regent vault rotate` gives a secret a new value, `regent vault remove` takes it out.";
    VAULT_IMPORT = "vault.import", exit::INVALID_FILE, "The file of secrets can't be taken in: it is neither a `.env` file nor a SOPS file that an age key of yours opens, or it was changed \
        after it was encrypted. Nothing was taken in.";
    VAULT_LOCKED = "vault.locked", exit::AUTHENTICATION, "The vault has a passphrase, and it was not given or is another one. At a terminal `regent` asks for it; elsewhere \
        `--passphrase-fd N` names a descriptor to read it from. It is never taken from the command line or the environment.";
    VAULT_NONE = "vault.none", exit::NOT_FOUND, "The vault has no secret of this name. `regent vault list` shows the names.";
    VAULT_UNUSABLE = "vault.unusable", exit::ERROR, "The vault's file or key can't be used: missing, damaged, or open to others. Nothing was changed. Both are in your data folder and \
        have to be files of yours with mode 0600.";
    VAULT_VALUE = "vault.value", exit::USAGE, "A secret can't have this name, value or scope. Names are lower case letters, digits, and `.` `_` `/` `-` between them. Values have 8 to \
        16384 bytes: shorter ones stand in ordinary text, so masking them would destroy it.";
    UNKNOWN_CODE = "explain.unknown", exit::NOT_FOUND, "There is no such error code.";
}

/// The code of this name, wherever it comes from.
pub(crate) fn find(id: &str) -> Option<Code> {
    let policy = regent_policy::codes::ALL.iter().find(|(code, _)| *code == id).map(|(id, text)| Code {
        id,
        exit: exit::DENIED,
        text,
    });
    OWN.iter().chain(OTHERS).chain(MODELS).chain(GUESTS).find(|code| code.id == id).copied().or(policy)
}

/// All of them, by name.
pub(crate) fn all() -> Vec<Code> {
    let policy = regent_policy::codes::ALL.iter().map(|(id, text)| Code { id, exit: exit::DENIED, text });
    let mut all: Vec<Code> =
        OWN.iter().chain(OTHERS).chain(MODELS).chain(GUESTS).copied().chain(policy).collect();
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
