//! Skills as people see them. Everything that came with a package is made inert.

use regent_skills::{Checked, Finding, Permissions, Plan, Severity, SkillError, Trust};

use crate::output::Screen;
use crate::term;

/// One line of the list.
pub(super) fn row(screen: &Screen, name: &str, checked: &Result<Checked, SkillError>) -> String {
    let strong = screen.strong(&format!("{:<20}", term::inline(name)));
    match checked {
        Ok(checked) => format!(
            "{strong} {:<10} {} {}\n",
            term::inline(&checked.skill.version),
            trust(screen, checked.trust),
            term::short(&checked.skill.description, screen.width.saturating_sub(46).max(20))
        ),
        Err(error) => format!("{strong} {} {}\n", screen.bad("refused"), term::inline(&error.to_string())),
    }
}

/// Everything about one that is installed.
pub(super) fn whole(screen: &Screen, checked: &Checked, findings: &[Finding]) -> String {
    let Checked { skill, locked, .. } = checked;
    let mut text = format!(
        "{} {}  {}\n{}\n",
        screen.strong(&term::inline(&skill.name)),
        term::inline(&skill.version),
        trust(screen, checked.trust),
        term::inline(&skill.description)
    );
    let signer = checked.signer.as_deref().unwrap_or("no trusted key");
    text.push_str(&format!("from      {}\n", term::inline(&locked.source)));
    text.push_str(&format!("signed by {}\n", term::inline(signer)));
    text.push_str(&format!("digest    {}\n", locked.digest));
    text.push_str(&format!(
        "runs      {}\n",
        skill.entrypoint.as_deref().map_or_else(|| "nothing: it is text only".into(), term::inline)
    ));
    text.push_str(&format!("may       {}\n", permissions(&checked.granted)));
    for (path, mark) in locked.files.files() {
        text.push_str(&format!("  {:>9} {}\n", mark.bytes, term::inline(path)));
    }
    text + &self::findings(screen, findings)
}

/// What installing would mean.
pub(super) fn plan(screen: &Screen, plan: &Plan) -> String {
    let mut text = format!(
        "{} {}  {}\n  {}\n",
        screen.strong(&term::inline(&plan.skill.name)),
        term::inline(&plan.skill.version),
        trust(screen, plan.trust),
        term::short(&plan.skill.description, 300)
    );
    if let Some(installed) = &plan.installed {
        text.push_str(&format!(
            "  {} is installed; {} from it\n",
            term::inline(installed),
            match plan.changes.len() {
                1 => "1 file differs".to_owned(),
                files => format!("{files} files differ"),
            }
        ));
        for change in plan.changes.iter().take(20) {
            text.push_str(&format!("    {}\n", term::inline(&change.to_string())));
        }
    }
    if !plan.new_permissions.is_empty() {
        text.push_str(&format!("  wants     {}\n", screen.warn(&permissions(&plan.new_permissions))));
    }
    if !plan.dropped_permissions.is_empty() {
        text.push_str(&format!("  no longer {}\n", permissions(&plan.dropped_permissions)));
    }
    text + &findings(screen, &plan.findings)
}

/// What was done.
pub(super) fn installed(screen: &Screen, plan: &Plan) -> String {
    let name = term::inline(&plan.skill.name);
    let verb = if plan.installed.is_some() { "updated" } else { "installed" };
    let mut text =
        format!("{verb} {name} {}, {}", term::inline(&plan.skill.version), trust(screen, plan.trust));
    if !plan.skill.permissions.is_empty() {
        text.push_str(&format!("; it may {}", permissions(&plan.skill.permissions)));
    }
    match plan.skill.entrypoint {
        Some(_) => text.push_str(&format!("\nagents call it as the tool skill.{name}\n")),
        None => text.push_str(&format!("\nagents read it with skill.read {{\"name\": \"{name}\"}}\n")),
    }
    text
}

/// Findings, the worst first.
pub(super) fn findings(screen: &Screen, findings: &[Finding]) -> String {
    if findings.is_empty() {
        return "  the scan found nothing\n".to_owned();
    }
    let mut text = String::new();
    for finding in findings {
        let word = format!("{:<8}", finding.severity.to_string());
        let word = if finding.severity >= Severity::High { screen.bad(&word) } else { screen.warn(&word) };
        let line = if finding.line > 0 { format!(":{}", finding.line) } else { String::new() };
        text.push_str(&format!(
            "  {word} {}{line}: {}\n",
            term::inline(&finding.file),
            term::inline(&finding.message)
        ));
        if !finding.excerpt.is_empty() {
            text.push_str(&format!("           {}\n", screen.faint(&term::inline(&finding.excerpt))));
        }
    }
    text
}

fn permissions(permissions: &Permissions) -> String {
    if permissions.is_empty() {
        return "nothing besides reading its own files".to_owned();
    }
    permissions.iter().map(|one| term::inline(&one.to_string()).into_owned()).collect::<Vec<_>>().join(", ")
}

fn trust(screen: &Screen, trust: Trust) -> String {
    match trust {
        Trust::Verified => screen.good("verified"),
        Trust::Community => screen.warn("community"),
        Trust::Generated => screen.warn("generated"),
    }
}
