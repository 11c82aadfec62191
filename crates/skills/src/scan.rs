//! Scans a package for what a reviewer should know before installing it: secrets, prompt injection, invisible characters, harmful scripts,
//! and requested capabilities.
//!
//! Patterns find careless and common problems, not those of a careful attacker. The findings are warnings; the defence is the sandbox, the
//! grants and the policy.

mod rules;

use regent_guard::invisible::is_invisible;
use regent_vault::redact::{self, FindingKind};
use serde::Serialize;

use crate::package::Package;
use crate::permission::Permission;
use crate::signature::SIGNATURE_FILE;
use crate::skill::{Runtime, SKILL_FILE, Skill};
use rules::{RULES, ScanRule};

/// Maximum number of findings.
const FINDINGS_MAX: usize = 200;
/// Scanned bytes per file.
const TEXT_BYTES_MAX: usize = 4 << 20;
/// Scanned bytes per line.
const LINE_BYTES_MAX: usize = 16 << 10;
const EXCERPT_CHARS_MAX: usize = 100;

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// For information.
    Low,
    /// Worth a review.
    Medium,
    /// Must be reviewed before installation.
    High,
    /// Almost certainly malicious.
    Critical,
}

impl std::fmt::Display for Severity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        })
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its severity.
    pub severity: Severity,
    /// A stable category: `secret`, `injection`, `hidden`, `script`, `file`, `capability`.
    pub kind: &'static str,
    /// The file's path.
    pub file: String,
    /// The line, from 1; 0 for the file as a whole.
    pub line: usize,
    /// What is wrong.
    pub message: String,
    /// The offending text, escaped; of a secret only its beginning.
    pub excerpt: String,
}

/// Scans every file of a package. Findings are sorted by severity.
pub fn scan(package: &Package, skill: &Skill) -> Vec<Finding> {
    let mut found = Vec::new();
    capabilities(skill, &mut found);
    // A signature is random text, and its format is checked elsewhere.
    for (path, content) in package.files().filter(|(path, _)| *path != SIGNATURE_FILE) {
        file(path, &content.bytes, content.executable, skill, &mut found);
        if found.len() > FINDINGS_MAX {
            break;
        }
    }
    found.sort_by(|a, b| b.severity.cmp(&a.severity).then_with(|| (&a.file, a.line).cmp(&(&b.file, b.line))));
    found.truncate(FINDINGS_MAX);
    found
}

/// Scans text of a tool that a model will read, such as its description.
pub fn scan_text(name: &str, bytes: &[u8]) -> Vec<Finding> {
    let mut found = Vec::new();
    text(&format!("{name}.md"), bytes.get(..TEXT_BYTES_MAX).unwrap_or(bytes), false, &mut found);
    found
}

/// Whether a name mixes Latin letters with look-alikes of other scripts.
fn is_mixed(name: &str) -> bool {
    let foreign = |c: char| {
        matches!(c, '\u{0370}'..='\u{03FF}' | '\u{0400}'..='\u{052F}' | '\u{0530}'..='\u{058F}' | '\u{13A0}'..='\u{13FF}'
            | '\u{FF21}'..='\u{FF5A}' | '\u{1D400}'..='\u{1D7FF}')
    };
    name.split(['/', '.', '-', '_', ' '])
        .any(|word| word.chars().any(foreign) && word.chars().any(|c| c.is_ascii_alphabetic()))
}

fn capabilities(skill: &Skill, found: &mut Vec<Finding>) {
    let mut find = |severity, message: String| {
        found.push(Finding {
            severity,
            kind: "capability",
            file: SKILL_FILE.to_owned(),
            line: 0,
            message,
            excerpt: String::new(),
        });
    };
    for permission in &skill.permissions {
        let (severity, what) = match permission {
            Permission::Tool(name) if name == "*" => (Severity::High, "every tool"),
            Permission::Network(host) if host == "*" => (Severity::Medium, "the whole network"),
            Permission::Write(path) if path == "." => {
                (Severity::Medium, "write access to the whole workspace")
            }
            Permission::SecretsToModels => (Severity::High, "secrets in prompts to remote models"),
            Permission::PiiToModels => (Severity::Medium, "personal details in prompts to remote models"),
            Permission::Shell => (Severity::Medium, "permission to start programs"),
            Permission::Read(_) | Permission::Write(_) | Permission::Network(_) | Permission::Tool(_) => {
                continue;
            }
        };
        find(severity, format!("it requests {what} (`{permission}`)"));
    }
    if !skill.unknown.is_empty() {
        let names: Vec<String> = skill.unknown.keys().map(|key| key.escape_debug().to_string()).collect();
        find(Severity::Low, format!("fields that have no effect here: {}", names.join(", ")));
    }
}

fn file(path: &str, bytes: &[u8], executable: bool, skill: &Skill, found: &mut Vec<Finding>) {
    let mut whole = |severity, kind, message: &str| {
        found.push(Finding {
            severity,
            kind,
            file: path.to_owned(),
            line: 0,
            message: message.to_owned(),
            excerpt: String::new(),
        });
    };
    if is_mixed(path) {
        whole(Severity::High, "hidden", "its name contains look-alike letters");
    }
    let is_entry = skill.entrypoint.as_deref() == Some(path);
    let is_script = executable || bytes.starts_with(b"#!") || rules::is_script(path);
    let name = path.rsplit('/').next().unwrap_or(path);
    if path.split('/').any(|part| part.starts_with('.')) && (is_script || bytes.starts_with(b"\x7fELF")) {
        whole(Severity::High, "script", "a program in a hidden file");
    } else if name.starts_with('.') {
        whole(Severity::Low, "file", "a hidden file");
    }
    if bytes.starts_with(b"\x7fELF") || bytes.starts_with(b"MZ") || bytes.starts_with(b"\0asm") {
        let severity = if is_entry { Severity::Low } else { Severity::Medium };
        whole(severity, "file", "compiled code, which can't be reviewed");
    } else if is_script && skill.runtime == Runtime::Instruction {
        whole(Severity::Medium, "script", "a script in a skill that declares no program");
    } else if bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(&[0x1f, 0x8b]) {
        whole(Severity::Medium, "file", "an archive, which was not scanned");
    }
    if !bytes.iter().take(8192).any(|byte| *byte == 0) {
        text(path, bytes.get(..TEXT_BYTES_MAX).unwrap_or(bytes), is_script, found);
    }
}

fn text(path: &str, bytes: &[u8], is_script: bool, found: &mut Vec<Finding>) {
    secrets(path, bytes, found);
    let text = String::from_utf8_lossy(bytes);
    let prose = rules::is_prose(path);
    for (number, line) in text.lines().enumerate() {
        let line = line.get(..line.floor_char_boundary(LINE_BYTES_MAX)).unwrap_or(line);
        let mut find = |severity, kind, message: &str, excerpt: String| {
            found.push(Finding {
                severity,
                kind,
                file: path.to_owned(),
                line: number + 1,
                message: message.to_owned(),
                excerpt,
            });
        };
        // A leading byte order mark is common and harmless; so are emoji variation selectors.
        let hides = |(at, c): (usize, char)| {
            is_invisible(c)
                && !(number == 0 && at == 0 && c == '\u{FEFF}')
                && !matches!(c, '\u{FE0E}' | '\u{FE0F}' | '\u{200D}')
        };
        if let Some((_, c)) = line.char_indices().find(|&it| hides(it)) {
            let message = format!("a hidden character (U+{:04X})", u32::from(c));
            find(Severity::High, "hidden", &message, excerpt(line));
        }
        for ScanRule { severity, kind, message, pattern, .. } in
            RULES.iter().filter(|rule| rule.is_for(prose, is_script))
        {
            if pattern.is_match(line) {
                find(*severity, kind, message, excerpt(line));
            }
        }
        if found.len() > FINDINGS_MAX {
            return;
        }
    }
}

/// Finds secrets and personal data by their form; never shows them in full.
fn secrets(path: &str, bytes: &[u8], found: &mut Vec<Finding>) {
    for redact::Finding { kind, span } in redact::find(bytes).into_iter().take(FINDINGS_MAX) {
        let severity = match kind {
            FindingKind::Key | FindingKind::Token | FindingKind::PrivateKey | FindingKind::Password => {
                Severity::High
            }
            FindingKind::Card | FindingKind::Iban | FindingKind::Ssn => Severity::Medium,
            // Authors publish contact addresses on purpose.
            FindingKind::Email | FindingKind::Phone => continue,
        };
        let line =
            bytes.get(..span.start).unwrap_or_default().iter().filter(|byte| **byte == b'\n').count() + 1;
        found.push(Finding {
            severity,
            kind: "secret",
            file: path.to_owned(),
            line,
            message: format!("it looks like a {}", kind.word()),
            excerpt: masked(bytes.get(span).unwrap_or_default()),
        });
    }
}

fn masked(secret: &[u8]) -> String {
    let start: String = String::from_utf8_lossy(secret).chars().take(6).collect();
    format!("{}…", start.escape_debug())
}

/// An escaped and truncated line.
fn excerpt(line: &str) -> String {
    let line = line.trim();
    let mut out = String::new();
    for c in line.chars().take(EXCERPT_CHARS_MAX) {
        if c.is_control() || is_invisible(c) { out.extend(c.escape_unicode()) } else { out.push(c) }
    }
    if line.chars().nth(EXCERPT_CHARS_MAX).is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests;
