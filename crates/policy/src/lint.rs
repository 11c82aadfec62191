//! Warns about likely mistakes in a policy: ineffective rules, rules that allow everything, and common security holes.

use crate::condition::{Clause, Condition, Names, Test};
use crate::finding::{Finding, Level, Span, nearest};
use crate::load::CallSketch;
use crate::policy::{Mode, Policy, RuleSet};
use crate::rule::{Effect, Rule};
use crate::verdict::Verdict;

/// Maximum pairs of rules to compare; larger files skip the check.
const PAIRS_MAX: usize = 4_000_000;

/// Calls that should rarely be allowed, and the reason.
const HOLES: &[(&str, &str)] = &[
    (
        "{ tool: fs.write, path: .git/hooks/pre-commit }",
        "agents may write git hooks, which run outside the sandbox: deny writing to `@control-files`",
    ),
    (
        "{ tool: fs.write, path: .GIT/hooks/pre-commit }",
        "agents may write control files in another spelling (`.GIT`): deny writing to `@control-files`",
    ),
    ("{ tool: fs.write, path: .mcp.json }", "agents may add tool servers: deny writing to `@control-files`"),
    (
        "{ tool: fs.write, path: .github/workflows/ci.yml }",
        "agents may write files that run by themselves, such as CI workflows: ask before writing to `@runs-by-itself`",
    ),
    (
        "{ op: approval.answer, class: agent }",
        "agents may answer the questions asked about them: deny `approval.*`",
    ),
    (
        "{ tool: http.fetch, url: 'http://169.254.169.254/' }",
        "agents may fetch the machine's cloud credentials: deny the host `169.254.169.254`",
    ),
    (
        "{ tool: http.fetch, url: 'https://example.com/', labels: { '/body': { confidentiality: secret } } }",
        "secrets may be sent to any host: deny `labels: { \"*\": { min_confidentiality: secret } }` with `host: \"*\"`",
    ),
];

/// Lints a policy. `tools` are the names of all tools; if it is empty, tool names are not checked.
pub fn lint(policy: &Policy, tools: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for set in policy.sets() {
        modes(set, &mut findings);
        for rule in &set.rules {
            breadth(rule, &mut findings);
            reach(rule, &mut findings);
            tool_names(rule, tools, &mut findings);
            lowered(rule, &mut findings);
            each_clause(rule, &mut |clause| empty_regex(rule, clause, &mut findings));
        }
        shadows(set, &mut findings);
    }
    holes(policy, &mut findings);
    findings.sort_by_key(|finding| (finding.line, finding.level));
    findings
}

fn finding(level: Level, line: u32, message: String, help: Option<&str>) -> Finding {
    Finding { level, line, column: 1, span: Span::default(), message, help: help.map(str::to_owned) }
}

fn modes(set: &RuleSet, findings: &mut Vec<Finding>) {
    let message = match set.mode {
        Mode::Strict => return,
        Mode::Permissive => "permissive mode allows calls that no rule matches",
        Mode::Audit => "audit mode denies nothing and asks nothing",
    };
    findings.push(finding(
        Level::Note,
        1,
        message.to_owned(),
        Some("`mode: strict` denies calls that no rule allows"),
    ));
}

/// An allow whose conditions can't fail.
fn breadth(rule: &Rule, findings: &mut Vec<Finding>) {
    if rule.effect != Effect::Allow || !rule.unless.is_empty() {
        return;
    }
    if rule.when.iter().all(|clause| is_trivial(&clause.condition)) {
        let message = format!("rule `{}` allows everything", rule.at.id);
        findings.push(finding(
            Level::Warning,
            rule.at.line,
            message,
            Some("add conditions on tools, paths or agents"),
        ));
    } else if rule
        .when
        .iter()
        .any(|clause| matches!(&clause.condition, Condition::Endpoint(test) if test.reaches_everywhere()))
    {
        let message = format!("rule `{}` allows every host", rule.at.id);
        findings.push(finding(Level::Warning, rule.at.line, message, Some("name the hosts, or ask")));
    } else if rule
        .when
        .iter()
        .any(|clause| matches!(&clause.condition, Condition::Secret(names) if names.matches_all()))
    {
        let message = format!("rule `{}` grants every secret of the vault", rule.at.id);
        findings.push(finding(Level::Warning, rule.at.line, message, Some("name the secrets, or ask")));
    }
}

fn is_trivial(condition: &Condition) -> bool {
    match condition {
        Condition::Op(names) | Condition::Agent(names) => names.matches_all(),
        Condition::Trust { min, max } => *min == 0 && *max == 1000,
        Condition::Class(classes) => classes.len() >= 3,
        Condition::Tier(tiers) => tiers.len() >= 5,
        Condition::Any(branches) => {
            branches.iter().any(|branch| branch.iter().all(|clause| is_trivial(&clause.condition)))
        }
        Condition::All(branches) => {
            branches.iter().all(|branch| branch.iter().all(|clause| is_trivial(&clause.condition)))
        }
        Condition::Tool(_)
        | Condition::Role(_)
        | Condition::Capability(_)
        | Condition::Path(_)
        | Condition::Endpoint(_)
        | Condition::Argv(_)
        | Condition::Secret(_)
        | Condition::Arg { .. }
        | Condition::Label { .. }
        | Condition::Time(_)
        | Condition::Budget { .. }
        | Condition::Session { .. }
        | Condition::History(_)
        | Condition::Body(_)
        | Condition::Expression(_) => false,
    }
}

/// A tool rule for an operation without tools.
fn reach(rule: &Rule, findings: &mut Vec<Finding>) {
    let speaks_of_tools = rule.when.iter().any(|clause| matches!(clause.condition, Condition::Tool(_)));
    let other_ops = rule
        .when
        .iter()
        .any(|clause| matches!(&clause.condition, Condition::Op(ops) if !ops.matches("tool.run")));
    if speaks_of_tools && other_ops {
        let message =
            format!("rule `{}` never matches: only the operation `tool.run` has a tool", rule.at.id);
        findings.push(finding(Level::Warning, rule.at.line, message, Some("remove `op` or `tool`")));
    }
}

/// Declassified fields are trusted from then on, so a reader of the file should know.
fn lowered(rule: &Rule, findings: &mut Vec<Finding>) {
    let Some(declassify) = &rule.declassify else { return };
    let list = |fields: &std::collections::BTreeSet<String>| {
        fields.iter().map(|field| format!("`{field}`")).collect::<Vec<_>>().join(", ")
    };
    if !declassify.trust.is_empty() {
        let message =
            format!("rule `{}` trusts {}, even if an outsider wrote it", rule.at.id, list(&declassify.trust));
        let help = "fine if only your own system writes it; otherwise an outsider decides who is affected";
        findings.push(finding(Level::Note, rule.at.line, message, Some(help)));
    }
    if !declassify.open.is_empty() {
        let message = format!("rule `{}` releases {} to anyone", rule.at.id, list(&declassify.open));
        findings.push(finding(Level::Note, rule.at.line, message, None));
    }
}

fn tool_names(rule: &Rule, tools: &[&str], findings: &mut Vec<Finding>) {
    if tools.is_empty() {
        return;
    }
    each_clause(rule, &mut |clause| {
        let Condition::Tool(names) = &clause.condition else { return };
        let unknown_names = names.exact().filter(|name| !tools.contains(name)).map(|name| {
            let meant = nearest(name, tools.iter().copied()).map(|meant| format!("did you mean `{meant}`?"));
            (format!("rule `{}` names the tool `{name}`, which doesn't exist", rule.at.id), meant)
        });
        let idle = names.globs().iter().filter(|glob| !tools.iter().any(|tool| glob.matches(tool)));
        let idle =
            idle.map(|_| (format!("a pattern in rule `{}` matches no existing tool", rule.at.id), None));
        for (message, help) in unknown_names.chain(idle) {
            findings.push(finding(Level::Warning, clause.line, message, help.as_deref()));
        }
    });
}

/// Calls `visit` with every clause of a rule, including nested ones.
fn each_clause(rule: &Rule, visit: &mut dyn FnMut(&Clause)) {
    fn walk(clauses: &[Clause], visit: &mut dyn FnMut(&Clause)) {
        for clause in clauses {
            visit(clause);
            if let Condition::Any(branches) | Condition::All(branches) = &clause.condition {
                branches.iter().for_each(|branch| walk(branch, visit));
            }
        }
    }
    walk(&rule.when, visit);
    walk(&rule.unless, visit);
}

/// A regular expression that matches the empty text matches everything.
fn empty_regex(rule: &Rule, clause: &Clause, findings: &mut Vec<Finding>) {
    let Condition::Arg { tests, .. } = &clause.condition else { return };
    for test in tests {
        if let Test::Matches(regex) = test
            && ["", "x", "\u{1}\n\u{1}"].iter().all(|text| regex.is_match(text))
        {
            let message = format!("`{regex}` in rule `{}` matches every text", rule.at.id);
            findings.push(finding(Level::Warning, clause.line, message, Some("anchor it, or remove it")));
        }
    }
}

/// Rules without effect, because a deny covers everything they match, and duplicate rules.
fn shadows(set: &RuleSet, findings: &mut Vec<Finding>) {
    let denies = |rule: &&Rule| rule.effect == Effect::Deny && rule.unless.is_empty() && rule.rate.is_none();
    let denies: Vec<&Rule> = set.rules.iter().filter(denies).collect();
    if denies.len().saturating_mul(set.rules.len()) > PAIRS_MAX {
        let message = "the file has too many rules to find unreachable ones".to_owned();
        findings.push(finding(Level::Note, 1, message, None));
        return;
    }
    for rule in &set.rules {
        let by = denies.iter().find(|deny| deny.id != rule.id && implies(rule, deny));
        let Some(by) = by else { continue };
        // Of two equal denies, only the later one is reported.
        if rule.effect == Effect::Deny && by.at.line > rule.at.line {
            continue;
        }
        let message = format!(
            "rule `{}` has no effect: rule `{}` in line {} denies everything that it matches",
            rule.at.id, by.at.id, by.at.line
        );
        findings.push(finding(
            Level::Warning,
            rule.at.line,
            message,
            Some("remove one of them, or narrow the deny"),
        ));
    }
}

/// Whether `wide` matches everything that `narrow` matches. True only if certain.
fn implies(narrow: &Rule, wide: &Rule) -> bool {
    wide.when
        .iter()
        .all(|wide| narrow.when.iter().any(|narrow| clause_implies(&narrow.condition, wide, &narrow.text)))
}

fn clause_implies(narrow: &Condition, wide: &Clause, narrow_text: &str) -> bool {
    match (narrow, &wide.condition) {
        (Condition::Op(narrow), Condition::Op(wide))
        | (Condition::Tool(narrow), Condition::Tool(wide))
        | (Condition::Secret(narrow), Condition::Secret(wide))
        | (Condition::Agent(narrow), Condition::Agent(wide)) => names_imply(narrow, wide),
        (Condition::Path(narrow), Condition::Path(wide)) => {
            let access = wide.access.as_ref().is_none_or(|wide| {
                narrow.access.as_ref().is_some_and(|narrow| narrow.iter().all(|access| wide.contains(access)))
            });
            let globs = wide
                .globs
                .as_ref()
                .is_none_or(|wide| narrow.globs.as_ref().is_some_and(|narrow| narrow.implies(wide)));
            access && globs
        }
        (narrow, wide_condition) => {
            std::mem::discriminant(narrow) == std::mem::discriminant(wide_condition)
                && *narrow_text == *wide.text
        }
    }
}

fn names_imply(narrow: &Names, wide: &Names) -> bool {
    narrow.exact().all(|name| wide.matches(name))
        && narrow.globs().iter().all(|glob| wide.matches_all() || wide.globs().contains(glob))
}

/// Has the policy decide calls that should rarely be allowed.
fn holes(policy: &Policy, findings: &mut Vec<Finding>) {
    for (call, message) in HOLES {
        let Ok(call) = CallSketch::parse(call) else { continue };
        if let Verdict::Allow(grant) = call.with_facts(|facts| policy.decide(facts))
            && grant.warnings.is_empty()
        {
            let line = grant.rule.as_ref().map_or(1, |rule| rule.line);
            findings.push(finding(Level::Warning, line, (*message).to_owned(), None));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Source;
    use crate::load::load;
    use crate::verdict::Layer;

    fn messages(rules: &str, tools: &[&str]) -> Vec<String> {
        let text = format!("version: 1\nrules:\n{rules}");
        let policy = load(&text, &Source::new("p", Layer::User)).unwrap_or_else(|error| panic!("{error}"));
        lint(&policy, tools)
            .into_iter()
            .map(|finding| format!("{}: {}", finding.line, finding.message))
            .collect()
    }

    #[test]
    fn warns_about_likely_mistakes() {
        let cases = [
            ("  - { id: a, effect: allow }", "3: rule `a` allows everything"),
            ("  - { id: a, effect: allow, match: { agent: '*', op: '*' } }", "3: rule `a` allows everything"),
            ("  - { id: a, effect: allow, match: { tool: x, host: '*' } }", "3: rule `a` allows every host"),
            (
                "  - { id: a, effect: allow, match: { op: vfs.read, tool: x } }",
                "3: rule `a` never matches: only the operation `tool.run` has a tool",
            ),
            (
                "  - { id: a, effect: deny, match: { tool: fs.raed } }",
                "3: rule `a` names the tool `fs.raed`, which doesn't exist",
            ),
            (
                "  - { id: a, effect: deny, match: { tool: gs.* } }",
                "3: a pattern in rule `a` matches no existing tool",
            ),
            (
                "  - { id: a, effect: ask, match: { args: { /x: { matches: 'a*' } } } }",
                "3: `a*` in rule `a` matches every text",
            ),
            (
                "  - { id: a, effect: allow, match: { tool: fs.read, path: src/** } }\n  - { id: b, effect: deny, match: { tool: fs.* } }",
                "3: rule `a` has no effect: rule `b` in line 4 denies everything that it matches",
            ),
            (
                "  - { id: a, effect: deny, match: { tool: x } }\n  - { id: b, effect: deny, match: { tool: x } }",
                "4: rule `b` has no effect: rule `a` in line 3 denies everything that it matches",
            ),
            (
                "  - { id: a, effect: allow, match: { tool: fs.write, path: '**' } }",
                "3: agents may write git hooks, which run outside the sandbox: deny writing to `@control-files`",
            ),
            (
                "  - { id: a, effect: allow, match: { tool: fs.write, path: '**' } }\n  - { id: b, effect: deny, match: { path: '**/.git/**' } }",
                "3: agents may write control files in another spelling (`.GIT`): deny writing to `@control-files`",
            ),
            (
                "  - { id: a, effect: allow, match: { tool: fs.write, path: '**' } }\n  - { id: b, effect: deny, match: { path: '@control-files' } }",
                "3: agents may write files that run by themselves, such as CI workflows: ask before writing to `@runs-by-itself`",
            ),
        ];
        for (rules, expected) in cases {
            let found = messages(rules, &["fs.read", "fs.write", "x"]);
            assert!(
                found.iter().any(|message| message == expected),
                "{rules}\nwanted {expected}\ngot {found:#?}"
            );
        }
    }

    #[test]
    fn intended_rules_cause_no_warnings() {
        let rules = "  - { id: a, effect: allow, match: { tool: fs.read, path: src/** } }\n  \
            - { id: b, effect: deny, match: { tool: fs.read, path: src/secret/** } }";
        assert_eq!(messages(rules, &["fs.read"]), Vec::<String>::new());
    }

    #[test]
    fn the_default_policy_has_no_warnings() {
        let policy = load(crate::DEFAULT_POLICY, &Source::new("p", Layer::User)).unwrap();
        let tools = [
            "fs.read",
            "fs.write",
            "fs.edit",
            "fs.append",
            "fs.list",
            "fs.search",
            "fs.stat",
            "fs.mkdir",
            "fs.copy",
            "fs.move",
            "fs.delete",
            "process.kill",
            "shell.exec",
            "process.exec",
            "process.list",
            "http.fetch",
            "text.extract",
            "memory.recall",
            "memory.remember",
            "net.connect",
            "net.request",
            "skill.list",
            "skill.read",
            "skill.install",
            "skill.remove",
            "skill.any",
            "tool.generate",
            "tool.rollback",
            "tool.remove",
            "gen.any",
            "audit.erase",
            "gc.remove",
            "model.pull",
            "package.download",
            "workspace.restore",
        ];
        assert_eq!(lint(&policy, &tools), []);
    }

    #[test]
    fn every_hole_is_a_valid_call() {
        for (call, _) in HOLES {
            assert!(CallSketch::parse(call).is_ok(), "{call}");
        }
    }
}
