//! Finds the program that a call names: in the workspace, by a governed read, or among the host's own programs.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::template::{ProgramLoadError, Template, TemplateKey, Templates};
use super::tree::absolute;

/// Where the host's own programs are looked for.
const PLACES: &[&str] = &["/usr/local/bin", "/usr/bin", "/bin"];
/// The largest program that is loaded.
const PROGRAM_BYTES_MAX: u64 = 64 << 20;
/// What stands in for `/bin/sh` where that isn't static.
const SHELLS: &[&str] = &["/bin/busybox", "/usr/bin/busybox", "/bin/sh"];

/// Where a program is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ProgramLocation {
    /// In the workspace, at this path.
    Inside(String),
    /// On the host.
    Host(PathBuf),
}

/// Why a program isn't run; `code` is a stable word.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotRun {
    pub(super) code: &'static str,
    pub(super) message: String,
}

fn not_found(program: &str) -> NotRun {
    let message =
        format!("no program `{}` in the workspace or in {}", program.escape_debug(), PLACES.join(", "));
    NotRun { code: "microvm.not_found", message }
}

impl From<ProgramLoadError> for NotRun {
    fn from(error: ProgramLoadError) -> Self {
        let code = match &error {
            ProgramLoadError::Elf(super::elf::ElfError::NotStatic) => "microvm.not_static",
            ProgramLoadError::Elf(_) => "microvm.not_a_program",
            ProgramLoadError::Host(_) | ProgramLoadError::TooLarge => "microvm.memory",
        };
        Self { code, message: format!("the program can't be run in a microVM: {error}") }
    }
}

/// Where a program is, by its name. A bare name is looked for on the host, as a shell would.
pub(super) fn find(program: &str, workspace: &str, cwd: &str) -> Result<ProgramLocation, NotRun> {
    if !program.contains('/') {
        let candidates = PLACES.iter().map(|place| Path::new(place).join(program));
        return candidates
            .into_iter()
            .find(|path| path.is_file())
            .map(ProgramLocation::Host)
            .ok_or_else(|| not_found(program));
    }
    let path = absolute(cwd, program.as_bytes()).map_err(|_| not_found(program))?;
    if let Some(inside) = path.strip_prefix(workspace).and_then(|rest| rest.strip_prefix('/')) {
        return Ok(ProgramLocation::Inside(inside.to_owned()));
    }
    let folder = Path::new(&path).parent().and_then(Path::to_str);
    if folder.is_some_and(|folder| PLACES.contains(&folder)) {
        return Ok(ProgramLocation::Host(PathBuf::from(path)));
    }
    Err(not_found(program))
}

/// A static shell of the host's, if there is one.
pub(super) fn shell(templates: &Templates) -> Result<Arc<Template>, NotRun> {
    let found = SHELLS.iter().find_map(|path| host(Path::new(path), templates).ok());
    found.ok_or_else(|| NotRun {
        code: "microvm.no_shell",
        message: format!("no static shell found: none of {} is one", SHELLS.join(", ")),
    })
}

/// Loads one of the host's own programs, or takes it loaded.
pub(super) fn host(path: &Path, templates: &Templates) -> Result<Arc<Template>, NotRun> {
    let name = path.display().to_string();
    let refuse =
        |why: &str| NotRun { code: "microvm.not_found", message: format!("refused to run `{name}`: {why}") };
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let opened = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = opened.map_err(|error| refuse(&error.to_string()))?;
    let about = file.metadata().map_err(|error| refuse(&error.to_string()))?;
    // Only what the host's administrator put there, and nobody else can change: it is what the host itself would run.
    if !about.is_file() || about.uid() != 0 || about.mode() & 0o022 != 0 || about.mode() & 0o111 == 0 {
        return Err(refuse("it is not a regular program owned by root"));
    }
    // A link may lead anywhere; what was opened must be among the programs as well.
    let real = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let real = real.map_err(|error| refuse(&error.to_string()))?;
    if !real.parent().and_then(Path::to_str).is_some_and(|folder| PLACES.contains(&folder)) {
        return Err(refuse("it is a link to another place"));
    }
    if about.len() > PROGRAM_BYTES_MAX {
        return Err(refuse("it is too large"));
    }
    let changed_ns = i128::from(about.ctime()) * 1_000_000_000 + i128::from(about.ctime_nsec());
    let key = TemplateKey::Host { device: about.dev(), inode: about.ino(), bytes: about.len(), changed_ns };
    if let Some(known) = templates.get(&key) {
        return Ok(known);
    }
    let content = read_whole(file).map_err(|error| refuse(&error.to_string()))?;
    let template = Arc::new(Template::load(&content)?);
    templates.keep(key, &template);
    Ok(template)
}

fn read_whole(file: File) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.take(PROGRAM_BYTES_MAX).read_to_end(&mut content)?;
    Ok(content)
}

/// Loads a program from its content, or takes it loaded.
pub(super) fn content(content: &[u8], templates: &Templates) -> Result<Arc<Template>, NotRun> {
    let key = TemplateKey::Content(regent_kernel::Digest::compute(content));
    if let Some(known) = templates.get(&key) {
        return Ok(known);
    }
    let template = Arc::new(Template::load(content)?);
    templates.keep(key, &template);
    Ok(template)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adv_030_only_the_workspace_and_the_hosts_own_programs_are_run() {
        let find = |program| find(program, "/w", "/w/sub").map_err(|not| not.code);
        assert_eq!(find("./a.out"), Ok(ProgramLocation::Inside("sub/a.out".to_owned())));
        assert_eq!(find("/w/bin/tool"), Ok(ProgramLocation::Inside("bin/tool".to_owned())));
        assert_eq!(find("/bin/true"), Ok(ProgramLocation::Host("/bin/true".into())));
        for elsewhere in [
            "/etc/passwd",
            "../../bin2/x",
            "/bin/../etc/x",
            "/usr/bin/sub/x",
            "/proc/self/exe",
            "no-such-program",
        ] {
            assert_eq!(find(elsewhere), Err("microvm.not_found"), "{elsewhere}");
        }
        // A bare name is never looked for in the workspace.
        assert_ne!(find("true"), Ok(ProgramLocation::Inside("true".to_owned())));
    }
}
