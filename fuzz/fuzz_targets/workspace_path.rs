//! A path as an agent writes it: inside and relative, or outside and absolute, never in between.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use regent_kernel::Workspace;

static HOME: LazyLock<(tempfile::TempDir, Workspace)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("workspace");
    std::fs::create_dir_all(root.join("a/b")).expect("folders");
    std::fs::write(root.join("a/file"), "x").expect("a file");
    std::os::unix::fs::symlink("/etc", root.join("out")).expect("a link out");
    std::os::unix::fs::symlink("a/b", root.join("in")).expect("a link in");
    std::os::unix::fs::symlink("loop", root.join("loop")).expect("a loop");
    let workspace = Workspace::open(&root).expect("a workspace");
    (folder, workspace)
});

fuzz_target!(|text: &str| {
    let Ok(path) = HOME.1.resolve(text) else { return };
    let parts: Vec<&str> = path.split('/').collect();
    assert!(!parts.contains(&".."), "`{path}` goes up");
    assert!(!path.contains('\0'));
    if !path.starts_with('/') {
        let first = parts.first().copied().unwrap_or_default();
        assert!(!matches!(first, "out" | "in" | "loop"), "`{path}` has a link left to follow");
    }
});
