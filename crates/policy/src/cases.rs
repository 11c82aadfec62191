//! Test cases for a policy: a call, the expected verdict, and the rule that should decide.

use serde::Serialize;

use crate::finding::LoadError;
use crate::load::{CallSketch, Reader, sketch};
use crate::policy::Policy;
use crate::tree::{Content, parse_yaml};
use crate::verdict::{Layer, Verdict};
use crate::words::Word;

const CASES_MAX: usize = 10_000;

/// The results of a file of cases.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CaseReport {
    /// Number of cases that passed.
    pub passed: usize,
    /// The failed cases.
    pub failed: Vec<CaseFailure>,
}

impl CaseReport {
    /// Whether every case passed.
    pub fn is_ok(&self) -> bool {
        self.failed.is_empty()
    }
}

/// A failed case.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CaseFailure {
    /// Its name.
    pub name: String,
    /// Its line in the file of cases.
    pub line: u32,
    /// The expected result.
    pub expected: String,
    /// The actual result, and the reason.
    pub got: String,
}

#[derive(Debug, Clone, Copy)]
struct Expected(&'static str);

impl Word for Expected {
    const WORDS: &'static [(&'static str, Self)] =
        &[("allow", Self("allow")), ("ask", Self("ask")), ("deny", Self("deny"))];
}

/// Runs a file of cases:
///
/// ```yaml
/// cases:
///   - name: agents don't rewrite hooks
///     call: { tool: fs.write, path: .git/hooks/pre-commit }
///     expect: deny
///     rule: control-files        # may be left out
/// ```
pub fn run_cases(policy: &Policy, text: &str) -> Result<CaseReport, LoadError> {
    let mut reader = Reader::new(text, Layer::User);
    let cases = parse_yaml(text, &mut reader.findings).map(|root| {
        let fields = reader.fields(&root, "the file of cases", &["cases"]);
        let items = match fields.get("cases") {
            Some(node) => reader.items(node),
            None => {
                reader.findings.error(root.at, "the file has no `cases`");
                &[]
            }
        };
        if items.len() > CASES_MAX {
            reader.findings.error(root.at, format!("the file has more than {CASES_MAX} cases"));
        }
        items.iter().take(CASES_MAX).filter_map(|item| case(&mut reader, item)).collect::<Vec<_>>()
    });
    match cases {
        Some(cases) if reader.findings.is_empty() => Ok(report(policy, cases)),
        Some(_) | None => Err(reader.findings.into_error("cases")),
    }
}

struct Case {
    name: String,
    line: u32,
    call: CallSketch,
    expected: &'static str,
    rule: Option<String>,
}

fn case(reader: &mut Reader<'_>, node: &crate::tree::Node) -> Option<Case> {
    let fields = reader.fields(node, "a case", &["name", "call", "expect", "rule"]);
    for key in ["call", "expect"] {
        if fields.get(key).is_none() && matches!(node.content, Content::Map(_)) {
            reader.findings.error(node.at, format!("the case has no `{key}`"));
        }
    }
    let line = node.at.line;
    let name = fields.get("name").and_then(|node| reader.text(node)).map(str::to_owned);
    let rule = fields.get("rule").and_then(|node| reader.text(node)).map(str::to_owned);
    let call = sketch(reader, fields.get("call")?)?;
    let Expected(expected) = reader.word(fields.get("expect")?, "verdict")?;
    Some(Case { name: name.unwrap_or_else(|| format!("line {line}")), line, call, expected, rule })
}

fn report(policy: &Policy, cases: Vec<Case>) -> CaseReport {
    let mut report = CaseReport::default();
    for case in cases {
        let explanation = case.call.with_facts(|facts| policy.explain(facts));
        let verdict: &Verdict = &explanation.verdict;
        let by = verdict.rule().map(|rule| &*rule.id);
        if verdict.word() == case.expected && case.rule.as_deref().is_none_or(|rule| by == Some(rule)) {
            report.passed += 1;
            continue;
        }
        let expected = match case.rule {
            Some(rule) => format!("{} by rule `{rule}`", case.expected),
            None => case.expected.to_owned(),
        };
        report.failed.push(CaseFailure {
            name: case.name,
            line: case.line,
            expected,
            got: explanation.summary,
        });
    }
    report
}
