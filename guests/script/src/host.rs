//! What a program can reach for outside of itself. Everything here is the host's to allow or refuse.

use std::fmt::Debug;

/// The host's answer when it says no, or when it did not work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostError {
    /// A stable word, e.g. `fs.not_found`.
    pub code: String,
    /// What went wrong, in a sentence.
    pub message: String,
}

/// One name in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its path, as it can be given back to the host.
    pub path: String,
    /// `file`, `folder`, `link` or `special`.
    pub kind: &'static str,
    /// How large it is.
    pub bytes: u64,
}

/// What is known of a file or folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// `file`, `folder`, `link` or `special`.
    pub kind: &'static str,
    /// How large it is.
    pub bytes: u64,
    /// When it was last changed, in milliseconds since 1970.
    pub modified_ms: i64,
}

/// A request to another machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// `GET`, `POST` …
    pub method: String,
    /// Where to.
    pub url: String,
    /// Names and values.
    pub headers: Vec<(String, String)>,
    /// What is sent.
    pub body: Option<String>,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The status, e.g. 200.
    pub status: u16,
    /// Names and values.
    pub headers: Vec<(String, String)>,
    /// The content, as text.
    pub body: String,
    /// More came than may come.
    pub truncated: bool,
}

/// How loud a line of the log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Details for debugging.
    Debug,
    /// As it goes.
    Note,
    /// Something is odd.
    Warn,
    /// Something is wrong.
    Error,
}

/// What a program can ask for. Each is judged by the host.
pub trait Host: Debug {
    /// The whole content of a text file.
    fn read_file(&mut self, path: &str) -> Result<String, HostError>;
    /// Replaces a file, or makes it.
    fn write_file(&mut self, path: &str, content: &str) -> Result<(), HostError>;
    /// Adds to the end of a file, or makes it.
    fn append_file(&mut self, path: &str, content: &str) -> Result<(), HostError>;
    /// What is in a folder.
    fn list_dir(&mut self, path: &str) -> Result<Vec<Entry>, HostError>;
    /// Describes a file or folder.
    fn stat(&mut self, path: &str) -> Result<Status, HostError>;
    /// Makes a request.
    fn fetch(&mut self, request: &Request) -> Result<Response, HostError>;
    /// Writes a line for people.
    fn log(&mut self, level: Level, text: &str);
    /// Milliseconds since 1970.
    fn now_ms(&mut self) -> i64;
    /// A handle to a secret.
    fn secret(&mut self, name: &str) -> Result<String, HostError>;
    /// Runs another tool; arguments are JSON.
    fn call_tool(&mut self, name: &str, args: &str) -> Result<String, HostError>;
    /// What was kept under a key.
    fn kv_get(&mut self, key: &str) -> Result<Option<String>, HostError>;
    /// Keeps a value under a key.
    fn kv_set(&mut self, key: &str, value: &str) -> Result<(), HostError>;
}

/// A host that says no to everything; its clock stands at 0.
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
