//! Skills: packages with a `SKILL.md`, with instructions and perhaps a program.
//!
//! ```text
//! folder · archive · git → Package (in memory, limits, no links) → Skill (SKILL.md) → scan → Plan → install → lock
//! ```
//!
//! A [`Package`] is read into memory and checked there; nothing is written before all checks pass. The lock has the digest of every
//! installed file. The digest and permissions that the user approved are pinned outside the project.
//! **Every use reads all files again and compares them with both**: a changed, added or missing file is an error that names it, and the
//! program runs from a copy of the compared bytes that is made for that call. The origin of a skill is computed from its signature
//! and the trusted keys at each use.
//!
//! A skill has no authority of its own: its text is labelled content, its program runs in a sandbox with the granted permissions, and
//! everything else is a call like any other.
#![forbid(unsafe_code)]

mod archive;
mod drivers;
mod error;
mod host;
mod lock;
mod manifest;
mod package;
mod permission;
mod pins;
mod plan;
mod scan;
mod signature;
mod skill;
mod skills;

pub use drivers::{SkillTiers, SkillTools};
pub use error::SkillError;
pub use host::host_tools;
pub use lock::{Lock, Locked};
pub use manifest::{Difference, FileMark, Manifest};
pub use package::Package;
pub use permission::{Permission, Permissions};
pub use plan::{Plan, Trust};
pub use scan::{Finding, Severity, scan, scan_text};
pub use signature::{SIGNATURE_FILE, TrustedKey, sign};
pub use skill::{Runtime, SKILL_FILE, Skill};
pub use skills::{Checked, Offered, Skills};
