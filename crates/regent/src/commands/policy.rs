//! `regent policy`: is it well-formed, does it do what its cases say, why does it say what it says, and what would change?

mod bundle;
mod change;
mod past;

use std::path::PathBuf;

use clap::Subcommand;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use regent_kernel::{Op, ToolCall};
use regent_policy::{Fared, Finding, Layer, Level, Outline, Policy, RuleRef, Tier};
use regent_wire::result::{Checked, PolicyView};
use serde_json::{Value, json};

use crate::bundles;
use crate::calls;
use crate::codes;
use crate::commands::agent;
use crate::compose::{self, BootedKernel};
use crate::context::Context;
use crate::controls;
use crate::failure::Failure;
use crate::json;
use crate::output::{CommandResult, Done};
use crate::paths;
use crate::term;

/// Check, test and query the policy
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Check policy files: yours and the project's, or the given one
    Check {
        /// A policy file
        file: Option<PathBuf>,
    },
    /// Test the active policy with cases from a file, or with the rules' own examples
    Test {
        /// A file of cases: name, call, expected verdict and rule
        file: Option<PathBuf>,
    },
    /// Explain what would happen to a call, and which rule and line decide
    Why {
        /// The tool, e.g. fs.read (or the whole call as one argument: 'fs.read {"path": "x"}')
        #[arg(add = ArgValueCandidates::new(tool_names))]
        tool: String,
        /// Its arguments as JSON, or `-` for stdin
        arguments: Option<String>,
        /// Act as an agent of this name
        #[arg(long, value_name = "NAME")]
        agent: Option<String>,
    },
    /// Warn about likely mistakes: rules that never match, rules that allow everything
    Lint {
        /// A policy file
        file: Option<PathBuf>,
    },
    /// Compare two policy files: rules, and which callers gain or lose access
    Diff {
        /// The policy as it was
        old: PathBuf,
        /// The policy as it would be
        new: PathBuf,
    },
    Sim(change::SimArgs),
    /// Propose the smallest policy that allows what the ledger recorded
    Learn {
        /// How far back
        #[arg(long, value_name = "TIME", default_value = "7d")]
        since: String,
        /// Output file [default: stdout]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Show the smallest rule that would allow a call, and what else it would have allowed
    Cover {
        /// The call, in the format of test cases: '{ tool: fs.read, agent: ada, path: notes.txt }'
        call: String,
        /// How far back to look for other calls that it would cover
        #[arg(long, value_name = "TIME", default_value = "7d")]
        since: String,
    },
    /// Show the policy that your running kernels decide with, and its digest
    Get,
    /// Show where a candidate policy would have decided differently
    Shadow,
    /// Bundle and sign policy files
    Bundle {
        /// Policy files
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Output file
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Check a bundle's signature and files
    Verify {
        /// The bundle
        file: PathBuf,
        /// The key that must have signed it, as `policy bundle` prints it
        #[arg(long, value_name = "KEY")]
        key: String,
        /// Unpack into this folder
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
    Apply(bundle::ApplyArgs),
}

impl PolicyCommand {
    /// Whether it asks a kernel, which answers a caller with a token too. The others work on the user's own files.
    pub(crate) fn takes_token(&self) -> bool {
        matches!(self, Self::Why { .. } | Self::Get)
    }

    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Check { .. } => "policy.check",
            Self::Test { .. } => "policy.test",
            Self::Why { .. } => "policy.why",
            Self::Lint { .. } => "policy.lint",
            Self::Diff { .. } => "policy.diff",
            Self::Sim(_) => "policy.sim",
            Self::Learn { .. } => "policy.learn",
            Self::Cover { .. } => "policy.cover",
            Self::Get => "policy.get",
            Self::Shadow => "policy.shadow",
            Self::Bundle { .. } => "policy.bundle",
            Self::Verify { .. } => "policy.verify",
            Self::Apply(_) => "policy.apply",
        }
    }
}

pub(crate) async fn run(context: &Context, command: PolicyCommand) -> CommandResult {
    match command {
        PolicyCommand::Check { file } => check(context, file),
        PolicyCommand::Test { file } => test(context, file),
        PolicyCommand::Lint { file } => lint(context, file),
        PolicyCommand::Diff { old, new } => change::diff(context, &old, &new),
        PolicyCommand::Sim(args) => change::sim(context, &args),
        PolicyCommand::Learn { since, out } => change::learn(context, &since, out.as_deref()),
        PolicyCommand::Cover { call, since } => change::cover(context, &call, &since),
        PolicyCommand::Get => get(context).await,
        PolicyCommand::Shadow => change::shadow(context).await,
        PolicyCommand::Bundle { files, out } => bundle::make(context, &files, &out),
        PolicyCommand::Verify { file, key, out } => bundle::verify(context, &file, &key, out.as_deref()),
        PolicyCommand::Apply(args) => bundle::apply(context, &args).await,
        PolicyCommand::Why { tool, arguments, agent } => {
            why(context, &tool, arguments.as_deref(), agent.as_deref()).await
        }
    }
}

/// The files that apply here: path, name, whose.
fn files(context: &Context, named: Option<PathBuf>) -> Result<Vec<(PathBuf, String, Layer)>, Failure> {
    if let Some(file) = named {
        let path = context.cwd.join(&file);
        return Ok(vec![(path, file.display().to_string(), Layer::User)]);
    }
    let own = [context.paths.policy(), context.paths.candidate(), context.paths.manifest()];
    let own = own.into_iter().filter(|path| paths::may_exist(path));
    let mut files: Vec<(PathBuf, String, Layer)> = own
        .chain(context.paths.tenants()?)
        .map(|path| (path.clone(), path.display().to_string(), Layer::User))
        .collect();
    if let Ok(project) = context.project() {
        files.extend(project.policies().into_iter().map(|path| {
            let name = project.short(&path).into_owned();
            (path, name, Layer::Project)
        }));
    }
    Ok(files)
}

/// What runs may be older than the files: a file with an error leaves the policy before it in force.
async fn get(context: &Context) -> CommandResult {
    let peers = agent::own_peers(context).await?;
    let (mut text, mut rows) = (String::new(), Vec::new());
    for peer in &peers {
        let hello = peer.hello();
        let policy: PolicyView = agent::answer(peer, Op::GetPolicy).await?;
        let place = hello.workspace.display().to_string();
        text.push_str(&format!(
            "kernel {}  {}\n  digest {}\n",
            hello.pid,
            term::inline(&place),
            policy.digest
        ));
        for Outline { name, layer, mode, rules, .. } in &policy.layers {
            let (layer, mode) = (layer.as_str(), mode.as_str());
            text.push_str(&format!("  {}  {layer}, {mode}, {rules} rules\n", term::inline(name)));
        }
        rows.push(json!({"kernel": hello.pid, "policy": policy, "workspace": hello.workspace}));
    }
    if peers.is_empty() {
        text = "no kernel is running; `regent policy check` reads the files\n".to_owned();
    }
    Ok(Done::new(json!({"kernels": rows}), text))
}

fn none() -> Failure {
    Failure::new(codes::POLICY_NONE, "no policy found, so everything is denied").help("run `regent init`")
}

fn check(context: &Context, named: Option<PathBuf>) -> CommandResult {
    let with_bundle = named.is_none();
    let files = files(context, named)?;
    if files.is_empty() && !(with_bundle && paths::may_exist(&context.paths.bundle())) {
        return Err(none());
    }
    let (mut text, mut rows, mut failures) = (String::new(), Vec::new(), Vec::new());
    let mut loaded: Vec<_> = files
        .into_iter()
        .map(|(path, name, layer)| {
            let policy = compose::load_policy(&path, &name, layer);
            (name, layer, policy)
        })
        .collect();
    if with_bundle {
        loaded.extend(bundled(context));
    }
    for (name, layer, policy) in loaded {
        match policy {
            Ok(policy) => {
                for one in policy.outline() {
                    let shown = term::inline(&one.name).into_owned();
                    text.push_str(&format!(
                        "{} {shown}: {}, {} rules, {} examples passed\n",
                        context.screen.good("ok"),
                        one.mode,
                        one.rules,
                        one.examples
                    ));
                    rows.push(json!({"file": one.name, "ok": true, "layer": one.layer, "mode": one.mode, "rules": one.rules, "examples": one.examples}));
                }
            }
            Err(failure) => {
                rows.push(json!({"file": name, "ok": false, "layer": layer, "error": failure.to_json()}));
                failures.push(failure);
            }
        }
    }
    let data = json!({"files": rows});
    match failures.pop() {
        None => Ok(Done::new(data, text)),
        Some(last) => {
            if !context.screen.json {
                failures.iter().for_each(|failure| context.screen.say(&context.screen.report(failure)));
            }
            Err(last.data(data))
        }
    }
}

/// The policies of the bundle in force, or why it can't be believed.
fn bundled(context: &Context) -> Vec<(String, Layer, Result<Policy, Failure>)> {
    let name = context.paths.bundle().display().to_string();
    let found = bundles::in_force(&context.paths)
        .and_then(|opened| opened.map_or_else(|| Ok(Vec::new()), |opened| opened.policies()));
    match found {
        Ok(policies) => policies.into_iter().map(|one| (name.clone(), Layer::User, Ok(one))).collect(),
        Err(failure) => vec![(name, Layer::User, Err(failure))],
    }
}

fn test(context: &Context, cases: Option<PathBuf>) -> CommandResult {
    let policy = compose::policy(&context.paths, context.controls()?.as_ref())?;
    let Some(file) = cases else {
        // Loading has run them: a rule that doesn't do what stands beside it is not loaded.
        let examples: usize = policy.outline().iter().map(|one| one.examples).sum();
        let text = format!("{} all {examples} examples passed\n", context.screen.good("ok"));
        return Ok(Done::new(json!({"passed": examples, "failed": []}), text));
    };
    let (path, name) = (context.cwd.join(&file), file.display().to_string());
    let text = controls::read_file(&path)?;
    let report = regent_policy::run_cases(&policy, &text)
        .map_err(|error| compose::invalid_policy(&name, text, &error))?;
    let data = json!({"passed": report.passed, "failed": report.failed});
    if report.is_ok() {
        return Ok(Done::new(data, format!("{} {} cases\n", context.screen.good("ok"), report.passed)));
    }
    let lines: Vec<String> = report
        .failed
        .iter()
        .map(|case| {
            format!("{name}:{}: `{}`: expected {}, got {}", case.line, case.name, case.expected, case.got)
        })
        .collect();
    let total = report.passed + report.failed.len();
    Err(Failure::new(
        codes::POLICY_CASES,
        format!("{} of {total} cases failed\n{}", report.failed.len(), lines.join("\n")),
    )
    .data(data))
}

fn lint(context: &Context, named: Option<PathBuf>) -> CommandResult {
    let files = files(context, named)?;
    if files.is_empty() {
        return Err(none());
    }
    let tools = compose::skills::tool_names(context)?;
    let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
    let (mut lines, mut rows, mut is_warned) = (Vec::new(), Vec::new(), false);
    for (path, name, layer) in files {
        let policy = compose::load_policy(&path, &name, layer)?;
        for finding in regent_policy::lint(&policy, &tools) {
            is_warned |= finding.level != Level::Note;
            lines.push(line(&name, &finding));
            rows.push(json!({"file": name, "finding": finding}));
        }
    }
    let data = json!({"findings": rows});
    if is_warned {
        return Err(Failure::new(
            codes::POLICY_LINT,
            format!("{}\n{}", term::count(lines.len() as u64, "finding"), lines.join("\n")),
        )
        .data(data));
    }
    let text = if lines.is_empty() {
        format!("{} no warnings\n", context.screen.good("ok"))
    } else {
        lines.join("\n") + "\n"
    };
    Ok(Done::new(data, text))
}

fn line(name: &str, finding: &Finding) -> String {
    let level = match finding.level {
        Level::Error => "error",
        Level::Warning => "warning",
        Level::Note => "note",
    };
    let help = finding.help.as_ref().map(|help| format!(" ({help})")).unwrap_or_default();
    term::inline(&format!("{name}:{}:{}: {level}: {}{help}", finding.line, finding.column, finding.message))
        .into_owned()
}

async fn why(context: &Context, tool: &str, arguments: Option<&str>, agent: Option<&str>) -> CommandResult {
    let (tool, arguments) = match (tool.trim().split_once(char::is_whitespace), arguments) {
        (Some((tool, rest)), None) => (tool, rest.trim()),
        (_, Some(arguments)) => (tool, arguments),
        (None, None) => (tool.trim(), "{}"),
    };
    let args = json::from_argument(arguments)?;
    let running = BootedKernel::boot(context).await?;
    let result = ask(context, &running, tool, args, agent).await;
    running.close(context, result).await
}

async fn ask(
    context: &Context,
    running: &BootedKernel,
    tool: &str,
    args: Value,
    agent: Option<&str>,
) -> CommandResult {
    let caller = match agent {
        Some(name) => calls::spawn(context, running, name).await?,
        None => running.caller(),
    };
    let op = Op::CheckPolicy { op: Box::new(Op::RunTool(ToolCall { tool: tool.to_owned(), args })) };
    let outcome = calls::call(context, running, &caller, op).await?;
    let said: Checked = calls::result(&outcome)?;
    let text = render(context, tool, &said);
    Ok(Done::new(json!(said), text))
}

fn render(context: &Context, tool: &str, said: &Checked) -> String {
    let screen = &context.screen;
    let verdict = match said.effect.as_str() {
        "allow" => screen.good("allow"),
        "ask" => screen.warn("ask"),
        other => screen.bad(&term::inline(other)),
    };
    let mut text = format!("{verdict}  {}\n", term::inline(tool));
    if let Some(rule) = &said.rule {
        text.push_str(&format!("  rule    {}\n", rule_text(rule)));
    }
    for one in &said.declassify {
        text.push_str(&format!("  lowers  {}\n", term::inline(&json!(one).to_string())));
    }
    let tier = said.tier.map(Tier::as_str);
    let fields = [
        ("why", said.reason.as_deref()),
        ("code", said.code.as_deref()),
        ("tier", tier),
        ("help", said.help.as_deref()),
    ];
    for (label, value) in fields {
        if let Some(value) = value {
            text.push_str(&format!("  {label:<7} {}\n", term::inline(value)));
        }
    }
    let (told, missed): (Vec<_>, Vec<_>) =
        said.considered.iter().partition(|one| !matches!(one.outcome, Fared::Missed { .. }));
    for one in told {
        let line = format!("  also    {}, {}: {}\n", rule_text(&one.rule), one.effect, fared(&one.outcome));
        text.push_str(&screen.faint(&line));
    }
    if !missed.is_empty() {
        let mut missed: Vec<String> = missed.iter().map(|one| rule_text(&one.rule)).collect();
        let more = missed.len().saturating_sub(MISSED_SHOWN_MAX);
        missed.truncate(MISSED_SHOWN_MAX);
        let more = if more == 0 {
            String::new()
        } else {
            format!(" and {more} more; --json says why each didn't match")
        };
        text.push_str(&screen.faint(&format!("  missed  {}{more}\n", missed.join(", "))));
    }
    text
}

/// Rules that were looked at and didn't match are many; a few are enough to see which.
const MISSED_SHOWN_MAX: usize = 4;

fn rule_text(rule: &RuleRef) -> String {
    term::inline(&format!("{} ({} policy, line {})", rule.id, rule.layer, rule.line)).into_owned()
}

fn fared(outcome: &Fared) -> String {
    match outcome {
        Fared::Excepted { line } => format!("its exception in line {line} applies"),
        Fared::UsedUp => "its rate is exceeded".to_owned(),
        Fared::Matched => "matched".to_owned(),
        Fared::Missed { .. } => "missed".to_owned(),
    }
}

/// Names of tools, for completion.
pub(crate) fn tool_names() -> Vec<CompletionCandidate> {
    regent_tools::specs()
        .into_iter()
        .map(|spec| CompletionCandidate::new(spec.name).help(Some(spec.description.into())))
        .collect()
}
