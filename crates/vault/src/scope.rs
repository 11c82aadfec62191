//! The scope of a secret: tools, agents and hosts that may use it.

use regent_kernel::Usage;
use serde::{Deserialize, Serialize};

use crate::error::VaultError;

/// Maximum number of patterns per list.
const PATTERNS_MAX: usize = 64;
const PATTERN_BYTES_MAX: usize = 256;

/// The scope of a secret. An empty list imposes no limit; only policy applies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Scope {
    /// Tools that may use it; `*` matches any characters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Agents that may use it. The list must also match every ancestor of the calling agent. The operator is always allowed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<String>,
    /// Hosts that it may be sent to: `example.com`, `*.example.com` (subdomains), `*`. A call that names no host is denied.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
}

impl Scope {
    /// Whether it imposes no limit.
    pub fn is_open(&self) -> bool {
        self.tools.is_empty() && self.agents.is_empty() && self.hosts.is_empty()
    }

    /// The reason to deny this use, if any.
    pub(crate) fn refuses(&self, usage: &Usage<'_>) -> Option<String> {
        if !self.tools.is_empty() && !self.tools.iter().any(|pattern| fits(pattern, usage.tool)) {
            return Some(format!("the tool `{}` may not use it", usage.tool));
        }
        if !self.agents.is_empty()
            && let Some(agent) =
                usage.agents.iter().find(|agent| !self.agents.iter().any(|pattern| fits(pattern, agent)))
        {
            return Some(format!("the agent `{}` may not use it", agent.escape_debug()));
        }
        if self.hosts.is_empty() {
            return None;
        }
        if usage.hosts.is_empty() {
            return Some("the call doesn't name its host".to_owned());
        }
        let stranger =
            usage.hosts.iter().find(|host| !self.hosts.iter().any(|pattern| fits_host(pattern, host)))?;
        Some(format!("it may not be sent to the host `{}`", stranger.escape_debug()))
    }

    /// Rejects malformed scopes.
    pub(crate) fn check(&self) -> Result<(), VaultError> {
        for list in [&self.tools, &self.agents, &self.hosts] {
            if list.len() > PATTERNS_MAX {
                return Err(VaultError::Scope(format!("more than {PATTERNS_MAX} patterns")));
            }
            for pattern in list {
                let odd = |byte: u8| !byte.is_ascii_graphic();
                if pattern.is_empty() || pattern.len() > PATTERN_BYTES_MAX || pattern.bytes().any(odd) {
                    return Err(VaultError::Scope(format!("`{}` is not a pattern", pattern.escape_debug())));
                }
            }
        }
        for host in &self.hosts {
            let bare = host.strip_prefix("*.").unwrap_or(host);
            let fine = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
            if host != "*" && (bare.is_empty() || !bare.bytes().all(fine)) {
                let why = format!("`{host}` is not a host: write `example.com`, `*.example.com` or `*`");
                return Err(VaultError::Scope(why));
            }
        }
        Ok(())
    }

    pub(crate) fn bytes(&self) -> usize {
        let all = self.tools.iter().chain(&self.agents).chain(&self.hosts);
        all.map(|pattern| pattern.len().saturating_add(4)).sum::<usize>().saturating_add(64)
    }
}

/// Glob match with `*`. It backtracks only to the last star, so time is bounded by the product of the lengths.
fn fits(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut read) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while let Some(byte) = text.get(read) {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, read));
                at = at.saturating_add(1);
            }
            Some(wanted) if wanted == byte => {
                at = at.saturating_add(1);
                read = read.saturating_add(1);
            }
            Some(_) | None => match star {
                None => return false,
                Some((back, taken)) => {
                    at = back.saturating_add(1);
                    read = taken.saturating_add(1);
                    star = Some((back, read));
                }
            },
        }
    }
    pattern.get(at..).is_none_or(|rest| rest.iter().all(|byte| *byte == b'*'))
}

fn fits_host(pattern: &str, host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let pattern = pattern.trim_end_matches('.').to_ascii_lowercase();
    match pattern.strip_prefix("*.") {
        _ if pattern == "*" => true,
        Some(domain) => {
            host.strip_suffix(domain).is_some_and(|below| below.len() > 1 && below.ends_with('.'))
        }
        None => host == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(patterns: &[&str]) -> Vec<String> {
        patterns.iter().map(|pattern| (*pattern).to_owned()).collect()
    }

    #[test]
    fn scopes() {
        let scope = |tools: &[&str], agents: &[&str], hosts: &[&str]| Scope {
            tools: list(tools),
            agents: list(agents),
            hosts: list(hosts),
        };
        let usage = |agents: &[&'static str], hosts: &[&'static str]| Usage {
            tool: "http.fetch",
            agents: agents.to_vec(),
            hosts: hosts.to_vec(),
        };
        let cases = [
            (scope(&[], &[], &[]), usage(&["any"], &[]), true),
            (scope(&["http.*"], &[], &[]), usage(&[], &[]), true),
            (scope(&["mail.*"], &[], &[]), usage(&[], &[]), false),
            (scope(&[], &["billing*"], &[]), usage(&["billing/child", "billing"], &[]), true),
            // An agent chooses its children's names, so its ancestors must be allowed too.
            (scope(&[], &["*/billing"], &[]), usage(&["rogue/billing", "rogue"], &[]), false),
            (scope(&[], &["billing"], &[]), usage(&[], &[]), true),
            (scope(&[], &[], &["api.test"]), usage(&[], &["api.test"]), true),
            (scope(&[], &[], &["API.test."]), usage(&[], &["api.TEST"]), true),
            (scope(&[], &[], &["api.test"]), usage(&[], &["api.test", "evil.test"]), false),
            (scope(&[], &[], &["api.test"]), usage(&[], &[]), false),
            (scope(&[], &[], &["*.test"]), usage(&[], &["a.test"]), true),
            (scope(&[], &[], &["*.api.test"]), usage(&[], &["api.test"]), false),
            (scope(&[], &[], &["*.api.test"]), usage(&[], &["evilapi.test"]), false),
            (scope(&[], &[], &["api.test"]), usage(&[], &["api.test.evil.test"]), false),
        ];
        for (scope, usage, fine) in cases {
            assert_eq!(scope.refuses(&usage).is_none(), fine, "{scope:?} for {usage:?}");
        }
    }

    #[test]
    fn patterns() {
        let cases = [
            ("*", "", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("a*", "a", true),
            ("", "a", false),
            ("a**b", "ab", true),
            ("a", "ab", false),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(fits(pattern, text), expected, "{pattern} on {text}");
        }
        for host in ["https://a.test", "a.test/x", "a*.test", "", "a b"] {
            assert!(Scope { hosts: list(&[host]), ..Scope::default() }.check().is_err(), "{host}");
        }
    }
}
