//! A workspace like those that agents work in: a few hundred files, `.git`, a nested repository, secrets.

use std::path::{Path, PathBuf};

use anyhow::Result;

const PACKAGES: usize = 20;
const SOURCES: usize = 18;
const OBJECT_FOLDERS: usize = 64;
const OBJECTS: usize = 3;
const HOOKS: &[&str] =
    &["applypatch-msg", "commit-msg", "post-update", "pre-commit", "pre-push", "pre-rebase", "update"];

/// Files that hold secrets. The sandbox shows them empty.
pub const SECRETS: &[&str] = &[".env", "packages/p0/.env"];
/// What the sandbox keeps a program from changing. Bubblewrap is given the same list.
pub const GUARDED: &[&str] = &[
    ".git/config",
    ".git/hooks",
    ".git/info/exclude",
    "vendor/library/.git/config",
    "vendor/library/.git/hooks",
    "vendor/library/.git/info/exclude",
    ".vscode",
];

/// Writes the repository into a folder, and gives back how many files it has.
pub fn write(root: &Path) -> Result<usize> {
    let mut files = sources(Path::new("packages"), PACKAGES);
    files.extend(sources(Path::new("vendor/library/src"), 2));
    files.extend(git(Path::new(".git")));
    files.extend(git(Path::new("vendor/library/.git")));
    let others = [
        ".gitignore",
        "AGENTS.md",
        "Makefile",
        "package.json",
        ".vscode/settings.json",
        ".github/workflows/ci.yml",
    ];
    files.extend(others.iter().chain(SECRETS).map(PathBuf::from));
    for file in &files {
        let path = root.join(file);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let content = match file.file_name().and_then(|name| name.to_str()) {
            Some("HEAD") => "ref: refs/heads/main\n".to_owned(),
            Some("config") => "[core]\n\trepositoryformatversion = 0\n\tbare = false\n".to_owned(),
            _other => format!("// {}\n", file.display()).repeat(20),
        };
        std::fs::write(path, content)?;
    }
    Ok(files.len())
}

fn sources(folder: &Path, packages: usize) -> Vec<PathBuf> {
    let package = |package: usize| {
        let folder = folder.join(format!("p{package}"));
        let source = move |file: usize| folder.join(format!("src/module_{file}.rs"));
        (0..SOURCES).map(source)
    };
    (0..packages).flat_map(package).collect()
}

fn git(folder: &Path) -> Vec<PathBuf> {
    let plain = [
        "HEAD",
        "config",
        "description",
        "index",
        "info/exclude",
        "logs/HEAD",
        "refs/heads/main",
        "packed-refs",
    ];
    let mut files: Vec<PathBuf> = plain.iter().map(|name| folder.join(name)).collect();
    files.extend(HOOKS.iter().map(|hook| folder.join(format!("hooks/{hook}.sample"))));
    for first in 0..OBJECT_FOLDERS {
        files.extend((0..OBJECTS).map(|object| folder.join(format!("objects/{first:02x}/{object:038x}"))));
    }
    files
}
