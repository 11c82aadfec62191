//! Runs the tests of what touches files and programs as an ordinary user, where CI itself is root.
//!
//! Root passes every permission check, so a guard that fails open on `EACCES` looks sound to it.

use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::machine::{capture, command, finish, is_root, target};
use crate::{root, say, skips};

/// Crates, by their folders, whose tests depend on who runs them.
const CRATES: &[&str] =
    &["sandbox", "microvm", "workspace", "tools", "egress", "skills", "vault", "runtime", "regent"];
/// The user that Debian calls `nobody`.
pub(crate) const ORDINARY_ID: u32 = 65_534;
/// This user has no Rust toolchain, and may not see the folder beside the clone.
const ALSO_EXCUSED: &[&str] = &["wasip2-target", "vectors"];

/// Makes the folders named after `--` visible to everybody at their own paths, and lends `/dev/kvm`, in this mount namespace only.
const PREPARE: &str = "\
mount -t tmpfs -o mode=755 tmpfs /mnt
n=0; for keep; do mkdir /mnt/$n; mount --bind \"$keep\" /mnt/$n; n=$((n+1)); done
if [ -n \"$CLOSED\" ]; then for closed in $CLOSED; do mount -t tmpfs -o mode=755 tmpfs \"$closed\"; done; fi
n=0; for keep; do mkdir -p \"$keep\"; mount --move /mnt/$n \"$keep\"; n=$((n+1)); done
if [ -e /dev/kvm ]; then mknod -m 666 /mnt/kvm c 10 232; mount --bind /mnt/kvm /dev/kvm; fi
";

/// One test program and the folder that cargo would start it in.
struct TestProgram {
    executable: PathBuf,
    folder: PathBuf,
}

/// Builds the test programs, then runs each as an ordinary user.
pub(crate) fn run() -> Result<()> {
    if !is_root()? {
        say("the step `test` has run as an ordinary user already");
        return Ok(());
    }
    let programs = build()?;
    // A new folder under a name that nobody can guess: root gives it away, and a link that another user put there would be given away
    // in its place.
    let home = tempfile::Builder::new().prefix("regent-ordinary-").tempdir()?;
    chown(home.path(), Some(ORDINARY_ID), Some(ORDINARY_ID))?;
    let mut failed = Vec::new();
    for program in &programs {
        say(format!("as an ordinary user: {}", program.executable.display()));
        if let Err(error) = run_one(program, home.path()) {
            say(format!("{error:#}"));
            failed.push(program.executable.display().to_string());
        }
    }
    home.close().ok();
    if failed.is_empty() { Ok(()) } else { bail!("{} failed: {}", failed.len(), failed.join(", ")) }
}

fn run_one(program: &TestProgram, home: &Path) -> Result<()> {
    let keep = kept();
    let closed: BTreeSet<String> = keep.iter().filter_map(|path| closed_ancestor(path)).collect();
    let id = ORDINARY_ID.to_string();
    let start = format!(
        "{PREPARE}cd \"$FOLDER\"; exec setpriv --reuid {id} --regid {id} --clear-groups env -i PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin \
         HOME=\"$ORDINARY_HOME\" REGENT_MAY_SKIP=\"$EXCUSED\" \"$EXECUTABLE\" --quiet"
    );
    let mut unshared = command("unshare");
    unshared
        .args(["--mount", "--propagation", "private", "--", "/bin/sh", "-euc", &start, "sh"])
        .args(&keep)
        .env("CLOSED", closed.into_iter().collect::<Vec<_>>().join(" "))
        .env("FOLDER", &program.folder)
        .env("ORDINARY_HOME", home)
        .env("EXECUTABLE", &program.executable)
        .env("EXCUSED", skips::excused(ALSO_EXCUSED)?);
    finish(&mut unshared, &program.executable.display().to_string())
}

/// The clone, the build folder, and the sources of dependencies: debug builds of some read texts from there.
fn kept() -> Vec<PathBuf> {
    let (clone, built) = (root(), target());
    let mut kept = if built.starts_with(&clone) { vec![clone] } else { vec![clone, built] };
    let home = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let cargo = home("CARGO_HOME").or_else(|| home("HOME").map(|home| home.join(".cargo")));
    kept.extend(cargo.map(|cargo| cargo.join("registry/src")).filter(|sources| sources.is_dir()));
    kept
}

/// The outermost folder on the way that only its owner may enter.
fn closed_ancestor(path: &Path) -> Option<String> {
    let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
    above.reverse();
    let is_closed = |folder: &&&Path| {
        std::fs::metadata(folder).is_ok_and(|metadata| metadata.permissions().mode() & 0o001 == 0)
    };
    above.iter().find(is_closed).map(|folder| folder.display().to_string())
}

/// Builds the tests and asks cargo where they are.
fn build() -> Result<Vec<TestProgram>> {
    let program = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut cargo = command(&program);
    // Of the whole workspace: a selection would unite other features, and all dependencies would be built once more.
    cargo.args(["test", "--workspace", "--locked", "--no-run", "--message-format=json"]);
    let built = capture(&mut cargo, "cargo test --no-run")?;
    if !built.status.success() {
        bail!("the tests don't build:\n{}", String::from_utf8_lossy(&built.stderr));
    }
    let mut programs = Vec::new();
    for line in built.stdout.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"{")) {
        let message: serde_json::Value = serde_json::from_slice(line).context("cargo's messages")?;
        let is_test = message.pointer("/profile/test") == Some(&serde_json::Value::Bool(true));
        let text = |pointer: &str| message.pointer(pointer).and_then(serde_json::Value::as_str);
        if let (true, Some(executable), Some(manifest)) =
            (is_test, text("/executable"), text("/manifest_path"))
        {
            let folder = Path::new(manifest).parent().context("a manifest without a folder")?.to_path_buf();
            if CRATES.iter().any(|one| folder == root().join("crates").join(one)) {
                programs.push(TestProgram { executable: executable.into(), folder });
            }
        }
    }
    if programs.is_empty() { bail!("cargo named no test program") } else { Ok(programs) }
}
