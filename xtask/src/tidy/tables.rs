//! What code may not reach for, and who may all the same. Allow-lists only shrink.

/// Crates that are pure: what they answer follows from what they are given.
pub(super) const PURE: &[&str] = &["policy", "provenance"];
/// What a pure crate doesn't reach for.
pub(super) const AMBIENT: &[&str] = &[
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
    "std::thread",
    "std::io",
    "time::Instant",
    "Instant::now",
    "SystemTime",
    "tokio",
    "rustix",
    "getrandom",
    "File::open",
    "TcpStream",
    "UdpSocket",
    "UnixStream",
    "Mutex",
    "RwLock",
    "Atomic",
    "RefCell",
    "Cell<",
    "OnceLock",
    "OnceCell",
    "LazyLock",
    "thread_local!",
];
/// What pure crates reach for all the same, and why the same facts get the same verdict.
pub(super) const AMBIENT_ALLOWED: &[(&str, &str, &str)] = &[
    (
        "Mutex",
        "crates/policy/src/body/rego.rs",
        "the interpreter's scratch memory; the input is set anew each time",
    ),
    (
        "Mutex",
        "crates/policy/src/body/rego/bounded.rs",
        "interpreters that run one built-in each and keep nothing",
    ),
    ("LazyLock", "crates/policy/src/body/cedar.rs", "a constant that is parsed once"),
    ("LazyLock", "crates/provenance/src/date.rs", "a pattern that is compiled once"),
    ("LazyLock", "crates/provenance/src/intent.rs", "a pattern that is compiled once"),
];
/// Call-backs of pure crates, and what they answer from: only what the caller of the crate has handed in.
pub(super) const CALL_BACKS_ALLOWED: &[(&str, &str, &str)] = &[
    ("crates/policy/src/acs/evaluate.rs", "Host", "an ACS manifest asks the host that it is evaluated for"),
    ("crates/policy/src/acs/snapshot.rs", "Fn(Point)", "picks points"),
    ("crates/policy/src/body/cedar.rs", "std::fmt::Display", "an error that is shown"),
    ("crates/policy/src/body/rego.rs", "std::fmt::Display", "an error that is shown"),
    ("crates/policy/src/condition/args.rs", "Fn(&str) -> bool", "compares texts"),
    ("crates/policy/src/json_path.rs", "FnMut(&'v Value)", "visits parts of a value"),
    ("crates/policy/src/lint.rs", "FnMut(&Clause)", "visits clauses of a rule"),
    ("crates/policy/src/transform.rs", "FnMut(&str)", "changes texts of a value"),
];
/// Variables of the whole process, and why many kernels in one process don't meet in them. Everything else belongs to a kernel.
pub(super) const STATICS: &[(&str, &str, &str)] = &[
    ("crates/kernel/src/command/ordinary.rs", "TABLE", "a constant, parsed once"),
    ("crates/control/src/server.rs", "COUNT", "makes the names of sockets differ"),
    ("crates/guard/src/table.rs", "TABLE", "a constant, parsed once"),
    ("crates/inference/src/lib.rs", "LOADED", "weights are read-only, and two copies don't fit into memory"),
    ("crates/microvm/src/machine.rs", "SUPPORTED", "what this machine's processor offers a guest, read once"),
    ("crates/microvm/src/self_test.rs", "FOUND", "whether this machine runs guests, tried once"),
    ("crates/models/src/pull.rs", "READ", "a constant, parsed once"),
    ("crates/policy/src/history.rs", "NOTHING", "an empty value"),
    ("crates/policy/src/body/cedar.rs", "KINDS", "a constant, parsed once"),
    ("crates/policy/src/replay.rs", "NOTHING", "an empty value"),
    ("crates/provenance/src/date.rs", "MONTHS", "a constant, parsed once"),
    ("crates/provenance/src/intent.rs", "LEXICON", "a constant, parsed once"),
    (
        "crates/regent/src/secrets.rs",
        "OPENED",
        "the panic hook is the process's: it masks what any kernel revealed",
    ),
    ("crates/sandbox/src/cgroup.rs", "FOUND", "the cgroup of this process, looked up once"),
    ("crates/sandbox/src/cgroup.rs", "IDLE", "cgroups without an owner: whoever runs next takes one"),
    ("crates/sandbox/src/cgroup.rs", "NEXT", "makes names differ"),
    ("crates/sandbox/src/cgroup.rs", "RUNS", "counts runs"),
    ("crates/sandbox/src/memory.rs", "BY_LIST", "what this machine's kernel offers, probed once"),
    ("crates/sandbox/src/memory.rs", "CAN", "what this machine's kernel offers, probed once"),
    ("crates/sandbox/src/plan.rs", "SWEEP", "how this process finds what a program left behind, probed once"),
    ("crates/sandbox/src/planted.rs", "NEXT", "makes names differ"),
    ("crates/sandbox/src/probe.rs", "ABI", "what this machine's kernel offers, probed once"),
    ("crates/sandbox/src/probe.rs", "FULL", "whether this machine offers the full confinement, probed once"),
    ("crates/sandbox/src/probe.rs", "FOUND", "what this machine's kernel offers, probed once"),
    ("crates/sandbox/src/probes.rs", "NEXT", "makes names differ"),
    ("crates/sandbox/src/seccomp.rs", "FULL", "a constant, compiled once"),
    ("crates/sandbox/src/seccomp.rs", "WATCHED", "a constant, compiled once"),
    (
        "crates/sandbox/src/supervise/order.rs",
        "ORDER",
        "workspaces may lie in each other, so supervised calls of all of them take turns",
    ),
    ("crates/sandbox/src/view.rs", "FOUND", "the folders of this machine that programs see, looked up once"),
    ("crates/skills/src/scan/rules.rs", "RULES", "a constant, compiled once"),
    ("crates/tools/src/generated.rs", "INTERPRETER", "bytes of a component"),
    ("crates/vault/src/redact/keys.rs", "AUTOMATON", "a constant, compiled once"),
];
/// Facts are plain data: a call-back would let a verdict depend on when it is asked.
pub(super) const FACTS: &str = "crates/policy/src/facts.rs";
/// Crates that many others await: an `async fn` of theirs would be compiled again, with all that it awaits, in each of them.
pub(super) const COMPILED_ONCE: &[&str] = &["kernel", "egress"];
/// Files of these whose futures are small, or generic and boxed further down.
pub(super) const SMALL_FUTURES: &[&str] = &[
    "crates/kernel/src/syscall/flow.rs",
    "crates/kernel/src/syscall/permit.rs",
    "crates/egress/src/broker.rs",
    "crates/egress/src/client.rs",
];
/// Calls that open a socket or read a clock, and the files of the product that make them. Everybody else asks these.
pub(super) const REACHING: &[(&str, &[&str])] = &[
    (
        "TcpStream::connect",
        &[
            "crates/egress/src/reach.rs",
            "crates/regent/src/commands/init.rs",
            "crates/store/src/remote/connect.rs",
        ],
    ),
    ("UdpSocket::bind", &["crates/egress/src/address.rs"]),
    (
        "UnixStream::connect",
        &[
            "crates/control/src/client.rs",
            "crates/control/src/server.rs",
            "crates/protocols/src/judge/socket.rs",
            "crates/regent/src/commands/doctor/checks.rs",
        ],
    ),
    ("TcpListener::bind", &["crates/sandbox/src/probes.rs"]),
    ("ClockId::Realtime", &[]),
];
