//! Sets of path globs. Most patterns have one of three shapes (`**/name`, `**/*.ext`, `**/name/**`), which are looked up by the path's
//! components instead of one by one.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use regent_guard::{GuardKind, Kinds, PLACES};

use super::{Part, PathGlob, Root, rooted};

/// Guard sets from which samples are taken.
const GUARD_SAMPLES_MAX: usize = 4;

/// A list of path globs and named sets of guarded files. Any of them may match.
#[derive(Debug, Clone, Default)]
pub(crate) struct PathSet {
    globs: Box<[PathGlob]>,
    /// Trees that match entirely: `**`, `/**`, `vfs:/**`.
    whole: Roots,
    /// `**/name`
    names: Table,
    /// `**/*.ext`
    extensions: Table,
    /// `**/name/**`
    components: Table,
    /// Indices in `globs` of patterns of other shapes.
    others: Box<[u32]>,
    /// Named sets, each with its tree; they match folded names.
    guards: Box<[Guarded]>,
}

/// A named set of guarded files: `@control-files` inside the workspace, `/@personal-secrets` outside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Guarded {
    root: Root,
    kinds: Kinds,
}

impl Guarded {
    /// Parses `@name` or `/@name`; `None` for an ordinary pattern, the name if the set is unknown.
    pub(crate) fn parse(text: &str) -> Option<Result<Self, &str>> {
        let (root, name) = match text.strip_prefix('/') {
            Some(rest) => (Root::Absolute, rest.strip_prefix('@')?),
            None => (Root::Relative, text.strip_prefix('@')?),
        };
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-') {
            return None;
        }
        Some(match GuardKind::from_name(name) {
            // Regent's own files are control files, too.
            Some(GuardKind::Control) => Ok(Self { root, kinds: Kinds::UNWRITABLE }),
            Some(kind) => Ok(Self { root, kinds: kind.into() }),
            None => Err(name),
        })
    }

    /// Its tree.
    pub(crate) fn root(self) -> Root {
        self.root
    }

    fn samples(self) -> impl Iterator<Item = String> {
        let places = PLACES.iter().filter(move |place| self.kinds.contains(place.kind));
        places.take(GUARD_SAMPLES_MAX).map(move |place| {
            let below = place.pattern.trim_start_matches("**/").replace("**", "some").replace('*', "x");
            if self.root == Root::Absolute { format!("/{below}") } else { below }
        })
    }
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

    /// Adds named sets to the globs.
    pub(crate) fn with_guards(self, guards: Vec<Guarded>) -> Self {
        Self { guards: guards.into(), ..self }
    }

    /// Its globs.
    pub(crate) fn globs(&self) -> &[PathGlob] {
        &self.globs
    }

    /// Its named sets.
    pub(crate) fn guards(&self) -> &[Guarded] {
        &self.guards
    }

    /// Paths that match.
    pub(crate) fn samples(&self) -> impl Iterator<Item = String> {
        self.globs.iter().map(PathGlob::sample).chain(self.guards.iter().flat_map(|guard| guard.samples()))
    }

    /// Whether it matches only single paths.
    pub(crate) fn is_plain(&self) -> bool {
        self.guards.is_empty() && self.globs.iter().all(PathGlob::is_plain)
    }

    /// Whether `wide` matches everything that this set matches; `false` if that isn't certain.
    pub(crate) fn implies(&self, wide: &Self) -> bool {
        let all = |root: Root| wide.globs.iter().any(|glob| glob.root() == root && glob.matches_all());
        self.globs.iter().all(|narrow| all(narrow.root()) || wide.globs.contains(narrow))
            && self.guards.iter().all(|narrow| all(narrow.root) || wide.guards.contains(narrow))
    }

    /// Matches a resolved path; `caller` replaces `${agent}`.
    pub(crate) fn matches(&self, path: &str, caller: &str) -> bool {
        let (root, below) = rooted(path);
        self.whole.has(root)
            || self.matches_component(root, below)
            || self.matches_other(path, caller)
            || self.matches_guarded(root, below)
    }

    fn matches_guarded(&self, root: Root, below: &str) -> bool {
        let mut meant = self.guards.iter().filter(|guard| guard.root == root).peekable();
        if meant.peek().is_none() {
            return false;
        }
        let kinds = regent_guard::kinds_of(below);
        meant.any(|guard| guard.kinds.intersects(kinds))
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

/// The extension of `*.ext`.
fn extension(suffix: &str) -> Option<&str> {
    suffix.strip_prefix('.').filter(|rest| !rest.contains('.'))
}

/// A subset of the three trees.
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

/// FNV-1a: names are short. Rules fill the table, so an attacker who chooses names only slows down a lookup.
#[derive(Debug, Clone, Copy)]
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        // The table also uses the upper bits, in which FNV is weak for short names.
        self.0 ^ self.0.rotate_left(26)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}
