//! Whose instructions and programs may an agent use? Skills: packages with a `SKILL.md`.
//!
//! ```text
//! folder · archive · git → Package (read whole, limits, no links) → Skill (what SKILL.md says) → scan → Plan → install → lock
//! ```
//!
//! A [`Package`] is read into memory and judged there; nothing of it is written before everything about it was found fit. What was
//! installed is in the lock with the digest of every file. What the user agreed to (digest and grants) is pinned outside of the project.
//! **Every use reads all files again and compares them with both**: a changed, added or missing file is refused by name, and what runs
//! are the bytes that were compared, from a copy that is made for the one call. Who vouches for a skill is computed from its signature
//! and the trusted keys at each use.
//!
//! A skill has no power of its own: its text is content with a label, its program runs in a sandbox with what was granted, and what it
//! asks for besides is a call like any other.
#![forbid(unsafe_code)]

mod archive;
mod error;
mod guarded;
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

pub use error::SkillError;
pub use guarded::Guarded;
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
