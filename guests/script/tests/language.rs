//! The language, as cases in files: expressions, programs, and errors.

use regent_script::{Entry, Host, HostError, Level, Limits, NoHost, Request, Response, Script, Status};

/// A host with a few files, a fixed clock, and a record of the calls.
#[derive(Debug, Default)]
struct TestHost {
    log: Vec<String>,
    files: std::collections::BTreeMap<String, String>,
    kept: std::collections::BTreeMap<String, String>,
}

impl Host for TestHost {
    fn read_file(&mut self, path: &str) -> Result<String, HostError> {
        let missing =
            || HostError { code: "fs.not_found".to_owned(), message: format!("`{path}` is not there") };
        self.files.get(path).cloned().ok_or_else(missing)
    }
    fn write_file(&mut self, path: &str, content: &str) -> Result<(), HostError> {
        self.files.insert(path.to_owned(), content.to_owned());
        Ok(())
    }
    fn append_file(&mut self, path: &str, content: &str) -> Result<(), HostError> {
        self.files.entry(path.to_owned()).or_default().push_str(content);
        Ok(())
    }
    fn list_dir(&mut self, _path: &str) -> Result<Vec<Entry>, HostError> {
        let entry = |(path, content): (&String, &String)| Entry {
            path: path.clone(),
            kind: "file",
            bytes: content.len() as u64,
        };
        Ok(self.files.iter().map(entry).collect())
    }
    fn stat(&mut self, path: &str) -> Result<Status, HostError> {
        let bytes = self.read_file(path)?.len() as u64;
        Ok(Status { kind: "file", bytes, modified_ms: 5 })
    }
    fn fetch(&mut self, request: &Request) -> Result<Response, HostError> {
        let body = format!(
            r#"{{"method":"{}","url":"{}","body":{:?}}}"#,
            request.method,
            request.url,
            request.body.clone().unwrap_or_default()
        );
        let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        Ok(Response { status: 200, headers, body, truncated: false })
    }
    fn log(&mut self, level: Level, text: &str) {
        self.log.push(format!("{level:?} {text}"));
    }
    fn now_ms(&mut self) -> i64 {
        1_700_000_000_000
    }
    fn secret(&mut self, name: &str) -> Result<String, HostError> {
        Ok(format!("secret://{name}"))
    }
    fn call_tool(&mut self, name: &str, args: &str) -> Result<String, HostError> {
        if name == "text" {
            Ok("just text".to_owned())
        } else {
            Ok(format!(r#"{{"tool":"{name}","args":{args}}}"#))
        }
    }
    fn kv_get(&mut self, key: &str) -> Result<Option<String>, HostError> {
        Ok(self.kept.get(key).cloned())
    }
    fn kv_set(&mut self, key: &str, value: &str) -> Result<(), HostError> {
        self.kept.insert(key.to_owned(), value.to_owned());
        Ok(())
    }
}

/// Runs a source: the result, or `!` and the first line of the error.
fn run(source: &str, input: &str, host: &mut dyn Host) -> String {
    let limits = Limits { steps_max: 5_000_000, depth_max: 1_000 };
    let ran = Script::new(source).and_then(|script| script.run(input, host, limits));
    ran.unwrap_or_else(|error| format!("!{}", error.to_string().lines().next().unwrap_or_default()))
}

/// Runs on a thread with a large stack, as on a native machine; the component has its own limit.
fn with_room(test: impl FnOnce() + Send + 'static) -> std::thread::Result<()> {
    match std::thread::Builder::new().stack_size(64 << 20).spawn(test) {
        Ok(thread) => thread.join(),
        Err(error) => Err(Box::new(error)),
    }
}

#[test]
fn expressions() {
    with_room(|| {
        let mut wrong = Vec::new();
        for line in include_str!("cases/expressions.txt").lines().filter(|line| !line.starts_with('#')) {
            let (expression, wanted) = line.rsplit_once(" => ").unwrap();
            let source = format!("function run() {{ return (\n{expression}\n); }}");
            let mut got = run(&source, "null", &mut TestHost::default());
            if got.starts_with('!') {
                got = got.rsplit_once(" at ").map_or(got.clone(), |(message, _)| message.to_owned());
            }
            if got != wanted {
                wrong.push(format!("{expression}\n  wanted {wanted}\n  got    {got}"));
            }
        }
        assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    })
    .unwrap();
}

#[test]
fn programs() {
    with_room(|| {
        let mut wrong = Vec::new();
        for case in include_str!("cases/programs.txt").trim_start_matches("=== ").split("\n=== ") {
            let (name, rest) = case.split_once('\n').unwrap();
            let (source, rest) = rest.split_once("\n--- ").unwrap();
            let (input, wanted) = rest.split_once('\n').unwrap();
            let got = run(source, input, &mut TestHost::default());
            if got != wanted.trim_end() {
                wrong.push(format!("{name}\n  wanted {}\n  got    {got}", wanted.trim_end()));
            }
        }
        assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    })
    .unwrap();
}

#[test]
fn what_is_refused_says_what_and_where() {
    let mut wrong = Vec::new();
    for line in include_str!("cases/refused.txt").lines().filter(|line| !line.starts_with('#')) {
        let (source, wanted) = line.rsplit_once(" => ").unwrap();
        let source = source.replace("\\n", "\n");
        let entry =
            if source.contains("run") || wanted.contains("entry") { "" } else { "\nfunction run() {}" };
        let got = match Script::new(&format!("{source}{entry}")) {
            Ok(_) => "(accepted)".to_owned(),
            Err(error) => error.to_string().lines().next().unwrap_or_default().to_owned(),
        };
        if !got.starts_with(wanted) {
            wrong.push(format!("{source}\n  wanted {wanted}\n  got    {got}"));
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn an_error_shows_its_line() {
    let error = Script::new("function run() {\n  return missing + 1;\n}").unwrap_err();
    assert_eq!(error.to_string(), "`missing` is not defined at 2:10\n  2 |   return missing + 1;");
    assert_eq!(error.place, Some((2, 10)));
}

#[test]
fn the_host_is_asked_by_name_and_nothing_else() {
    let source = r#"
        export async function run({ path }) {
            const text = regent.readFile(path);
            regent.writeFile("copy.txt", text.toUpperCase());
            regent.appendFile("copy.txt", "!");
            const listed = regent.listDir(".").map((e) => `${e.name}:${e.kind}:${e.bytes}`);
            const response = await fetch("http://localhost/x", { method: "post", headers: { A: 1 }, body: JSON.stringify({ q: 1 }) });
            const answer = response.json();
            regent.log("seen", { a: 1 }, [1]);
            console.warn("careful");
            regent.kv.set("k", "v");
            let code;
            try { regent.readFile("nothing"); } catch (e) { code = e.code + " " + e.message; }
            return {
                listed, code, ok: response.ok, type: response.headers["content-type"], method: answer.method, body: answer.body,
                kept: regent.kv.get("k"), none: regent.kv.get("other"), tool: regent.callTool("x.y", { z: 1 }), text: regent.callTool("text"),
                now: regent.now(), secret: regent.secret("api"), stat: regent.stat("copy.txt"),
            };
        }"#;
    let mut host = TestHost::default();
    host.files.insert("a.txt".to_owned(), "hello".to_owned());
    let got = run(source, r#"{"path":"a.txt"}"#, &mut host);
    assert_eq!(
        got,
        r#"{"listed":["a.txt:file:5","copy.txt:file:6"],"code":"fs.not_found `nothing` is not there","ok":true,"type":"application/json","method":"POST","body":"{\"q\":1}","kept":"v","none":null,"tool":{"tool":"x.y","args":{"z":1}},"text":"just text","now":1700000000000,"secret":"secret://api","stat":{"kind":"file","bytes":6,"modifiedMs":5}}"#
    );
    assert_eq!(host.log, ["Note seen {\"a\":1} [1]", "Warn careful"]);
    let script = Script::new(source).unwrap();
    assert_eq!(
        script.uses(),
        [
            "appendFile",
            "callTool",
            "fetch",
            "kv.get",
            "kv.set",
            "listDir",
            "log",
            "now",
            "readFile",
            "secret",
            "stat",
            "writeFile"
        ]
    );
    assert!(Script::new("function run() { return 1; }").unwrap().uses().is_empty());
}

#[test]
fn only_texts_are_written() {
    let got = run("function run() { regent.writeFile('x', {}); }", "null", &mut TestHost::default());
    assert_eq!(got, "!TypeError: the content must be a string, not an object at 1:34");
}

#[test]
fn endless_programs_end() {
    for source in [
        "for (;;) {}",
        "while (true) {}",
        "const f = () => f; let g = f; for (;;) g = g();",
        "[1].map(function f() { return [1].map(f); })",
    ] {
        let source = format!("function run() {{ try {{ {source} }} catch (e) {{ return 1; }} }}");
        with_room(move || {
            let limits = Limits { steps_max: 100_000, depth_max: 500 };
            let ended = Script::new(&source).unwrap().run("null", &mut NoHost, limits);
            assert!(matches!(&ended, Ok(one) if one == "1") || ended.is_err(), "{ended:?}");
        })
        .unwrap();
    }
}

#[test]
fn a_run_leaves_nothing_behind_for_the_next() {
    let script = Script::new("let n = 0; function run() { n++; return n; }").unwrap();
    for _ in 0..2 {
        assert_eq!(script.run("null", &mut NoHost, Limits::default()).unwrap(), "1");
    }
}
