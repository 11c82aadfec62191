//! Classifies paths by the table of guarded files.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use crate::fold::fold_name;
use crate::git::{self, GitEntry};
use crate::kinds::{GuardKind, Kinds};
use crate::places::{EXCEPTIONS, GuardedPlace, PLACES};

/// The parsed table: patterns indexed by their first component.
static TABLE: LazyLock<Table> = LazyLock::new(Table::new);

#[derive(Debug)]
struct Table {
    places: Vec<Pattern>,
    exceptions: Vec<(GuardKind, Pattern)>,
    /// Patterns whose first component is a plain name, by that name.
    named: HashMap<String, Vec<usize>>,
    /// The same patterns by the 8.3 alias of that name.
    aliased: HashMap<(String, String), Vec<usize>>,
    /// Patterns of one component that contains a `*`.
    starred: Vec<usize>,
}

/// A pattern `**/a/b` or `**/a/b/**`, folded.
#[derive(Debug)]
struct Pattern {
    components: Vec<Component>,
    /// Whether the pattern includes everything below.
    with_content: bool,
}

/// One parsed name of a pattern. Parsed once, because a launch compares every file of a workspace with every starred pattern.
#[derive(Debug)]
enum Component {
    Plain(String),
    /// Literal pieces around `*`, which matches any run of characters.
    Starred {
        first: String,
        middle: Vec<String>,
        last: String,
    },
}

/// How a path relates to a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fit {
    /// It is the guarded file, or lies in the guarded folder.
    Inside,
    /// It is a parent folder of the guarded file.
    OnTheWay,
}

/// The effect of creating a directory entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Creation {
    /// No tool acts on the entry.
    Free,
    /// The entry is a guarded file, or lies in a guarded folder.
    Guarded(&'static GuardedPlace),
    /// The entry can become a folder that holds a guarded file (`.cargo` for `.cargo/config.toml`). An empty folder or a file is fine. A
    /// link, or a folder that is moved there with its content, must be denied or searched.
    OnTheWay(&'static GuardedPlace),
}

/// The kinds of the guarded files that a path is, or of the guarded folders that it lies in.
pub fn kinds_of(path: &str) -> Kinds {
    let names = folded(path);
    let mut kinds = Kinds::NONE;
    TABLE.visit(&names, |at, fit| {
        if fit == Fit::Inside
            && let Some(place) = PLACES.get(at)
        {
            kinds = kinds.with(place.kind);
        }
    });
    TABLE.without_exceptions(&names, kinds)
}

/// Whether a path is, or lies in, a guarded file or folder of that kind.
pub fn is_kind(path: &str, kind: GuardKind) -> bool {
    kinds_of(path).contains(kind)
}

/// Classifies the creation of `name` by a sandboxed program in the folder `parent` (empty or `.` is the workspace itself), for the kinds
/// that the program must not create, usually [`Kinds::UNWRITABLE`]. Inside a `.git` folder, files that git writes in ordinary work are
/// free.
///
/// [`completes_repository`](crate::completes_repository) decides whether the entry completes a bare repository.
pub fn creation(parent: &str, name: &str, kinds: Kinds) -> Creation {
    let raw: Vec<&str> = components(parent).chain([name]).collect();
    let mut names: Vec<Cow<'_, str>> = raw.iter().map(|part| fold_name(part)).collect();
    if let Some(at) = names.iter().position(|part| is_folded_git_folder(part))
        && at + 1 < names.len()
        && git::entry(raw.get(at + 1..).unwrap_or_default()) == GitEntry::Writable
    {
        // The `.git` component is settled. The remaining path may still match another pattern.
        names.remove(at);
    }
    if let Some(place) = TABLE.find(&names, kinds, Fit::Inside) {
        return Creation::Guarded(place);
    }
    TABLE.find(&names, kinds, Fit::OnTheWay).map_or(Creation::Free, Creation::OnTheWay)
}

/// Whether a name is that of a `.git` folder, in any spelling.
pub fn is_git_folder(name: &str) -> bool {
    is_folded_git_folder(&fold_name(name))
}

fn is_folded_git_folder(folded: &str) -> bool {
    folded == ".git" || is_short_name(folded, ".git")
}

fn components(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty() && *part != ".")
}

fn folded(path: &str) -> Vec<Cow<'_, str>> {
    components(path).map(fold_name).collect()
}

impl Table {
    fn new() -> Self {
        let places: Vec<Pattern> = PLACES.iter().map(|place| Pattern::new(place.pattern)).collect();
        let exceptions = EXCEPTIONS.iter().map(|(kind, pattern)| (*kind, Pattern::new(pattern))).collect();
        let (mut named, mut starred) = (HashMap::<String, Vec<usize>>::new(), Vec::new());
        let mut aliased = HashMap::<_, Vec<usize>>::new();
        for (at, pattern) in places.iter().enumerate() {
            match pattern.components.first() {
                Some(Component::Plain(first)) => {
                    named.entry(first.clone()).or_default().push(at);
                    aliased.entry(short_form(first)).or_default().push(at);
                }
                Some(Component::Starred { .. }) | None => starred.push(at),
            }
        }
        Self { places, exceptions, named, aliased, starred }
    }

    /// Calls `visit` with each pattern that the path matches at any depth.
    fn visit(&self, names: &[Cow<'_, str>], mut visit: impl FnMut(usize, Fit)) {
        for start in 0..names.len() {
            let tail = names.get(start..).unwrap_or_default();
            let Some(first) = tail.first() else { continue };
            let mut attempt = |at: usize| {
                if let Some(fit) = self.places.get(at).and_then(|pattern| pattern.fits(tail)) {
                    visit(at, fit);
                }
            };
            // A map lookup instead of a scan: a path can have hundreds of names with a `~`.
            if let Some((stem, extension)) = short_parts(first) {
                let alias = (stem.to_owned(), extension.to_owned());
                self.aliased.get(&alias).into_iter().flatten().for_each(|at| attempt(*at));
            }
            self.named.get(&**first).into_iter().flatten().for_each(|at| attempt(*at));
            // Starred patterns have one component, so only the last component of the path can match.
            if tail.len() == 1 {
                self.starred.iter().for_each(|at| attempt(*at));
            }
        }
    }

    fn find(&self, names: &[Cow<'_, str>], kinds: Kinds, wanted: Fit) -> Option<&'static GuardedPlace> {
        let mut found: Option<usize> = None;
        let allowed = self.without_exceptions(names, kinds);
        self.visit(names, |at, fit| {
            let counts = PLACES.get(at).is_some_and(|place| allowed.contains(place.kind));
            if fit == wanted && counts && found.is_none_or(|best| at < best) {
                found = Some(at);
            }
        });
        found.and_then(|at| PLACES.get(at))
    }

    fn without_exceptions(&self, names: &[Cow<'_, str>], kinds: Kinds) -> Kinds {
        let excepted = |kind: &GuardKind| {
            let fits = |pattern: &Pattern| {
                let last = names.len().checked_sub(pattern.components.len());
                last.and_then(|start| names.get(start..)).and_then(|tail| pattern.fits(tail))
                    == Some(Fit::Inside)
            };
            self.exceptions.iter().any(|(of, pattern)| of == kind && fits(pattern))
        };
        kinds.iter().filter(|kind| !excepted(kind)).collect()
    }
}

impl Pattern {
    fn new(pattern: &str) -> Self {
        let rest = pattern.strip_prefix("**/").unwrap_or(pattern);
        let (rest, with_content) = match rest.strip_suffix("/**") {
            Some(rest) => (rest, true),
            None => (rest, false),
        };
        Self {
            components: rest.split('/').map(|name| Component::new(&fold_name(name))).collect(),
            with_content,
        }
    }

    /// Compares the beginning of `names` with the pattern.
    fn fits(&self, names: &[Cow<'_, str>]) -> Option<Fit> {
        let same = self.components.iter().zip(names).all(|(pattern, name)| pattern.fits(name));
        if !same {
            return None;
        }
        match names.len().cmp(&self.components.len()) {
            std::cmp::Ordering::Less => Some(Fit::OnTheWay),
            std::cmp::Ordering::Equal => Some(Fit::Inside),
            std::cmp::Ordering::Greater => self.with_content.then_some(Fit::Inside),
        }
    }
}

impl Component {
    fn new(name: &str) -> Self {
        let mut pieces = name.split('*').map(str::to_owned);
        let first = pieces.next().unwrap_or_default();
        match pieces.next_back() {
            None => Self::Plain(first),
            Some(last) => Self::Starred { first, middle: pieces.collect(), last },
        }
    }

    /// Compares a folded name with it.
    fn fits(&self, name: &str) -> bool {
        match self {
            Self::Plain(plain) => plain == name || is_short_name(name, plain),
            Self::Starred { first, middle, last } => {
                let rest =
                    name.strip_prefix(first.as_str()).and_then(|rest| rest.strip_suffix(last.as_str()));
                let Some(mut rest) = rest else { return false };
                middle.iter().all(|piece| match rest.find(piece.as_str()) {
                    Some(at) => {
                        rest = rest.get(at + piece.len()..).unwrap_or_default();
                        true
                    }
                    None => false,
                })
            }
        }
    }
}

/// Whether a folded name is the 8.3 alias (`GIT~1`, `MCP~1.JSO`) that FAT and NTFS create for `long`.
fn is_short_name(name: &str, long: &str) -> bool {
    short_parts(name).is_some_and(|(stem, extension)| {
        let short = short_form(long);
        stem == short.0 && extension == short.1
    })
}

/// Stem and extension of a name that looks like an 8.3 alias.
fn short_parts(name: &str) -> Option<(&str, &str)> {
    let (stem, number) = name.split_once('~')?;
    let (number, extension) = number.split_once('.').unwrap_or((number, ""));
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (digits && !stem.is_empty()).then_some((stem, extension))
}

/// Stem and extension of the 8.3 alias of a long name.
fn short_form(long: &str) -> (String, String) {
    let (stem, extension) = match long.trim_start_matches('.').rsplit_once('.') {
        Some(parts) => parts,
        None => (long.trim_start_matches('.'), ""),
    };
    let stem = stem.chars().filter(|c| !matches!(c, '.' | ' ')).take(6).collect();
    (stem, extension.get(..3).unwrap_or(extension).to_owned())
}
