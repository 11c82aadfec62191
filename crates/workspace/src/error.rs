//! Why a path can't be used, each with a stable code.

use rustix::io::Errno;

/// A path can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// A name that isn't text can't be judged by rules.
    #[error("the path is not text")]
    NotText,
    /// Nothing was named.
    #[error("the path is empty")]
    Empty,
    /// Longer than Linux takes.
    #[error("the path is longer than 4095 bytes, or a name in it longer than 255")]
    TooLong,
    /// A line break or another control character.
    #[error("the path contains a control character")]
    Control,
    /// More links than Linux follows, or a circle of them.
    #[error("the path goes through more than 40 links")]
    Links,
    /// Linux would follow it; Regent looks at no more names than this.
    #[error("the path and its links have more names than Regent follows")]
    TooManyNames,
    /// A link of `/proc` that leads past all names.
    #[error("the path goes through a magic link of /proc")]
    MagicLink,
    /// A link where judging saw none.
    #[error("the path has changed since it was judged, or leads out of the workspace")]
    Swapped,
    /// The spelling is not one that resolving gives.
    #[error("the path was not resolved before it was used")]
    NotResolved,
    /// Another mount inside the workspace.
    #[error("the path leads to another mount inside the workspace")]
    OtherMount,
    /// The file has another name, maybe outside.
    #[error("the file has more than one hard link, so it may be a file from outside the workspace")]
    HardLink,
    /// Regent's own files.
    #[error("it is one of Regent's own files, which no tool reaches")]
    Reserved,
    /// A FIFO, socket or device.
    #[error("it is neither a file nor a folder")]
    Special,
    /// Nothing is there.
    #[error("there is no such file or folder")]
    NotFound,
    /// Something is there already.
    #[error("it already exists")]
    Exists,
    /// Someone wrote to it after it was read.
    #[error("it has changed since it was read; read it again")]
    Changed,
    /// A folder that is to be moved holds a file that is being written.
    #[error(
        "it is a file that is still being written; try again, and remove it if no `regent` process is running"
    )]
    Unfinished,
    /// Another process holds the lock on its folder.
    #[error("another process has locked its folder for 5 s; try again")]
    Busy,
    /// A folder is in the way.
    #[error("it is a folder")]
    IsFolder,
    /// A file is where a folder should be.
    #[error("it is not a folder, or a part of its path is not")]
    NotFolder,
    /// The operating system forbids it.
    #[error("the operating system doesn't permit it")]
    NotPermitted,
    /// No room.
    #[error("the disk is full")]
    Full,
    /// More than the caller may read or write at once.
    #[error("it is larger than {bytes_max} bytes")]
    TooLarge {
        /// How much would be fine.
        bytes_max: u64,
    },
    /// More than is acted on at once.
    #[error("it holds more than {entries_max} files and folders, or folders more than 64 deep")]
    TooManyEntries {
        /// How many would be fine.
        entries_max: usize,
    },
    /// The place of a copy or a move is what is copied or moved, or lies in it, or the other way round.
    #[error(
        "a file or folder can't be moved or copied onto itself, into itself, or onto a folder that it is in"
    )]
    IntoItself,
    /// A link that would lead elsewhere from its new place.
    #[error("it is a link that leads out of the workspace, or would do so from its new place")]
    LinkLeaves,
    /// The call was cancelled.
    #[error("the call was cancelled; changes made before that stay")]
    Stopped,
    /// Git would take the folder for a bare repository, and run what its configuration says.
    #[error("it would turn its folder into a bare git repository, whose `config` git obeys")]
    Repository,
    /// More than can be looked at.
    #[error("it holds more than 200,000 files, or folders more than 128 deep")]
    TooMany,
    /// Anything else that the operating system says.
    #[error("the operating system says: {0}")]
    Os(String),
}

impl PathError {
    /// A stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotText | Self::Empty | Self::TooLong | Self::Control => "path.invalid",
            Self::Links | Self::TooManyNames | Self::LinkLeaves => "path.links",
            Self::MagicLink => "path.magic_link",
            Self::Swapped | Self::NotResolved => "path.swapped",
            Self::OtherMount => "path.other_mount",
            Self::HardLink => "path.hard_link",
            Self::Special => "path.special",
            Self::Reserved => "path.reserved",
            Self::NotFound => "fs.not_found",
            Self::Exists => "fs.exists",
            Self::Changed => "fs.changed",
            Self::Busy | Self::Unfinished => "fs.busy",
            Self::IsFolder => "fs.is_folder",
            Self::NotFolder => "fs.not_folder",
            Self::NotPermitted => "fs.not_permitted",
            Self::Full => "fs.full",
            Self::TooLarge { .. } => "fs.too_large",
            Self::TooMany | Self::TooManyEntries { .. } => "fs.too_many",
            Self::IntoItself => "fs.into_itself",
            Self::Stopped => "fs.stopped",
            Self::Repository => "path.repository",
            Self::Os(_) => "fs.failed",
        }
    }

    pub(super) fn of_io(error: &std::io::Error) -> Self {
        match error.raw_os_error() {
            Some(raw) => Self::from(Errno::from_raw_os_error(raw)),
            None => Self::Os(error.to_string()),
        }
    }
}

impl From<Errno> for PathError {
    /// What an open that follows no links means by its error.
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT => Self::NotFound,
            Errno::LOOP => Self::Swapped,
            Errno::XDEV => Self::OtherMount,
            Errno::NOTDIR => Self::NotFolder,
            Errno::ISDIR => Self::IsFolder,
            Errno::EXIST | Errno::NOTEMPTY => Self::Exists,
            Errno::ACCESS | Errno::PERM | Errno::ROFS => Self::NotPermitted,
            Errno::NAMETOOLONG => Self::TooLong,
            Errno::NXIO => Self::Special,
            Errno::NOSPC | Errno::DQUOT => Self::Full,
            other => Self::Os(other.to_string()),
        }
    }
}
