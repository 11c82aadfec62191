//! Landlock: what each place of the view may be used for.

use std::os::fd::OwnedFd;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr, Scope,
};

use crate::error::{SandboxError, SetupStep};

/// What a path may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PathAccess {
    /// Listing directories.
    List,
    /// Reading.
    Read,
    /// Reading and starting programs.
    Execute,
    /// Reading and writing an existing device.
    Device,
    /// The same with control of its modes and size: the terminal that the program was lent.
    Terminal,
    /// Everything, starting programs included, but making device nodes and sockets, device control, and connecting to socket files of
    /// programs outside the sandbox. `bind` makes a name that the supervisor doesn't see.
    Write,
    /// The same, and making sockets: for folders that are gone with the run.
    Scratch,
}

/// The newest interface that we know. The kernel's own may be older (then less is handled) or newer.
const NEWEST: ABI = ABI::V9;

fn interface(number: u32) -> ABI {
    match number {
        0 => ABI::Unsupported,
        1 => ABI::V1,
        2 => ABI::V2,
        3 => ABI::V3,
        4 => ABI::V4,
        5 => ABI::V5,
        6 => ABI::V6,
        7 => ABI::V7,
        8 => ABI::V8,
        _ => NEWEST,
    }
}

impl PathAccess {
    /// The kernel's bits for this access to a directory tree or a single file.
    pub(crate) fn bits(self, directory: bool, abi: u32) -> u64 {
        let abi = interface(abi);
        let apart = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev | AccessFs::ResolveUnix;
        let wanted: BitFlags<AccessFs> = match self {
            Self::List => AccessFs::ReadDir.into(),
            Self::Read => AccessFs::ReadDir | AccessFs::ReadFile,
            Self::Execute => AccessFs::ReadDir | AccessFs::ReadFile | AccessFs::Execute,
            Self::Device => AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate,
            Self::Terminal => {
                AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev
            }
            Self::Write => AccessFs::from_all(NEWEST) & !(apart | AccessFs::MakeSock),
            Self::Scratch => AccessFs::from_all(NEWEST) & !apart,
        };
        let known = if directory { AccessFs::from_all(abi) } else { AccessFs::from_file(abi) };
        (wanted & known).bits()
    }
}

/// The first Landlock ABI that scopes connecting to socket files (`LANDLOCK_ACCESS_FS_RESOLVE_UNIX`).
pub(crate) const SCOPES_SOCKET_FILES: u32 = 9;

/// What TCP ports may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ports {
    /// None.
    Closed,
    /// All: the network is a loopback interface of the sandbox's own, on which nobody else listens but the egress proxy.
    Private,
}

/// An empty rule set that handles, and so denies, everything the kernel can: every file access, every TCP bind and
/// connect if the ports are closed, signals and abstract sockets across its border.
pub(crate) fn ruleset(ports: Ports) -> Result<OwnedFd, SandboxError> {
    let fail = |cause: String| SandboxError::Setup {
        step: SetupStep::Landlock,
        at: None,
        cause: std::io::Error::other(cause),
    };
    let created = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))
        .and_then(|set| match ports {
            Ports::Closed => set.handle_access(AccessNet::from_all(NEWEST)),
            Ports::Private => Ok(set),
        })
        .and_then(|set| set.scope(Scope::from_all(NEWEST)))
        .and_then(Ruleset::create)
        .map_err(|error| fail(error.to_string()))?;
    Option::<OwnedFd>::from(created).ok_or_else(|| fail("the kernel has no Landlock".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_write_can_change_a_file_and_nobody_gets_devices() {
        let changing = AccessFs::from_write(NEWEST).bits();
        for abi in 1..=9 {
            for directory in [true, false] {
                for access in [PathAccess::List, PathAccess::Read, PathAccess::Execute] {
                    assert_eq!(access.bits(directory, abi) & changing, 0, "{access:?} abi {abi}");
                }
                let devices = (AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev).bits();
                assert_eq!(PathAccess::Write.bits(directory, abi) & devices, 0);
                assert_eq!(PathAccess::Scratch.bits(directory, abi) & devices, 0);
                assert_eq!(
                    PathAccess::Write.bits(directory, abi) & BitFlags::from(AccessFs::MakeSock).bits(),
                    0
                );
            }
        }
    }

    #[test]
    fn s5_6_l3_no_place_lets_socket_files_of_others_be_connected_to() {
        let connect = BitFlags::from(AccessFs::ResolveUnix).bits();
        assert_ne!(
            AccessFs::from_all(interface(SCOPES_SOCKET_FILES)).bits() & connect,
            0,
            "handled, so denied"
        );
        assert_eq!(AccessFs::from_all(interface(SCOPES_SOCKET_FILES - 1)).bits() & connect, 0);
        let all = [
            PathAccess::List,
            PathAccess::Read,
            PathAccess::Execute,
            PathAccess::Device,
            PathAccess::Terminal,
            PathAccess::Write,
            PathAccess::Scratch,
        ];
        for access in all {
            for directory in [true, false] {
                assert_eq!(access.bits(directory, SCOPES_SOCKET_FILES) & connect, 0, "{access:?}");
            }
        }
    }
}
