//! The host interface of a program. The host allows or denies each call.

use std::fmt::Debug;

/// A denial or failure of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostError {
    /// A stable code, e.g. `fs.not_found`.
    pub code: String,
    /// What went wrong, in a sentence.
    pub message: String,
}

/// An entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its path, valid as an argument for the host.
    pub path: String,
    /// `file`, `folder`, `link` or `special`.
    pub kind: &'static str,
    /// Its size.
    pub bytes: u64,
}

/// Metadata of a file or folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// `file`, `folder`, `link` or `special`.
    pub kind: &'static str,
    /// Its size.
    pub bytes: u64,
    /// Modification time, in milliseconds since 1970.
    pub modified_ms: i64,
}

/// An HTTP request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// `GET`, `POST` …
    pub method: String,
    /// The URL.
    pub url: String,
    /// Names and values.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Option<String>,
}

/// An HTTP response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The status, e.g. 200.
    pub status: u16,
    /// Names and values.
    pub headers: Vec<(String, String)>,
    /// The content, as text.
    pub body: String,
    /// Whether the body was truncated.
    pub truncated: bool,
}

/// The level of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Details for debugging.
    Debug,
    /// Progress.
    Note,
    /// A warning.
    Warn,
    /// An error.
    Error,
}

/// Host functions. The host judges each call.
pub trait Host: Debug {
    /// The content of a text file.
    fn read_file(&mut self, path: &str) -> Result<String, HostError>;
    /// Replaces a file, or creates it.
    fn write_file(&mut self, path: &str, content: &str) -> Result<(), HostError>;
    /// Appends to a file, or creates it.
    fn append_file(&mut self, path: &str, content: &str) -> Result<(), HostError>;
    /// The entries of a folder.
    fn list_dir(&mut self, path: &str) -> Result<Vec<Entry>, HostError>;
    /// Describes a file or folder.
    fn stat(&mut self, path: &str) -> Result<Status, HostError>;
    /// Makes a request.
    fn fetch(&mut self, request: &Request) -> Result<Response, HostError>;
    /// Writes a log line.
    fn log(&mut self, level: Level, text: &str);
    /// Milliseconds since 1970.
    fn now_ms(&mut self) -> i64;
    /// A handle to a secret.
    fn secret(&mut self, name: &str) -> Result<String, HostError>;
    /// Runs another tool; arguments are JSON.
    fn call_tool(&mut self, name: &str, args: &str) -> Result<String, HostError>;
    /// The value stored under a key.
    fn kv_get(&mut self, key: &str) -> Result<Option<String>, HostError>;
    /// Stores a value under a key.
    fn kv_set(&mut self, key: &str, value: &str) -> Result<(), HostError>;
}

/// A host that denies everything; its clock stands at 0.
#[derive(Debug, Default, Clone, Copy)]
pub struct NoHost;

fn no<T>(what: &str) -> Result<T, HostError> {
    Err(HostError { code: "host.none".to_owned(), message: format!("`{what}` is not there") })
}

impl Host for NoHost {
    fn read_file(&mut self, _path: &str) -> Result<String, HostError> {
        no("readFile")
    }
    fn write_file(&mut self, _path: &str, _content: &str) -> Result<(), HostError> {
        no("writeFile")
    }
    fn append_file(&mut self, _path: &str, _content: &str) -> Result<(), HostError> {
        no("appendFile")
    }
    fn list_dir(&mut self, _path: &str) -> Result<Vec<Entry>, HostError> {
        no("listDir")
    }
    fn stat(&mut self, _path: &str) -> Result<Status, HostError> {
        no("stat")
    }
    fn fetch(&mut self, _request: &Request) -> Result<Response, HostError> {
        no("fetch")
    }
    fn log(&mut self, _level: Level, _text: &str) {}
    fn now_ms(&mut self) -> i64 {
        0
    }
    fn secret(&mut self, _name: &str) -> Result<String, HostError> {
        no("secret")
    }
    fn call_tool(&mut self, _name: &str, _args: &str) -> Result<String, HostError> {
        no("callTool")
    }
    fn kv_get(&mut self, _key: &str) -> Result<Option<String>, HostError> {
        no("kv.get")
    }
    fn kv_set(&mut self, _key: &str, _value: &str) -> Result<(), HostError> {
        no("kv.set")
    }
}
