//! `regent agent fs`: what an agent keeps, read in the kernel that it runs in. Each look is a call there.

use clap::Subcommand;
use clap_complete::engine::ArgValueCandidates;
use regent_kernel::{Op, OpenMode};
use regent_wire::result::{Closed, FileStat, FolderNames, Opened};
use serde_json::json;

use super::{agent_ids, answer, kernel_of, output};
use crate::codes;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{CommandResult, Done};
use crate::term;

/// How much of a file is read at once; the policy's output limit may give less.
const PIECE_BYTES: u32 = 1 << 20;
/// How much of a file is shown.
const FILE_BYTES_MAX: usize = 64 << 20;

/// Look into an agent's files: its memory, checkpoints, tools and pipes
#[derive(Debug, Subcommand)]
pub(crate) enum FsCommand {
    /// List a folder
    Ls {
        /// The agent's id
        #[arg(add = ArgValueCandidates::new(agent_ids))]
        id: String,
        /// The folder in the agent's tree, e.g. mem/semantic
        #[arg(default_value = "")]
        path: String,
    },
    /// Print a file
    Cat {
        /// The agent's id
        #[arg(add = ArgValueCandidates::new(agent_ids))]
        id: String,
        /// The file in the agent's tree, e.g. mem/semantic/plan
        path: String,
    },
    /// Show the size and the label of a file or folder
    Stat {
        /// The agent's id
        #[arg(add = ArgValueCandidates::new(agent_ids))]
        id: String,
        /// The file or folder in the agent's tree
        path: String,
    },
}

impl FsCommand {
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Ls { .. } => "agent.fs.ls",
            Self::Cat { .. } => "agent.fs.cat",
            Self::Stat { .. } => "agent.fs.stat",
        }
    }
}

pub(super) async fn run(context: &Context, command: &FsCommand) -> CommandResult {
    match command {
        FsCommand::Ls { id, path } => ls(context, id, path).await,
        FsCommand::Cat { id, path } => cat(context, id, path).await,
        FsCommand::Stat { id, path } => stat(context, id, path).await,
    }
}

/// The path in the virtual file system. One that is absolute already stays what it is.
fn full(id: &str, path: &str) -> String {
    let path = path.trim_end_matches('/');
    match (path.starts_with('/'), path.is_empty()) {
        (true, _) => path.to_owned(),
        (false, true) => format!("/agent/{id}"),
        (false, false) => format!("/agent/{id}/{path}"),
    }
}

async fn ls(context: &Context, id: &str, path: &str) -> CommandResult {
    let (peer, path) = (kernel_of(context, id).await?, full(id, path));
    let FolderNames { names } = answer(&peer, Op::List { path: path.clone() }).await?;
    let text: String = names.iter().map(|name| format!("{}\n", term::inline(name))).collect();
    Ok(Done::new(json!({"names": names, "path": path}), text))
}

async fn stat(context: &Context, id: &str, path: &str) -> CommandResult {
    let (peer, path) = (kernel_of(context, id).await?, full(id, path));
    let found: FileStat = answer(&peer, Op::Stat { path: path.clone() }).await?;
    let kind = if found.folder { "folder" } else { "file" };
    let label =
        found.label.map_or(("-", "-"), |label| (label.integrity.as_str(), label.confidentiality.as_str()));
    let text = format!(
        "{}  {kind}, {} bytes, integrity {}, confidentiality {}\n",
        term::inline(&path),
        found.bytes,
        label.0,
        label.1
    );
    Ok(Done::new(json!({"path": path, "stat": found}), text))
}

async fn cat(context: &Context, id: &str, path: &str) -> CommandResult {
    let (peer, path) = (kernel_of(context, id).await?, full(id, path));
    let Opened { fd, .. } = answer(&peer, Op::Open { path: path.clone(), mode: OpenMode::Read }).await?;
    let unreadable = |why: &str| {
        Failure::new(codes::CONTROL_UNREACHABLE, format!("`{}` can't be read: {why}", term::inline(&path)))
    };
    let mut bytes = Vec::new();
    let read = loop {
        let offset = bytes.len() as u64;
        let piece = match output(&peer, Op::Read { fd, offset, bytes_max: PIECE_BYTES }).await {
            Ok(piece) => piece,
            Err(failure) => break Err(failure),
        };
        let piece = match piece.output.bytes() {
            Ok(piece) => piece,
            Err(why) => break Err(unreadable(&why)),
        };
        if piece.is_empty() {
            break Ok(());
        }
        bytes.extend(piece);
        if bytes.len() > FILE_BYTES_MAX {
            break Err(unreadable("it is longer than 64 MiB"));
        }
    };
    let Closed { .. } = answer(&peer, Op::Close { fd }).await?;
    read?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Ok(Done::new(json!({"content": text, "path": path}), term::block(&text).into_owned()))
}
