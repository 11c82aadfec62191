//! What the guest sees as its file tree: a few fixed folders and devices, `/tmp` in memory, and the workspace at its own path.
//! Nothing else exists.

use std::collections::BTreeMap;

use rustix::io::Errno;

use super::link::GuestFileKind;

/// Names in `/tmp`.
const NAMES_MAX: usize = 10_000;
/// Linux takes no longer path.
pub(super) const PATH_BYTES_MAX: usize = 4096;
const NAME_BYTES_MAX: usize = 255;

/// Where a path leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum GuestPath {
    /// Into the workspace: the path relative to it, `.` for itself.
    Workspace(String),
    /// Into `/tmp`.
    Tmp(String),
    /// To a device.
    Device(Device),
    /// To a folder that is there for the sake of what is below it.
    Folder(String),
    /// To the link that names the program itself.
    Program,
    /// Nowhere.
    Nowhere,
}

/// The devices that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Device {
    /// Takes everything, gives nothing.
    Null,
    /// Gives zeros.
    Zero,
    /// Gives what can't be foreseen.
    Random,
}

const DEVICES: &[(&str, Device)] = &[
    ("null", Device::Null),
    ("zero", Device::Zero),
    ("urandom", Device::Random),
    ("random", Device::Random),
];
const FOLDERS: &[&str] = &["/", "/dev", "/proc", "/proc/self", "/tmp"];
const PROGRAM: &str = "/proc/self/exe";

/// The fixed part of the tree.
#[derive(Debug)]
pub(super) struct FixedTree {
    /// Absolute, without a slash at its end.
    workspace: String,
}

impl FixedTree {
    pub(super) fn new(workspace: &str) -> Self {
        Self { workspace: workspace.trim_end_matches('/').to_owned() }
    }

    /// Where an absolute path without dots leads.
    pub(super) fn place(&self, path: &str) -> GuestPath {
        if let Some(below) = below(path, &self.workspace) {
            return GuestPath::Workspace(if below.is_empty() { ".".to_owned() } else { below.to_owned() });
        }
        if path == PROGRAM {
            return GuestPath::Program;
        }
        if path == "/tmp" {
            return GuestPath::Tmp(path.to_owned());
        }
        if FOLDERS.contains(&path) || below(&self.workspace, path).is_some() {
            return GuestPath::Folder(path.to_owned());
        }
        if let Some(name) = below(path, "/dev") {
            return DEVICES
                .iter()
                .find(|(known, _)| *known == name)
                .map_or(GuestPath::Nowhere, |(_, d)| GuestPath::Device(*d));
        }
        if below(path, "/tmp").is_some() { GuestPath::Tmp(path.to_owned()) } else { GuestPath::Nowhere }
    }

    /// What is always in a folder.
    pub(super) fn fixed(&self, folder: &str) -> Vec<(String, GuestFileKind)> {
        let mut names: Vec<(String, GuestFileKind)> = Vec::new();
        let slash = |path: &str| if path == "/" { String::new() } else { path.to_owned() };
        let prefix = slash(folder);
        for path in FOLDERS.iter().copied().chain([self.workspace.as_str()]) {
            if let Some(name) = below(path, &prefix).and_then(|rest| rest.split('/').next())
                && !name.is_empty()
                && !names.iter().any(|(known, _)| known == name)
            {
                names.push((name.to_owned(), GuestFileKind::Folder));
            }
        }
        if folder == "/dev" {
            names.extend(DEVICES.iter().map(|(name, _)| ((*name).to_owned(), GuestFileKind::Device)));
        }
        if folder == "/proc/self" {
            names.push(("exe".to_owned(), GuestFileKind::Link));
        }
        names
    }
}

/// What of `path` is below `folder`; nothing (empty) if it is the folder itself.
fn below<'a>(path: &'a str, folder: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(folder)?;
    if rest.is_empty() { Some("") } else { rest.strip_prefix('/') }
}

/// The one spelling of a path: absolute, without dots and doubled slashes.
pub(super) fn absolute(base: &str, path: &[u8]) -> Result<String, Errno> {
    if path.is_empty() {
        return Err(Errno::NOENT);
    }
    // A name that isn't text can't be judged by rules, so that nothing has such a name.
    let path = core::str::from_utf8(path).map_err(|_| Errno::NOENT)?;
    if path.len() >= PATH_BYTES_MAX || path.split('/').any(|name| name.len() > NAME_BYTES_MAX) {
        return Err(Errno::NAMETOOLONG);
    }
    if path.chars().any(char::is_control) {
        return Err(Errno::NOENT);
    }
    let from = if path.starts_with('/') { "" } else { base };
    let mut names: Vec<&str> = Vec::new();
    for name in from.split('/').chain(path.split('/')) {
        match name {
            "" | "." => {}
            ".." => {
                names.pop();
            }
            name => names.push(name),
        }
    }
    let spelled = format!("/{}", names.join("/"));
    if spelled.len() >= PATH_BYTES_MAX { Err(Errno::NAMETOOLONG) } else { Ok(spelled) }
}

/// The folder that a path is in.
pub(super) fn parent(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) | None => "/",
        Some((folder, _)) => folder,
    }
}

/// The files of `/tmp`.
#[derive(Debug)]
pub(super) struct Tmp {
    names: BTreeMap<String, usize>,
    nodes: Vec<Option<TmpNode>>,
}

/// A file or folder of `/tmp`.
#[derive(Debug)]
pub(super) struct TmpNode {
    /// `None`: a folder.
    pub(super) content: Option<Vec<u8>>,
    pub(super) mode: u32,
    pub(super) modified_ms: u64,
    /// It has a name.
    named: bool,
    /// It is open so many times.
    opened: u32,
}

impl Tmp {
    pub(super) fn new() -> Self {
        let mut tmp = Self { names: BTreeMap::new(), nodes: Vec::new() };
        tmp.add("/tmp".to_owned(), None, 0o1777);
        tmp
    }

    fn add(&mut self, path: String, content: Option<Vec<u8>>, mode: u32) -> usize {
        let node = TmpNode { content, mode, modified_ms: 0, named: true, opened: 0 };
        let id = match self.nodes.iter().position(Option::is_none) {
            Some(id) => id,
            None => {
                self.nodes.push(None);
                self.nodes.len() - 1
            }
        };
        if let Some(slot) = self.nodes.get_mut(id) {
            *slot = Some(node);
        }
        self.names.insert(path, id);
        id
    }

    /// The file or folder of that name.
    pub(super) fn find(&self, path: &str) -> Option<usize> {
        self.names.get(path).copied()
    }

    pub(super) fn node(&self, id: usize) -> Option<&TmpNode> {
        self.nodes.get(id)?.as_ref()
    }

    pub(super) fn node_mut(&mut self, id: usize) -> Option<&mut TmpNode> {
        self.nodes.get_mut(id)?.as_mut()
    }

    /// Makes a file or folder.
    pub(super) fn make(&mut self, path: &str, folder: bool, mode: u32) -> Result<usize, Errno> {
        if self.names.contains_key(path) {
            return Err(Errno::EXIST);
        }
        let above = self.find(parent(path)).and_then(|id| self.node(id)).ok_or(Errno::NOENT)?;
        if above.content.is_some() {
            return Err(Errno::NOTDIR);
        }
        if self.names.len() >= NAMES_MAX {
            return Err(Errno::NOSPC);
        }
        Ok(self.add(path.to_owned(), (!folder).then(Vec::new), mode & 0o7777))
    }

    /// Takes a name away. Gives back how many bytes that frees: none while the file is open.
    pub(super) fn remove(&mut self, path: &str, folder: bool) -> Result<usize, Errno> {
        let id = self.find(path).ok_or(Errno::NOENT)?;
        let node = self.node(id).ok_or(Errno::NOENT)?;
        match (node.content.is_none(), folder) {
            (true, false) => return Err(Errno::ISDIR),
            (false, true) => return Err(Errno::NOTDIR),
            (true, true) if path == "/tmp" => return Err(Errno::BUSY),
            (true, true) if self.list(path).next().is_some() => return Err(Errno::NOTEMPTY),
            (true, true) | (false, false) => {}
        }
        self.names.remove(path);
        if let Some(node) = self.node_mut(id) {
            node.named = false;
        }
        Ok(self.sweep(id))
    }

    /// Gives a file or folder another name, over what has it now.
    pub(super) fn rename(&mut self, from: &str, to: &str) -> Result<usize, Errno> {
        let id = self.find(from).ok_or(Errno::NOENT)?;
        let folder = self.node(id).ok_or(Errno::NOENT)?.content.is_none();
        let above = self.find(parent(to)).and_then(|id| self.node(id)).ok_or(Errno::NOENT)?;
        if above.content.is_some() {
            return Err(Errno::NOTDIR);
        }
        if from == to {
            return Ok(0);
        }
        if below(to, from).is_some() || from == "/tmp" {
            return Err(Errno::INVAL);
        }
        let freed = if self.find(to).is_some() { self.remove(to, folder)? } else { 0 };
        let moved: Vec<String> =
            self.names.keys().filter(|name| below(name, from).is_some()).cloned().collect();
        for name in moved {
            if let (Some(rest), Some(id)) = (name.strip_prefix(from), self.names.get(&name).copied()) {
                self.names.insert(format!("{to}{rest}"), id);
                self.names.remove(&name);
            }
        }
        Ok(freed)
    }

    /// The names in a folder.
    pub(super) fn list<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = (&'a str, GuestFileKind)> + 'a {
        self.names.iter().filter_map(move |(path, id)| {
            let name = below(path, folder).filter(|name| !name.is_empty() && !name.contains('/'))?;
            let folder = self.node(*id)?.content.is_none();
            Some((name, if folder { GuestFileKind::Folder } else { GuestFileKind::File }))
        })
    }

    /// Counts one more open file.
    pub(super) fn opened(&mut self, id: usize) {
        if let Some(node) = self.node_mut(id) {
            node.opened = node.opened.saturating_add(1);
        }
    }

    /// Counts one less; gives back the bytes that this frees.
    pub(super) fn closed(&mut self, id: usize) -> usize {
        if let Some(node) = self.node_mut(id) {
            node.opened = node.opened.saturating_sub(1);
        }
        self.sweep(id)
    }

    fn sweep(&mut self, id: usize) -> usize {
        match self.node(id) {
            Some(node) if !node.named && node.opened == 0 => {
                let bytes = node.content.as_ref().map_or(0, Vec::len);
                if let Some(slot) = self.nodes.get_mut(id) {
                    *slot = None;
                }
                bytes
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adv_016_every_spelling_becomes_one() {
        let cases = [
            ("/w/a", "x", "/w/a/x"),
            ("/w/a", "../../../../etc/passwd", "/etc/passwd"),
            ("/w", "//etc///passwd", "/etc/passwd"),
            ("/w", "./a/./../b/.", "/w/b"),
            ("/w", "%2e%2e/x", "/w/%2e%2e/x"),
            ("/w", "a/...", "/w/a/..."),
            ("/w", "/", "/"),
        ];
        for (base, path, spelled) in cases {
            assert_eq!(absolute(base, path.as_bytes()).unwrap(), spelled);
        }
        for odd in [&b""[..], b"a\nb", b"\xc0\xae\xc0\xae/x", b"a\x1b[0m"] {
            assert_eq!(absolute("/w", odd), Err(Errno::NOENT), "{odd:?}");
        }
        assert_eq!(absolute("/w", &[b'a'; 300]), Err(Errno::NAMETOOLONG));
    }

    #[test]
    fn a_path_leads_to_one_place() {
        let tree = FixedTree::new("/tmp/x/work");
        let cases = [
            ("/tmp/x/work", GuestPath::Workspace(".".to_owned())),
            ("/tmp/x/work/a/b", GuestPath::Workspace("a/b".to_owned())),
            ("/tmp/x/workshop", GuestPath::Tmp("/tmp/x/workshop".to_owned())),
            ("/tmp/x", GuestPath::Folder("/tmp/x".to_owned())),
            ("/tmp", GuestPath::Tmp("/tmp".to_owned())),
            ("/", GuestPath::Folder("/".to_owned())),
            ("/dev/null", GuestPath::Device(Device::Null)),
            ("/dev/mem", GuestPath::Nowhere),
            ("/proc/self/exe", GuestPath::Program),
            ("/proc/1/environ", GuestPath::Nowhere),
            ("/etc/passwd", GuestPath::Nowhere),
        ];
        for (path, place) in cases {
            assert_eq!(tree.place(path), place, "{path}");
        }
        let names: Vec<String> = tree.fixed("/").into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["dev", "proc", "tmp"]);
        assert_eq!(tree.fixed("/tmp"), [("x".to_owned(), GuestFileKind::Folder)]);
        assert_eq!(tree.fixed("/tmp/x"), [("work".to_owned(), GuestFileKind::Folder)]);
    }

    #[test]
    fn names_come_and_go() {
        let mut tmp = Tmp::new();
        let file = tmp.make("/tmp/a", false, 0o644).unwrap();
        tmp.make("/tmp/d", true, 0o755).unwrap();
        tmp.make("/tmp/d/b", false, 0o644).unwrap();
        assert_eq!(tmp.make("/tmp/a", false, 0), Err(Errno::EXIST));
        assert_eq!(tmp.make("/tmp/no/b", false, 0), Err(Errno::NOENT));
        assert_eq!(tmp.make("/tmp/a/b", false, 0), Err(Errno::NOTDIR));
        assert_eq!(tmp.remove("/tmp/d", true), Err(Errno::NOTEMPTY));
        tmp.rename("/tmp/d", "/tmp/e").unwrap();
        assert!(tmp.find("/tmp/e/b").is_some() && tmp.find("/tmp/d").is_none());
        assert_eq!(tmp.rename("/tmp/e", "/tmp/e/f"), Err(Errno::INVAL));
        tmp.opened(file);
        tmp.node_mut(file).unwrap().content = Some(vec![0; 10]);
        assert_eq!(tmp.remove("/tmp/a", false), Ok(0));
        assert!(tmp.node(file).is_some());
        assert_eq!(tmp.closed(file), 10);
        assert!(tmp.node(file).is_none());
    }
}
