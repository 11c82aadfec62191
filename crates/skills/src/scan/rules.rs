//! The line patterns of the scan. All are linear-time regular expressions.

use std::sync::LazyLock;

use regex::Regex;

use super::Severity;

/// One pattern.
#[derive(Debug)]
pub(super) struct ScanRule {
    pub(super) severity: Severity,
    pub(super) kind: &'static str,
    pub(super) message: &'static str,
    pub(super) pattern: Regex,
    place: TextKind,
}

/// The kind of text that a rule applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextKind {
    Anywhere,
    /// Text that models read.
    Prose,
    /// Programs, and text that shows how to call them.
    Script,
}

impl ScanRule {
    pub(super) fn is_for(&self, prose: bool, script: bool) -> bool {
        match self.place {
            TextKind::Anywhere => true,
            TextKind::Prose => prose,
            TextKind::Script => script || prose,
        }
    }
}

/// Whether a name is that of a script.
pub(super) fn is_script(path: &str) -> bool {
    const ENDINGS: &[&str] = &[
        ".sh", ".bash", ".zsh", ".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".php", ".ps1", ".bat",
        ".cmd", ".lua",
    ];
    let lower = path.to_ascii_lowercase();
    ENDINGS.iter().any(|ending| lower.ends_with(ending)) || lower.ends_with("makefile")
}

/// Whether a model will read it.
pub(super) fn is_prose(path: &str) -> bool {
    let lower = path.to_ascii_lowercase();
    [".md", ".mdx", ".txt", ".rst", ".html", ".htm", ".adoc"].iter().any(|ending| lower.ends_with(ending))
}

use Severity::{Critical, High, Low, Medium};
use TextKind::{Anywhere, Prose, Script};

const PATTERNS: &[(Severity, &str, TextKind, &str, &str)] = &[
    (
        High,
        "injection",
        Prose,
        "it tells the model to ignore its instructions",
        r"(?i)\b(ignore|disregard|forget|override|bypass)\b.{0,40}\b(previous|prior|above|earlier|all|any|your|system)\b.{0,40}\b(instruction|prompt|rule|polic|guardrail|guideline|safety)",
    ),
    (
        High,
        "injection",
        Prose,
        "it asks to hide something from the user",
        r"(?i)\b(do not|don't|never|without)\b.{0,20}\b(tell|telling|inform|informing|mention|mentioning|reveal|notify|asking|show)\b.{0,30}\b(the )?(user|human|operator|person|developer)\b",
    ),
    (
        High,
        "injection",
        Prose,
        "it imitates conversation markers",
        r"(?i)</?(system|assistant)>|<\|(im_start|im_end|system|assistant|endoftext)\|>|\[/?INST\]|<</?SYS>>",
    ),
    (
        High,
        "injection",
        Prose,
        "it gives the model another role",
        r"(?i)\byou are (now|no longer)\b.{0,60}\b(unrestricted|jailbroken|unfiltered|developer mode|root|admin|bound by)\b",
    ),
    (
        Medium,
        "injection",
        Prose,
        "it tells the model to call a tool before anything else",
        r"(?i)\b(before|first|always|immediately)\b.{0,60}\b(call|invoke|use|run|execute)\b.{0,40}\b(tool|function|command|script)\b",
    ),
    (
        High,
        "injection",
        Anywhere,
        "it refers to personal keys and tokens",
        r"(?i)(~|\$HOME|\$\{HOME\}|%USERPROFILE%|/home/[a-z0-9_-]+|/root)/\.(ssh|aws|gnupg|kube|docker|netrc|git-credentials|config/(gcloud|gh))\b",
    ),
    (
        High,
        "injection",
        Prose,
        "it asks for secrets to be sent somewhere",
        r"(?i)\b(send|post|upload|forward|exfiltrate|transmit|leak|paste)\b.{0,80}\b(conversation|chat history|secrets?|credentials?|passwords?|api.?keys?|private keys?|tokens?|environment variables?)\b.{0,40}\b(to|at|into)\b",
    ),
    (Low, "hidden", Prose, "a comment that is invisible in a rendered page", r"<!--"),
    (
        Critical,
        "script",
        Script,
        "it pipes a download into a shell",
        r"(?i)\b(curl|wget|fetch|iwr|invoke-webrequest)\b[^|;&]*\|\s*(sudo\s+)?(env\s+)?(\S*/)?((ba|da|z|k|fi)?sh|python[0-9.]*|perl|ruby|node|iex)\b|\b(ba|z)?sh\b\s*(-c\s*)?(<\(|[\x22']?\$\()\s*(curl|wget)",
    ),
    (
        Critical,
        "script",
        Script,
        "it removes everything",
        r"\brm\s+(-\S+\s+)*-\S*[rRf]\S*\s+(-\S+\s+)*(/|/\*|~|~/\*?|\$HOME|\$\{HOME\})(\s|;|&|\||$)|--no-preserve-root|\bmkfs(\.\w+)?\s|\bdd\b[^;&|]*\bof=/dev/(sd|nvme|vd|hd)",
    ),
    (Low, "script", Script, "it removes folders recursively", r"\brm\s+(-\S+\s+)*-\S*(rf|fr|Rf|fR)"),
    (
        Critical,
        "script",
        Script,
        "it decodes something and runs it",
        r"(?i)base64\s+(-d|-D|--decode)\b[^;&]*\|\s*(\S*/)?((ba|z|da)?sh|python[0-9.]*|perl|ruby|node)\b|\b(eval|exec)\b\s*\(?.{0,40}(base64|atob|b64decode|fromcharcode|unhexlify|marshal\.loads|zlib\.decompress|codecs\.decode)",
    ),
    (
        High,
        "script",
        Script,
        "it evaluates text as a program",
        r#"(?i)\beval\s+["'`]?\$|\beval\s*\(\s*(request|input|response|data|await|open)"#,
    ),
    (
        Critical,
        "script",
        Script,
        "it opens a reverse shell",
        r"(?i)/dev/(tcp|udp)/|\bn(et)?c(at)?\b[^;&|]*\s-[a-z]*[ec]\b|\bbash\s+-i\b|mkfifo\b.{0,80}\bn(et)?c(at)?\b|socket\.socket.{0,200}(dup2|subprocess|/bin/sh)|pty\.spawn",
    ),
    (
        High,
        "script",
        Anywhere,
        "it mines cryptocurrency",
        r"(?i)\b(xmrig|minerd|cpuminer|ethminer|nicehash|coinhive|cryptonight)\b|stratum\+(tcp|ssl)://",
    ),
    (
        High,
        "script",
        Script,
        "it writes files that control shells, git, editors or the system",
        r#"(?i)(>>?|\btee\b(\s+-a)?|\bcp\b.*|\bmv\b.*|\bln\b.*|open\(.{0,60}|write(file|_text)?\(.{0,60})\s*["']?\S*(\.bashrc|\.bash_profile|\.zshrc|\.zshenv|\.profile|authorized_keys|\.git/(hooks|config)|\.gitconfig|\.mcp\.json|\.vscode/|\.cursor/|\.claude/|\.regent/|/etc/|/cron|LaunchAgents|systemd/)"#,
    ),
    (
        Medium,
        "script",
        Script,
        "it installs itself to run at startup",
        r"(?i)\bcrontab\s+(-|\S)|\bsystemctl\s+(--user\s+)?enable\b|\blaunchctl\s+load\b|\bschtasks\b|@reboot",
    ),
    (
        High,
        "script",
        Script,
        "it injects code into other programs",
        r"(?i)\b(LD_PRELOAD|LD_AUDIT|DYLD_INSERT_LIBRARIES)\s*=",
    ),
    (
        High,
        "script",
        Anywhere,
        "it requests the machine's cloud credentials",
        r"169\.254\.169\.254|metadata\.google\.internal",
    ),
    (
        High,
        "script",
        Script,
        "it sends the environment over the network",
        r"(?i)\b(printenv|env|set)\b\s*\|\s*[^|]*\b(curl|wget|nc|ncat)\b|\b(curl|wget)\b.*(\$\(\s*(env|printenv)|os\.environ)",
    ),
    (
        Medium,
        "script",
        Script,
        "it sets a setuid or setgid bit",
        r"(?i)\bchmod\s+(-\S+\s+)*(\+s|u\+s|g\+s|[246]7[0-7]{2})\b|\bsetcap\b",
    ),
    (Low, "script", Script, "it requests root", r"(?i)\bsudo\s"),
];

/// All rules. An invalid pattern would be skipped; a test checks that all compile.
pub(super) static RULES: LazyLock<Vec<ScanRule>> = LazyLock::new(|| {
    let rule = |(severity, kind, place, message, pattern): &(
        Severity,
        &'static str,
        TextKind,
        &'static str,
        &str,
    )| {
        let pattern = Regex::new(pattern).ok()?;
        Some(ScanRule { severity: *severity, kind, message, pattern, place: *place })
    };
    PATTERNS.iter().filter_map(rule).collect()
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles() {
        assert_eq!(RULES.len(), PATTERNS.len());
    }
}
