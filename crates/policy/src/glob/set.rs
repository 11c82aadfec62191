//! Many path globs at once. Most patterns in policies have one of three shapes (`**/name`, `**/*.ext`, `**/name/**`), and
//! those are looked up by the path's own components instead of being tried one by one.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::{Part, PathGlob, Root, rooted};

/// A list of path globs, any of which may match.
#[derive(Debug, Clone, Default)]
pub(crate) struct PathSet {
    globs: Box<[PathGlob]>,
    /// Trees of which every path matches: `**`, `/**`, `vfs:/**`.
    whole: Roots,
    /// `**/name`
    names: Table,
    /// `**/*.ext`
    extensions: Table,
    /// `**/name/**`
    components: Table,
    /// Where in `globs` the patterns of other shapes are.
    others: Box<[u32]>,
}

type Table = HashMap<Box<str>, Roots, BuildHasherDefault<Fnv>>;

impl PathSet {
    pub(crate) fn new(globs: Vec<PathGlob>) -> Self {
        let mut set = Self::default();
        let mut others = Vec::new();
        for (at, glob) in (0_u32..).zip(&globs) {
            let (table, name) = match &*glob.parts {
                [Part::Depth] => {
                    set.whole.add(glob.root);
                    continue;
                }
                [Part::Depth, Part::One(name)] => match (name.exact(), name.suffix().and_then(extension)) {
                    (Some(name), _) => (&mut set.names, name),
                    (None, Some(extension)) => (&mut set.extensions, extension),
                    (None, None) => {
                        others.push(at);
                        continue;
                    }
                },
                [Part::Depth, Part::One(name), Part::Depth] if name.exact().is_some() => {
                    (&mut set.components, name.exact().unwrap_or_default())
                }
                _ => {
                    others.push(at);
                    continue;
                }
            };
            table.entry(name.into()).or_default().add(glob.root);
        }
        set.others = others.into();
        set.globs = globs.into();
        set
    }

    /// The globs that it is made of.
    pub(crate) fn globs(&self) -> &[PathGlob] {
        &self.globs
    }

    /// Matches a resolved path; `caller` is what `${agent}` stands for.
    pub(crate) fn matches(&self, path: &str, caller: &str) -> bool {
        let (root, below) = rooted(path);
        self.whole.has(root) || self.matches_component(root, below) || self.matches_other(path, caller)
    }

    fn matches_component(&self, root: Root, below: &str) -> bool {
        let has = |table: &Table, name: &str| table.get(name).is_some_and(|roots| roots.has(root));
        let name = below.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        if !self.names.is_empty() && has(&self.names, name) {
            return true;
        }
        if !self.extensions.is_empty()
            && name.rsplit_once('.').is_some_and(|(_, end)| has(&self.extensions, end))
        {
            return true;
        }
        !self.components.is_empty() && below.split('/').any(|component| has(&self.components, component))
    }

    fn matches_other(&self, path: &str, caller: &str) -> bool {
        self.others
            .iter()
            .filter_map(|at| self.globs.get(*at as usize))
            .any(|glob| glob.matches(path, caller))
    }
}

/// The extension that `*.ext` stands for.
fn extension(suffix: &str) -> Option<&str> {
    suffix.strip_prefix('.').filter(|rest| !rest.contains('.'))
}

/// Some of the three trees.
#[derive(Debug, Clone, Copy, Default)]
struct Roots {
    relative: bool,
    absolute: bool,
    vfs: bool,
}

impl Roots {
    fn add(&mut self, root: Root) {
        match root {
            Root::Relative => self.relative = true,
            Root::Absolute => self.absolute = true,
            Root::Vfs => self.vfs = true,
        }
    }

    fn has(self, root: Root) -> bool {
        match root {
            Root::Relative => self.relative,
            Root::Absolute => self.absolute,
            Root::Vfs => self.vfs,
        }
    }
}

/// FNV-1a: names are short, and who can choose them gains nothing but a slower look-up in a table that rules fill.
#[derive(Debug, Clone, Copy)]
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        // The table looks at the upper bits too, and FNV leaves them poor for short names.
        self.0 ^ self.0.rotate_left(26)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}
