//! What a program would see and could use, in words: from the same parts that the sandbox is built of.

use core::fmt;

use serde::Serialize;

use crate::ended::Confinement;
use crate::error::SandboxError;
use crate::grants::PathAccess;
use crate::plan;
use crate::probe;
use crate::run;
use crate::seccomp;
use crate::spec::{Limits, Spec};
use crate::view::{BindKind, SandboxView, ViewPart};

/// The view of one specification.
#[derive(Debug, Clone, Serialize)]
pub struct Explained {
    /// The confinement that it would get on this host.
    pub confinement: Confinement,
    /// Every place that is there, outer ones first.
    pub places: Vec<ViewEntry>,
    /// What it may use.
    pub limits: Limits,
    /// System calls that are allowed, some only with certain arguments.
    pub calls_allowed: usize,
    /// The names of all environment variables.
    pub environment: Vec<String>,
}

/// One place of the view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ViewEntry {
    /// Where it is inside.
    pub path: String,
    /// What it is.
    pub shown: Visibility,
}

/// What a place is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Visibility {
    /// The host's, to read and to start programs from.
    ReadOnly,
    /// The host's, to read and write.
    Writable,
    /// The host's, at the program's disposal for reading, but never to write, rename or remove.
    Guarded,
    /// There, but its content is hidden.
    Hidden,
    /// Empty at first, writable, gone afterwards.
    Private,
    /// A device.
    Device,
    /// Made for the sandbox.
    Made,
    /// Names can be listed, no more.
    Listed,
}

/// Describes what a program with this specification would see here.
///
/// # Errors
/// As [`run`](crate::run), without running anything.
pub fn explain(spec: &Spec) -> Result<Explained, SandboxError> {
    plan::check(spec)?;
    // Asking takes a trial launch; without it a closed host would be found out only by the first run.
    probe::probe();
    let means = probe::means(spec.floor)?;
    let survey = run::survey(spec)?;
    let places = match means.confinement {
        Confinement::Full => {
            SandboxView::lay_out(spec, &survey, None)?.parts.iter().filter_map(place_of).collect()
        }
        Confinement::LandlockSeccomp => {
            let rules = SandboxView::bare(spec, &survey, None)?.rules;
            rules
                .iter()
                .map(|rule| ViewEntry { path: text(&rule.path), shown: granted(rule.access) })
                .collect()
        }
    };
    Ok(Explained {
        confinement: means.confinement,
        places,
        limits: spec.limits,
        calls_allowed: seccomp::allowed(plan::profile(
            means,
            spec.workspace.as_ref().is_some_and(|workspace| workspace.writable),
        )),
        environment: spec.env.iter().map(|(name, _)| name.to_string_lossy().into_owned()).collect(),
    })
}

fn place_of(part: &ViewPart) -> Option<ViewEntry> {
    let at = |at: &std::ffi::CStr, shown| Some(ViewEntry { path: format!("/{}", text(at)), shown });
    let below = |tree: &std::ffi::CStr, below: &std::ffi::CStr, shown| {
        Some(ViewEntry { path: format!("/{}/{}", text(tree), text(below)), shown })
    };
    match part {
        ViewPart::Bind { at: path, kind: BindKind::ReadOnly, .. } => at(path, Visibility::ReadOnly),
        ViewPart::Bind { at: path, kind: BindKind::Writable, .. } => at(path, Visibility::Writable),
        ViewPart::Bind { at: path, kind: BindKind::Device, .. } => at(path, Visibility::Device),
        ViewPart::Private { at: path } => at(path, Visibility::Private),
        ViewPart::File { at: path, content } if !content.is_empty() => at(path, Visibility::Made),
        ViewPart::Link { at: path, .. } => at(path, Visibility::Made),
        ViewPart::Proc => at(c"proc", Visibility::Made),
        ViewPart::Blank { tree, below: path, optional: false, .. } => below(tree, path, Visibility::Hidden),
        ViewPart::Pin { tree, below: path, read_only: true, .. } => below(tree, path, Visibility::Guarded),
        // Scaffolding.
        ViewPart::Directory { .. }
        | ViewPart::File { .. }
        | ViewPart::Blank { .. }
        | ViewPart::Pin { .. }
        | ViewPart::Seal => None,
    }
}

fn granted(access: PathAccess) -> Visibility {
    match access {
        PathAccess::List => Visibility::Listed,
        PathAccess::Read | PathAccess::Execute => Visibility::ReadOnly,
        PathAccess::Device | PathAccess::Terminal => Visibility::Device,
        PathAccess::Write | PathAccess::Scratch => Visibility::Writable,
    }
}

fn text(path: &std::ffi::CStr) -> String {
    path.to_string_lossy().into_owned()
}

impl Visibility {
    fn words(self) -> &'static str {
        match self {
            Self::ReadOnly => "read-only",
            Self::Writable => "read and write",
            Self::Guarded => "read-only, can't be renamed or removed",
            Self::Hidden => "hidden",
            Self::Private => "private, gone afterwards",
            Self::Device => "device",
            Self::Made => "created for the sandbox",
            Self::Listed => "names only",
        }
    }
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.confinement {
            Confinement::Full => {
                writeln!(f, "full sandbox: namespaces, own root, Landlock, seccomp, no direct network")?
            }
            Confinement::LandlockSeccomp => {
                writeln!(
                    f,
                    "user namespaces are disabled here: Landlock and seccomp on the host's files, no sockets"
                )?;
            }
        }
        for ViewEntry { path, shown } in &self.places {
            writeln!(f, "  {path:<40} {}", shown.words())?;
        }
        let limits = &self.limits;
        let mib = |bytes: u64| bytes >> 20;
        writeln!(f, "environment: {}", self.environment.join(" "))?;
        writeln!(f, "system calls: {} allowed, all others refused", self.calls_allowed)?;
        writeln!(
            f,
            "limits: {} s, {} s of CPU time per process, {} MiB of memory, {} processes, {} open files, {} MiB per file, \
             {} MiB of temporary files, {} MiB of output",
            limits.wall_ms_max / 1000,
            limits.cpu_s_max,
            mib(limits.memory_bytes_max),
            limits.pids_max,
            limits.open_files_max,
            mib(limits.file_bytes_max),
            mib(limits.tmp_bytes_max),
            mib(limits.output_bytes_max),
        )
    }
}
