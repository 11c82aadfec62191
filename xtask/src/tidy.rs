//! Rules of the house that neither the compiler nor clippy knows. Each finding is `file:line: message`; all come at once.

mod architecture;
pub(crate) mod graph;
mod lock;
pub(crate) mod packages;
mod profiles;
mod pure;
mod tables;
mod voice;

use std::fs;
use std::path::{Path, PathBuf};

use tables::{COMPILED_ONCE, REACHING, SMALL_FUTURES, STATICS};

/// The arrows between our crates. They never turn back; a new one is a decision and gets an ADR.
const MAY_DEPEND_ON: &[(&str, &[&str])] = &[
    ("guard", &[]),
    ("policy", &["guard"]),
    ("provenance", &[]),
    ("identity", &[]),
    ("ledger", &[]),
    ("store", &[]),
    ("wire", &["policy", "provenance", "identity", "ledger"]),
    ("workspace", &["guard", "ledger"]),
    ("lookup", &["ledger", "wire"]),
    ("kernel", &["guard", "policy", "provenance", "identity", "ledger", "store", "wire", "workspace"]),
    ("control", &["kernel", "ledger", "wire"]),
    ("sandbox", &["guard", "kernel"]),
    ("microvm", &["kernel", "sandbox"]),
    ("egress", &["kernel", "tools-macros"]),
    ("tools-macros", &[]),
    ("tools", &["guard", "kernel", "egress", "tools-macros", "script"]),
    ("vault", &["kernel"]),
    ("models", &["kernel", "egress", "vault", "wire"]),
    ("inference", &["kernel", "models"]),
    ("runtime", &["guard", "kernel", "tools-macros", "wire"]),
    ("protocols", &["policy", "ledger", "store", "kernel", "control", "vault", "runtime", "wire"]),
    ("skills", &["guard", "policy", "ledger", "kernel", "sandbox", "microvm", "tools", "vault"]),
    ("testkit", &["policy", "ledger", "store", "kernel", "wire"]),
    (
        "regent",
        &[
            "guard",
            "policy",
            "ledger",
            "lookup",
            "store",
            "kernel",
            "control",
            "sandbox",
            "microvm",
            "egress",
            "tools",
            "vault",
            "models",
            "inference",
            "runtime",
            "protocols",
            "skills",
            "wire",
        ],
    ),
];
/// Crates that may hold `unsafe`, each block with its proof (ADR 0081).
const UNSAFE: &[&str] = &["sandbox", "microvm"];
/// Words that say nothing about the thing they name.
const BANNED_WORDS: &[&str] =
    &["manager", "helper", "util", "utils", "common", "base", "engine", "service", "data", "info"];
const BANNED_FOLDERS: &[&str] = &["core", "common", "types", "utils"];
const FILE_LINES_MAX: usize = 500;
/// Calls that change files of the machine, and the crates that make none of them: what they keep goes through one that does.
const WRITING: &[&str] =
    &["fs::write(", "fs::remove_file(", "fs::remove_dir_all(", "fs::rename(", "File::create("];
const WRITES_NO_FILES: &[&str] =
    &["guard", "identity", "kernel", "policy", "provenance", "tools-macros", "wire"];
/// What has to be right for "no effect without a permit" to be true: the kernel, and everything that it decides and records with.
const TRUSTED_BASE: &[&str] =
    &["policy", "provenance", "identity", "guard", "ledger", "store", "wire", "workspace", "kernel"];
/// What its crates hold for callers alone: the kernel neither writes nor reads it, so nothing rests on it (ADR 0052).
const FOR_CALLERS: &[(&str, &str)] =
    &[("crates/wire/src/event.rs", "regent_wire::event"), ("crates/wire/src/judge.rs", "regent_wire::judge")];
/// How much code that may be, without tests. It grows only with a decision that says why (ADR 0052).
const TRUSTED_LINES_MAX: usize = 46_200;
/// Spelt apart, so that this file passes its own exam.
const UNFINISHED: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("unimpl", "emented!(")];
const IGNORED: &str = concat!("#[ign", "ore");
/// Not left out: another test runs it, as its child.
const IGNORED_BY_RIGHT: &str = concat!("#[ign", "ore = \"run by ");
/// Folders at the top of any machine; another one there is a place of somebody's own.
const USUAL_ROOTS: &[&str] = &[
    "bin", "boot", "builds", "dev", "etc", "home", "lib", "media", "mnt", "nix", "opt", "proc", "root",
    "run", "srv", "sys", "tmp", "usr", "var",
];

/// Looks at the whole tree under `root`. Gives back what is wrong, and how large the trusted base is.
pub(crate) fn findings(root: &Path) -> (Vec<String>, String) {
    let mut tidy = Tidy { root, found: Vec::new() };
    let mut files = Vec::new();
    collect(root, &mut files);
    files.sort();
    let mut trusted = vec![0; TRUSTED_BASE.len()];
    let mut names = architecture::Names::default();
    for path in &files {
        let Ok(text) = fs::read_to_string(path) else { continue };
        let name = tidy.short(path);
        tidy.check_names(&name);
        tidy.check_places(&name, &text);
        names.add(&name, &text);
        tidy.check_voice(&name, &text);
        if name.ends_with(".rs") {
            let lines = tidy.check_source(&name, &text);
            for (krate, sum) in TRUSTED_BASE.iter().zip(&mut trusted) {
                let is_in_base = name
                    .strip_prefix("crates/")
                    .and_then(|rest| rest.strip_prefix(krate))
                    .is_some_and(|rest| rest.starts_with("/src/"));
                if is_in_base && !FOR_CALLERS.iter().any(|(file, _)| *file == name) {
                    *sum += lines;
                    tidy.check_for_callers(&name, &text);
                }
            }
        } else if name.ends_with("Cargo.toml") {
            tidy.check_manifest(&name, &text);
        }
    }
    let all: usize = trusted.iter().sum();
    if all > TRUSTED_LINES_MAX {
        let message =
            format!("the trusted base has {all} lines of code; {TRUSTED_LINES_MAX} are allowed (ADR 0052)");
        tidy.find("crates", 1, message);
    }
    tidy.check_lints();
    for message in lock::findings(&fs::read_to_string(root.join(lock::FILE)).unwrap_or_default()) {
        tidy.find(lock::FILE, 1, message);
    }
    let page = fs::read_to_string(root.join(architecture::PAGE)).unwrap_or_default();
    for (line, message) in architecture::missing(root, &page, &names) {
        tidy.find(architecture::PAGE, line, message);
    }
    for (line, message) in graph::drift(root, &page) {
        tidy.find(architecture::PAGE, line, message);
    }
    tidy.check_decisions(&files);
    let each: Vec<String> =
        TRUSTED_BASE.iter().zip(&trusted).map(|(krate, lines)| format!("{krate} {lines}")).collect();
    (tidy.found, format!("trusted base: {all} of {TRUSTED_LINES_MAX} lines of code ({})", each.join(", ")))
}

struct Tidy<'a> {
    root: &'a Path,
    found: Vec<String>,
}

impl Tidy<'_> {
    fn find(&mut self, file: &str, line: usize, message: impl AsRef<str>) {
        self.found.push(format!("{file}:{line}: {}", message.as_ref()));
    }

    fn short(&self, path: &Path) -> String {
        path.strip_prefix(self.root).unwrap_or(path).to_string_lossy().into_owned()
    }

    fn check_names(&mut self, file: &str) {
        let path = Path::new(file);
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        if file.ends_with(".rs")
            && let Some(word) = stem.split(['_', '-']).find(|word| BANNED_WORDS.contains(word))
        {
            self.find(file, 1, format!("`{word}` says nothing in a file name"));
        }
        for folder in path.parent().into_iter().flat_map(Path::components) {
            let folder = folder.as_os_str().to_string_lossy();
            if BANNED_FOLDERS.contains(&folder.as_ref()) {
                self.find(file, 1, format!("no folder is called `{folder}`: name it after what it holds"));
            }
        }
    }

    /// The project speaks of no machine: not of the folder that this checkout happens to lie in.
    fn check_places(&mut self, file: &str, text: &str) {
        let top = self.root.components().nth(1).map(|part| part.as_os_str().to_string_lossy().into_owned());
        let place = match top {
            Some(top) if !USUAL_ROOTS.contains(&top.as_str()) => format!("/{top}/"),
            Some(_) | None => format!("{}/", self.root.display()),
        };
        for (number, line) in numbered(text) {
            let own = line.match_indices(&place).any(|(at, _)| {
                line.get(..at).and_then(|before| before.chars().next_back()).is_none_or(begins_a_path)
            });
            if own {
                self.find(file, number, format!("names a place of this machine (`{place}`)"));
            }
        }
    }

    /// Readers should not have to learn our words for what has a name.
    fn check_voice(&mut self, file: &str, text: &str) {
        for (number, line) in numbered(text) {
            for (coinage, word) in voice::coinages(line) {
                self.find(file, number, format!("`{coinage}`: write `{word}`"));
            }
        }
    }

    /// The trusted base doesn't use what isn't counted in it.
    fn check_for_callers(&mut self, file: &str, text: &str) {
        for (number, line) in numbered(text) {
            if let Some((_, path)) = FOR_CALLERS.iter().find(|(_, path)| line.contains(path)) {
                self.find(file, number, format!("`{path}` is for callers: the trusted base may not use it"));
            }
        }
    }

    /// Returns the number of lines of code, tests aside.
    fn check_source(&mut self, file: &str, text: &str) -> usize {
        if !text.starts_with("//!") {
            self.find(file, 1, "a file opens with `//!` and says what it is for");
        }
        for (number, line) in numbered(text) {
            if let Some(word) = UNFINISHED.iter().find(|word| line.contains(**word)) {
                self.find(file, number, format!("`{word}`: finish it, or leave it out"));
            }
            if line.contains(IGNORED) && !line.contains(IGNORED_BY_RIGHT) {
                self.find(file, number, "a test runs, or another runs it and it says `run by …`");
            }
            let code = line.split("//").next().unwrap_or("");
            if let Some(word) = declared(code).and_then(banned_word) {
                self.find(file, number, format!("`{word}` says nothing in the name of a type"));
            }
            let lifts_the_lint =
                code.contains(concat!("unsafe", "_code")) && code != concat!("#![forbid(unsafe", "_code)]");
            let says_unsafe = code.trim_start().starts_with(concat!("un", "safe "))
                || code.contains(concat!("un", "safe {"));
            if (lifts_the_lint || says_unsafe) && !may_be_unsafe(file) {
                let message = format!("only crates/{{{}}} may be unsafe", UNSAFE.join(","));
                self.find(file, number, message);
            }
        }
        if is_root_of_safe_crate(file) && !text.contains(concat!("#![forbid(unsafe", "_code)]")) {
            self.find(
                file,
                1,
                concat!("a crate says `#![forbid(unsafe", "_code)]`, unless it may be unsafe"),
            );
        }
        for (number, message) in pure::findings(file, text) {
            self.find(file, number, message);
        }
        self.check_reach(file, text);
        let lines = if is_test(file) { 0 } else { code_lines(text) };
        if lines > FILE_LINES_MAX {
            self.find(file, 1, format!("{lines} lines of code; {FILE_LINES_MAX} are allowed"));
        }
        lines
    }

    /// One place connects, so that policy sees what leaves; one place reads the clock, so that a replay gets the same time.
    fn check_reach(&mut self, file: &str, text: &str) {
        let is_product = file.starts_with("crates/")
            && file.contains("/src/")
            && !file.starts_with("crates/testkit/")
            && !is_test(file);
        if !is_product {
            return;
        }
        for (number, line) in product_lines(text) {
            if let Some(name) = process_wide(line)
                && !STATICS.iter().any(|(place, one, _)| file == *place && *one == name)
            {
                self.find(file, number, format!("`{name}` is shared by all kernels of a process (STATICS)"));
            }
            let is_elsewhere =
                |(call, files): &&(&str, &[&str])| line.contains(call) && !files.contains(&file);
            if let Some((call, files)) = REACHING.iter().find(is_elsewhere) {
                self.find(file, number, format!("`{call}` is called only in [{}]", files.join(", ")));
            }
            let krate = file.split('/').nth(1).unwrap_or_default();
            if COMPILED_ONCE.contains(&krate)
                && line.trim_start().starts_with("pub async fn")
                && !SMALL_FUTURES.contains(&file)
            {
                self.find(file, number, "a public `async fn` is compiled in each crate that awaits it: return a boxed future (ADR 0075)");
            }
            if WRITES_NO_FILES.contains(&krate)
                && let Some(call) = WRITING.iter().find(|call| line.contains(**call))
            {
                self.find(file, number, format!("`{call}…)` in a crate that writes no files"));
            }
        }
    }

    fn check_manifest(&mut self, file: &str, text: &str) {
        let Some(krate) = file.strip_prefix("crates/").and_then(|rest| rest.strip_suffix("/Cargo.toml"))
        else {
            return;
        };
        if !text.contains("[lints]\nworkspace = true") {
            self.find(file, 1, "the workspace's lints apply to every crate: `[lints] workspace = true`");
        }
        let Some((_, allowed)) = MAY_DEPEND_ON.iter().find(|(name, _)| *name == krate) else {
            self.find(file, 1, format!("`{krate}` is not in MAY_DEPEND_ON: say what it may use"));
            return;
        };
        // Tests may use what they like; what ships may not.
        for (number, to) in graph::own_dependencies(text) {
            if !allowed.contains(&to) {
                self.find(file, number, format!("`{krate}` may not depend on `{to}`"));
            }
        }
    }

    fn check_lints(&mut self) {
        let wanted = [
            ("Cargo.toml", "too_many_lines"),
            ("Cargo.toml", concat!("unsafe", "_code = \"deny\"")),
            ("Cargo.toml", concat!("undocumented_unsafe", "_blocks = \"deny\"")),
            ("Cargo.toml", "disallowed_methods = \"deny\""),
            ("Cargo.toml", "overflow-checks = true"),
            ("clippy.toml", "too-many-lines-threshold = 70"),
            ("clippy.toml", "std::process::Command::new"),
            ("clippy.toml", "std::time::SystemTime::now"),
        ];
        for (file, lint) in wanted {
            if !fs::read_to_string(self.root.join(file)).is_ok_and(|text| text.contains(lint)) {
                self.find(file, 1, format!("`{lint}` is gone"));
            }
        }
        let manifest = fs::read_to_string(self.root.join("Cargo.toml")).unwrap_or_default();
        profiles::findings(&manifest).iter().for_each(|one| self.find("Cargo.toml", 1, one));
    }

    /// Every decision is in the index and says who enforces it.
    fn check_decisions(&mut self, files: &[PathBuf]) {
        let index_file = "docs/adr/README.md";
        let index = fs::read_to_string(self.root.join(index_file)).unwrap_or_default();
        if index.is_empty() {
            self.find(index_file, 1, "the index of decisions is missing");
        }
        for path in files {
            let file = self.short(path);
            let Some(name) = file.strip_prefix("docs/adr/").filter(|name| name.ends_with(".md")) else {
                continue;
            };
            if name == "README.md" {
                continue;
            }
            if !index.contains(name) {
                self.find(index_file, 1, format!("`{name}` is not in the index"));
            }
            let text = fs::read_to_string(path).unwrap_or_default();
            let last = numbered(&text).filter(|(_, line)| !line.trim().is_empty()).last();
            if !last.is_some_and(|(_, line)| line.starts_with("**Enforced by:**")) {
                self.find(
                    &file,
                    last.map_or(1, |(number, _)| number),
                    "the last line is `**Enforced by:** …`",
                );
            }
        }
    }
}

/// Source, manifests and prose, without what was built.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder && !matches!(name.as_str(), "target" | ".git" | "corpus" | "artifacts" | "node_modules")
        {
            collect(&path, files);
        }
        let read = [".rs", ".toml", ".md", ".yml", ".yaml", ".sh"].iter().any(|end| name.ends_with(end));
        if !is_folder && (read || path.ends_with(".ci/run")) {
            files.push(path);
        }
    }
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}

fn begins_a_path(before: char) -> bool {
    !before.is_alphanumeric() && !matches!(before, '.' | '_' | '-' | '~' | '/' | '*' | '}')
}

fn is_test(file: &str) -> bool {
    file.ends_with("/tests.rs") || file.split('/').any(|part| part == "tests")
}

/// The name of a variable that a line declares for the whole process.
fn process_wide(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = line.strip_prefix("pub ").or_else(|| line.strip_prefix("pub(crate) ")).unwrap_or(line);
    let line = line.strip_prefix("pub(super) ").unwrap_or(line);
    line.strip_prefix("static ")?.split(':').next()
}

fn is_root_of_safe_crate(file: &str) -> bool {
    let parts: Vec<&str> = file.split('/').collect();
    matches!(parts.as_slice(), ["crates", krate, "src", "lib.rs" | "main.rs"] if !UNSAFE.contains(krate))
        || matches!(file, "xtask/src/main.rs" | "benches/src/main.rs" | "guests/script/src/lib.rs")
}

/// Two crates may; a must-not-compile test shows that others can't.
fn may_be_unsafe(file: &str) -> bool {
    let krate = file.strip_prefix("crates/").and_then(|rest| rest.split('/').next());
    krate.is_some_and(|krate| UNSAFE.contains(&krate))
        || file.starts_with("guests/script/component/")
        || file.contains("/tests/ui/")
}

/// How many lines are code.
fn code_lines(text: &str) -> usize {
    product_lines(text).count()
}

/// Lines that are neither blank, nor comment, nor inside a `#[cfg(test)]` module. Relies on rustfmt's indentation.
fn product_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut lines = numbered(text).peekable();
    std::iter::from_fn(move || {
        loop {
            let (number, line) = lines.next()?;
            let code = line.trim();
            if code == "#[cfg(test)]" && lines.peek().is_some_and(|(_, next)| next.trim_end().ends_with('{'))
            {
                let indent = line.len() - line.trim_start().len();
                lines.by_ref().find(|(_, inner)| inner.trim() == "}" && inner.len() == indent + 1);
            } else if !code.is_empty() && !code.starts_with("//") {
                return Some((number, line));
            }
        }
    })
}

/// The type that a line declares, if it declares one. An associated type has its name from a trait, which may be another's.
fn declared(code: &str) -> Option<&str> {
    if code.starts_with("    type ") {
        return None;
    }
    let mut words = code.split_whitespace().skip_while(|word| word.starts_with("pub"));
    let keyword = words.next()?;
    // What a trait of others calls its own type is not ours to name.
    if keyword == "type" && code.starts_with(' ') {
        return None;
    }
    let name = words.next()?.split(['<', '(', '{', ';', ':', '=']).next()?;
    matches!(keyword, "struct" | "enum" | "trait" | "type" | "union").then_some(name)
}

/// The first banned word of a name in camel case.
fn banned_word(name: &str) -> Option<String> {
    let starts: Vec<usize> =
        name.char_indices().filter(|(_, c)| c.is_uppercase()).map(|(at, _)| at).collect();
    let ends = starts.iter().skip(1).copied().chain([name.len()]);
    let mut words = starts.iter().zip(ends).filter_map(|(&from, to)| name.get(from..to));
    words.find(|word| BANNED_WORDS.contains(&word.to_lowercase().as_str())).map(str::to_owned)
}

#[cfg(test)]
mod tests;
