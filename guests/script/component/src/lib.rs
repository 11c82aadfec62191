//! The component that generated tools run in: world `script` of `regent:host`. It only adapts the host's imports to a [`Host`].

#![expect(
    unsafe_code,
    reason = "the bindings that are made from the WIT cross the boundary of the component"
)]
#![expect(missing_docs, reason = "the bindings are documented by the WIT that they are made from")]

wit_bindgen::generate!({
    path: "../../../crates/sandbox/wit",
    world: "script",
});

use regent::host::{clock, filesystem, http, kv, logging, secrets, tools, types};

use regent_script::{Entry, Host, HostError, Level, Limits, Request, Response, Script, Status};

/// Limited by the tier's stack.
const DEPTH_MAX: u32 = 1_000;

#[derive(Debug)]
struct Component;

export!(Component);

impl Guest for Component {
    fn run(source: String, input: String) -> Result<String, String> {
        let script = Script::new(&source).map_err(|error| error.to_string())?;
        let limits = Limits { steps_max: u64::MAX, depth_max: DEPTH_MAX };
        script.run(&input, &mut Outside, limits).map_err(|error| error.to_string())
    }
}

/// The host, by the component's imports.
#[derive(Debug)]
struct Outside;

fn refused(failure: types::Failure) -> HostError {
    HostError { code: failure.code, message: failure.message }
}

fn kind(kind: filesystem::Kind) -> &'static str {
    match kind {
        filesystem::Kind::File => "file",
        filesystem::Kind::Folder => "folder",
        filesystem::Kind::Link => "link",
        filesystem::Kind::Special => "special",
    }
}

impl Host for Outside {
    fn read_file(&mut self, path: &str) -> Result<String, HostError> {
        filesystem::read_text(path).map_err(refused)
    }

    fn write_file(&mut self, path: &str, content: &str) -> Result<(), HostError> {
        filesystem::write_file(path, content.as_bytes()).map_err(refused)
    }

    fn append_file(&mut self, path: &str, content: &str) -> Result<(), HostError> {
        filesystem::append_file(path, content.as_bytes()).map_err(refused)
    }

    fn list_dir(&mut self, path: &str) -> Result<Vec<Entry>, HostError> {
        let listed = filesystem::list_dir(path).map_err(refused)?;
        let entry = |one: filesystem::Entry| Entry { path: one.path, kind: kind(one.kind), bytes: one.bytes };
        Ok(listed.into_iter().map(entry).collect())
    }

    fn stat(&mut self, path: &str) -> Result<Status, HostError> {
        let status = filesystem::stat(path).map_err(refused)?;
        Ok(Status { kind: kind(status.kind), bytes: status.bytes, modified_ms: status.modified_ms })
    }

    fn fetch(&mut self, request: &Request) -> Result<Response, HostError> {
        let response = http::fetch(&http::Request {
            method: request.method.clone(),
            url: request.url.clone(),
            headers: request.headers.clone(),
            body: request.body.clone(),
        })
        .map_err(refused)?;
        Ok(Response {
            status: response.status,
            headers: response.headers,
            body: String::from_utf8_lossy(&response.body).into_owned(),
            truncated: response.truncated,
        })
    }

    fn log(&mut self, level: Level, text: &str) {
        let level = match level {
            Level::Debug => logging::Level::Debug,
            Level::Note => logging::Level::Info,
            Level::Warn => logging::Level::Warn,
            Level::Error => logging::Level::Error,
        };
        logging::log(level, text);
    }

    fn now_ms(&mut self) -> i64 {
        clock::now_ms()
    }

    fn secret(&mut self, name: &str) -> Result<String, HostError> {
        secrets::handle(name).map_err(refused)
    }

    fn call_tool(&mut self, name: &str, args: &str) -> Result<String, HostError> {
        tools::call(name, args).map_err(refused)
    }

    fn kv_get(&mut self, key: &str) -> Result<Option<String>, HostError> {
        kv::get(key).map_err(refused)
    }

    fn kv_set(&mut self, key: &str, value: &str) -> Result<(), HostError> {
        kv::set(key, value).map_err(refused)
    }
}
