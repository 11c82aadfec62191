//! Paths of the virtual file system: one strict spelling, parsed once.

use regent_identity::AgentId;

use super::VfsError;

const PATH_BYTES_MAX: usize = 1024;
const PART_BYTES_MAX: usize = 255;
const PARTS_MAX: usize = 16;

/// A place in an agent's tree. Absolute, without `.` and `..`, without anything that reads differently than it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct VfsPath {
    tree: AgentId,
    own: bool,
    parts: Vec<String>,
}

impl VfsPath {
    /// Reads `/self/…` or `/agent/<id>/…`; for the caller's own id, which is `home`, both mean the same.
    pub(crate) fn parse(text: &str, home: &AgentId) -> Result<Self, VfsError> {
        let refuse = |why| Err(VfsError::Path { path: text.chars().take(64).collect(), why });
        if text.len() > PATH_BYTES_MAX {
            return refuse("it is too long");
        }
        let Some(below) = text.strip_prefix('/') else { return refuse("it is not absolute") };
        let mut parts: Vec<&str> = below.split('/').collect();
        if parts.iter().any(|part| part.is_empty() || matches!(*part, "." | "..")) {
            return refuse("it has an empty part or dots");
        }
        if parts.len() > PARTS_MAX || parts.iter().any(|part| part.len() > PART_BYTES_MAX) {
            return refuse("it has too many parts, or one that is too long");
        }
        if text.chars().any(deceives) {
            return refuse("it has characters that can't be seen");
        }
        let tree = match parts.first() {
            Some(&"self") => {
                parts.remove(0);
                home.clone()
            }
            Some(&"agent") if parts.len() > 1 => {
                let tree = AgentId::from(parts.remove(1));
                parts.remove(0);
                tree
            }
            Some(_) | None => return refuse("it begins with neither `/self` nor `/agent/<id>`"),
        };
        let own = tree == *home;
        Ok(Self { tree, own, parts: parts.into_iter().map(str::to_owned).collect() })
    }

    /// Whose tree it is in.
    pub(crate) fn tree(&self) -> &AgentId {
        &self.tree
    }

    /// The parts below the tree's root.
    pub(crate) fn parts(&self) -> &[String] {
        &self.parts
    }
}

impl std::fmt::Display for VfsPath {
    /// As policy sees it: one's own tree is `/self`, so that one rule can give every agent its own.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.own {
            f.write_str("/self")?;
        } else {
            write!(f, "/agent/{}", self.tree)?;
        }
        self.parts.iter().try_for_each(|part| write!(f, "/{part}"))
    }
}

/// Control characters, and those that reorder or hide text: a name must read as what it is.
fn deceives(c: char) -> bool {
    c.is_control() || regent_guard::invisible::is_invisible(c)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn person() -> AgentId {
        AgentId::from("operator")
    }

    #[test]
    fn paths_have_one_spelling() {
        let cases = [
            ("/self/mem/working/notes", Some("/self/mem/working/notes")),
            ("/agent/operator/mem", Some("/self/mem")),
            ("/agent/lusab-babad-gutih/mem", Some("/agent/lusab-babad-gutih/mem")),
            ("/self", Some("/self")),
            ("/self/mem/%2e%2e/x", Some("/self/mem/%2e%2e/x")),
            ("/self/mem/…/naïve", Some("/self/mem/…/naïve")),
            ("", None),
            ("/", None),
            ("self/mem", None),
            ("//self/mem", None),
            ("/self/", None),
            ("/self//mem", None),
            ("/self/./mem", None),
            ("/self/../agent/x", None),
            ("/self/mem/..", None),
            ("/agent", None),
            ("/etc/passwd", None),
            ("/self/mem/a\0b", None),
            ("/self/mem/a\nb", None),
            ("/self/mem/\u{202e}txt", None),
            ("/self/a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p", None),
        ];
        for (text, spelt) in cases {
            let parsed = VfsPath::parse(text, &person()).ok().map(|path| path.to_string());
            assert_eq!(parsed.as_deref(), spelt, "{text:?}");
        }
        assert!(VfsPath::parse(&format!("/self/{}", "a".repeat(256)), &person()).is_err());
        assert!(VfsPath::parse(&"/self/a".repeat(300), &person()).is_err());
    }

    proptest! {
        #[test]
        fn what_parses_is_spelt_so_that_it_parses_to_the_same(text in "(/(self|agent|\\.\\.|mem|\\PC{0,4})){0,6}") {
            if let Ok(path) = VfsPath::parse(&text, &person()) {
                let again = VfsPath::parse(&path.to_string(), &person());
                prop_assert_eq!(again.ok(), Some(path));
            }
        }
    }
}
