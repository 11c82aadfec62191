//! Conditions on a call's resources: paths, endpoints, programs, secrets.

use super::Quantifier;
use crate::facts::{Facts, Resource};
use crate::glob::{NameGlob, PathSet, gapped};
use crate::words::Access;

/// Where a bare program name may resolve for an `allow`: folders that agents can't write.
const SYSTEM_FOLDERS: [&str; 6] =
    ["/usr/bin", "/bin", "/usr/local/bin", "/usr/sbin", "/sbin", "/usr/local/sbin"];

/// A test on paths and access.
#[derive(Debug, Clone, Default)]
pub(crate) struct PathTest {
    /// Any of these; `None` matches any path.
    pub globs: Option<PathSet>,
    /// Any of these; `None` matches any access.
    pub access: Option<Box<[Access]>>,
}

impl PathTest {
    pub(super) fn holds(&self, facts: &Facts<'_>, quantifier: Quantifier) -> bool {
        quantifier.over(paths(facts), |(path, access)| {
            self.access.as_ref().is_none_or(|list| list.contains(&access))
                && self.globs.as_ref().is_none_or(|globs| globs.matches(path, facts.caller.agent))
        })
    }
}

impl PathTest {
    /// Whether it tests the call's kind of access, for any path.
    pub(super) fn is_about_access(&self, facts: &Facts<'_>) -> bool {
        paths(facts).any(|(_, access)| self.access.as_ref().is_none_or(|list| list.contains(&access)))
    }
}

/// The paths among a call's resources.
pub(crate) fn paths<'a>(facts: &Facts<'a>) -> impl Iterator<Item = (&'a str, Access)> {
    facts.resources.iter().filter_map(|resource| match resource {
        Resource::Path { path, access } => Some((*path, *access)),
        Resource::Endpoint { .. } | Resource::Argv(_) | Resource::Secret(_) => None,
    })
}

/// A test on endpoints. All given parts must match.
#[derive(Debug, Clone, Default)]
pub(crate) struct EndpointTest {
    pub schemes: Option<Box<[Box<str>]>>,
    pub hosts: Option<Box<[HostPattern]>>,
    pub ports: Option<Box<[(u16, u16)]>>,
    pub methods: Option<Box<[Box<str>]>>,
    pub paths: Option<PathSet>,
}

impl EndpointTest {
    pub(super) fn holds(&self, facts: &Facts<'_>, quantifier: Quantifier) -> bool {
        let endpoints = facts.resources.iter().filter_map(|resource| match resource {
            Resource::Endpoint { scheme, host, port, method, path } => {
                Some((*scheme, *host, *port, *method, *path))
            }
            Resource::Path { .. } | Resource::Argv(_) | Resource::Secret(_) => None,
        });
        quantifier.over(endpoints, |(scheme, host, port, method, path)| {
            self.schemes.as_ref().is_none_or(|list| list.iter().any(|one| one.eq_ignore_ascii_case(scheme)))
                && self.hosts.as_ref().is_none_or(|list| list.iter().any(|one| one.matches(host)))
                && self
                    .ports
                    .as_ref()
                    .is_none_or(|list| list.iter().any(|(from, to)| (*from..=*to).contains(&port)))
                && self
                    .methods
                    .as_ref()
                    .is_none_or(|list| list.iter().any(|one| one.eq_ignore_ascii_case(method)))
                && self.paths.as_ref().is_none_or(|globs| {
                    let path = if path.is_empty() { "/" } else { path };
                    globs.matches(path, facts.caller.agent)
                })
        })
    }
}

impl EndpointTest {
    /// Whether it restricts no host, scheme, port, method or path.
    pub(crate) fn reaches_everywhere(&self) -> bool {
        self.hosts.as_ref().is_none_or(|hosts| hosts.contains(&HostPattern::Any))
            && self.schemes.is_none()
            && self.ports.is_none()
            && self.methods.is_none()
            && self.paths.is_none()
    }
}

/// A host, its subdomains, or any host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HostPattern {
    /// Exactly this host; lower case, no trailing dot.
    Exact(Box<str>),
    /// Every subdomain of this host, at any depth, without the host itself.
    Below(Box<str>),
    /// Every host.
    Any,
}

/// A host in the form in which patterns compare it.
pub(crate) fn bare_host(host: &str) -> &str {
    host.strip_suffix('.').unwrap_or(host)
}

impl HostPattern {
    fn matches(&self, host: &str) -> bool {
        let host = bare_host(host);
        match self {
            Self::Exact(name) => name.eq_ignore_ascii_case(host),
            Self::Below(domain) => {
                host.len().checked_sub(domain.len()).and_then(|at| host.split_at_checked(at)).is_some_and(
                    |(below, end)| {
                        below.len() > 1 && below.ends_with('.') && end.eq_ignore_ascii_case(domain)
                    },
                )
            }
            Self::Any => true,
        }
    }
}

/// A program and its arguments.
#[derive(Debug, Clone)]
pub(crate) struct ArgvPattern {
    /// Any of these.
    pub programs: Box<[NameGlob]>,
    /// Whether the program is written as a path.
    pub is_path: bool,
    pub rest: Box<[ArgvPart]>,
}

/// One position of an argument pattern.
#[derive(Debug, Clone)]
pub(crate) enum ArgvPart {
    /// One argument that matches any of these.
    One(Box<[NameGlob]>),
    /// Any number of arguments, written `...`.
    Gap,
}

impl ArgvPattern {
    fn matches(&self, argv: &[String], quantifier: Quantifier) -> bool {
        let Some((program, arguments)) = argv.split_first() else { return false };
        self.program_fits(program, quantifier)
            && gapped(
                &self.rest,
                arguments.iter(),
                |part| matches!(part, ArgvPart::Gap),
                |part, argument| match part {
                    ArgvPart::One(globs) => globs.iter().any(|glob| glob.matches(argument)),
                    ArgvPart::Gap => false,
                },
            )
    }

    /// In a deny, a bare name matches the program in any folder. In an allow, it matches only programs in system folders: a file called
    /// `git` in the workspace is not git.
    fn program_fits(&self, program: &str, quantifier: Quantifier) -> bool {
        if self.is_path {
            return self.programs.iter().any(|glob| glob.matches(program));
        }
        let (folder, name) =
            program.rsplit_once('/').map_or((None, program), |(folder, name)| (Some(folder), name));
        let place_fits = match (quantifier, folder) {
            (Quantifier::Any, _) | (Quantifier::Every, None) => true,
            (Quantifier::Every, Some(folder)) => SYSTEM_FOLDERS.contains(&folder),
        };
        place_fits && self.programs.iter().any(|glob| glob.matches(name))
    }
}

/// The programs among a call's resources.
pub(crate) fn argvs<'a>(facts: &Facts<'a>) -> impl Iterator<Item = &'a [String]> {
    facts.resources.iter().filter_map(|resource| match resource {
        Resource::Argv(argv) => Some(*argv),
        Resource::Path { .. } | Resource::Endpoint { .. } | Resource::Secret(_) => None,
    })
}

pub(super) fn argv_holds(patterns: &[ArgvPattern], facts: &Facts<'_>, quantifier: Quantifier) -> bool {
    quantifier.over(argvs(facts), |argv| patterns.iter().any(|pattern| pattern.matches(argv, quantifier)))
}

/// The secrets that a call uses, by name.
pub(crate) fn secrets<'a>(facts: &Facts<'a>) -> impl Iterator<Item = &'a str> {
    facts.resources.iter().filter_map(|resource| match resource {
        Resource::Secret(name) => Some(*name),
        Resource::Path { .. } | Resource::Endpoint { .. } | Resource::Argv(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        let below = HostPattern::Below("example.com".into());
        let exact = HostPattern::Exact("example.com".into());
        let cases = [
            (&below, "a.example.com", true),
            (&below, "A.b.Example.com.", true),
            (&below, "example.com", false),
            (&below, ".example.com", false),
            (&below, "badexample.com", false),
            (&below, "example.com.evil.test", false),
            (&below, "ä.com", false),
            (&exact, "EXAMPLE.com.", true),
            (&exact, "a.example.com", false),
            (&HostPattern::Any, "", true),
        ];
        for (pattern, host, expected) in cases {
            assert_eq!(pattern.matches(host), expected, "{pattern:?} on {host}");
        }
    }

    #[test]
    fn adv_030_a_bare_name_allows_only_system_programs() {
        let git = ArgvPattern {
            programs: Box::new([NameGlob::new("git").unwrap()]),
            is_path: false,
            rest: Box::new([ArgvPart::Gap]),
        };
        let cases = [
            ("git", true, true),
            ("/usr/bin/git", true, true),
            ("./git", false, true),
            ("/tmp/git", false, true),
            ("bin/git", false, true),
            ("/usr/bin/../../tmp/git", false, true),
            ("gitx", false, false),
        ];
        for (program, lets_in, catches) in cases {
            let argv = [program.to_owned(), "status".to_owned()];
            assert_eq!(git.matches(&argv, Quantifier::Every), lets_in, "{program}");
            assert_eq!(git.matches(&argv, Quantifier::Any), catches, "{program}");
        }
        assert!(!git.matches(&[], Quantifier::Any));
    }
}
