//! Codes that guests meet: in the WASM and microVM tiers, at the broker, and as skills.

use super::{Code, code, exit};

/// All of them, by name.
pub(super) const GUESTS: &[Code] = &[
    code("kv.key", exit::USAGE, "Invalid key: use 1 to 64 of `a-z A-Z 0-9 . _ -`, not beginning with a dot."),
    code(
        "microvm.dead",
        exit::SANDBOX,
        "The virtual machine failed for an unknown reason. The result is the output until then.",
    ),
    code(
        "microvm.memory",
        exit::SANDBOX,
        "The program or its memory limit (`memory`) doesn't fit a microVM.",
    ),
    code(
        "microvm.no_shell",
        exit::SANDBOX,
        "A shell line in a microVM needs a static shell, and this machine has none. On Debian, install `busybox-static`.",
    ),
    code(
        "microvm.not_a_program",
        exit::USAGE,
        "A microVM runs ELF programs for x86-64. For a script, name its interpreter.",
    ),
    code(
        "microvm.not_found",
        exit::NOT_FOUND,
        "The program is neither readable in the workspace nor in /usr/local/bin, /usr/bin or /bin.",
    ),
    code(
        "microvm.not_saved",
        exit::DENIED,
        "The program succeeded, but some of its writes were refused. The receipt says which, and why.",
    ),
    code(
        "microvm.not_static",
        exit::SANDBOX,
        "The program needs a loader and libraries, which a microVM lacks. Link it statically (`-static`, or a musl target), or run it in the process tier.",
    ),
    code(
        "microvm.stuck",
        exit::SANDBOX,
        "The program waited without a time limit for another thread or process. A microVM has one thread.",
    ),
    code(
        "net.address_refused",
        exit::DENIED,
        "The host's address is private, local or a cloud metadata service. `network.allow_private` lists exceptions.",
    ),
    code("net.broken", exit::ERROR, "The connection or the tunnel was lost."),
    code("net.cancelled", exit::INTERRUPTED, "The request was stopped."),
    code("net.connect", exit::TEMPORARY, "The host can't be reached."),
    code("net.gone", exit::INTERRUPTED, "The program that made the request has ended, or no longer waits."),
    code("net.header", exit::USAGE, "A header can't be encoded."),
    code(
        "net.inspect",
        exit::ERROR,
        "A rule opens this tunnel for inspection, but the program doesn't trust the proxy's certificate.",
    ),
    code("net.method", exit::USAGE, "Unknown HTTP method."),
    code(
        "net.name_refused",
        exit::DENIED,
        "The name is too long or too random for a host name: a lookup would send it to the domain's name server.",
    ),
    code(
        "net.no_connection",
        exit::USAGE,
        "Only the egress proxy makes this call, for a waiting program. Use `http.fetch` to make requests.",
    ),
    code("net.no_such_host", exit::NOT_FOUND, "The name has no address."),
    code(
        "net.secret_leaving",
        exit::DENIED,
        "The value of a secret would leave without approval. Send its handle (`secret://name`) instead.",
    ),
    code("net.secret_not_text", exit::ERROR, "A JSON body can't contain a secret that isn't text."),
    code("net.timeout", exit::TEMPORARY, "The connection was idle for too long."),
    code("net.tls", exit::ERROR, "The host's certificate isn't trusted, or the TLS handshake failed."),
    code(
        "net.tls_refused",
        exit::DENIED,
        "The tunnel isn't TLS, or its server name differs from the host that was judged.",
    ),
    code("net.too_large", exit::ERROR, "The exchange exceeds the byte limit."),
    code("net.url", exit::USAGE, "The URL can't be used."),
    code(
        "skill.blocked",
        exit::DENIED,
        "The scan found a high-severity problem: a secret, prompt injection, hidden characters, or a harmful script. Review each finding (`regent skill scan`); `--accept-findings` installs the skill anyway.",
    ),
    code(
        "skill.changed",
        exit::DENIED,
        "A file of the skill was changed, added or removed after the installation. Every use compares every file with `.regent/skills.lock` and with the digest that you approved, so Regent refuses the skill until it is installed again.",
    ),
    code(
        "skill.invalid",
        exit::INVALID_FILE,
        "The package has no valid `SKILL.md`: a header between two lines `---` with at least `name` and `description`; with a `runtime` also an `entrypoint` that is in the package.",
    ),
    code(
        "skill.lock",
        exit::INVALID_FILE,
        "`.regent/skills.lock` can't be read. Only `regent skill` writes it; restore it from a backup, or remove it and install the skills again.",
    ),
    code(
        "skill.no_file",
        exit::NOT_FOUND,
        "The skill has no such file; `regent skill show NAME` lists them.",
    ),
    code("skill.no_text", exit::ERROR, "The file is not text, or is too long to show."),
    code(
        "skill.not_granted",
        exit::APPROVAL,
        "The skill requests a permission that you haven't granted: at the installation, or because an update needs more. On a terminal Regent asks; elsewhere pass each permission with `--grant`.",
    ),
    code(
        "skill.package",
        exit::DENIED,
        "The folder or archive was rejected: a path that leads outside, a link, a device, names that differ only in case, too many files or bytes, or an archive bomb. Nothing was written.",
    ),
    code(
        "skill.permission",
        exit::DENIED,
        "The skill's program can't get what was granted: more than one writable folder, or a folder that doesn't exist or is a link.",
    ),
    code(
        "skill.signature",
        exit::DENIED,
        "The package's `SKILL.sig` is invalid: it signs other content, or none of your trusted keys made it. A package that was changed after signing looks like this.",
    ),
    code("skill.swapped", exit::CONFLICT, "The package changed since it was reviewed; review it again."),
    code(
        "skill.pins",
        exit::INVALID_FILE,
        "The file in your state folder with your approved skills of this project can't be read. Remove it and run `regent trust` in the project: it asks about every skill again.",
    ),
    code(
        "skill.unagreed",
        exit::DENIED,
        "The project's `.regent/skills.lock` lists this skill, but you haven't approved it on this machine. A lock comes with the project, so it grants nothing: Regent keeps approved digests and permissions in your state folder. Review the skill, then run `regent trust`.",
    ),
    code("skill.unknown", exit::NOT_FOUND, "There is no skill of that name in this project."),
    code("skill.unreadable", exit::ERROR, "A file of the skill, or its folder, can't be read or written."),
    code("wasm.broken", exit::ERROR, "The WASM tier failed."),
    code("wasm.busy", exit::TEMPORARY, "The maximum number of WASM guests is running; try again."),
    code("wasm.exit", exit::ERROR, "The guest exited with a code other than 0."),
    code("wasm.fuel", exit::SANDBOX, "The guest reached its CPU limit (`cpu`), counted in instructions."),
    code(
        "wasm.import",
        exit::SANDBOX,
        "The guest imports something that Regent doesn't provide. Components get `regent:host` and a minimal WASI; older modules get `az::log`, `az::read_file` and `az::write_file`.",
    ),
    code(
        "wasm.invalid",
        exit::USAGE,
        "The bytes are not valid WASM, or need a feature that this tier lacks.",
    ),
    code("wasm.memory", exit::SANDBOX, "The guest reached its memory limit (`memory`)."),
    code("wasm.stack", exit::SANDBOX, "The guest overflowed its stack."),
    code("wasm.stopped", exit::INTERRUPTED, "The guest was stopped with its call."),
    code("wasm.table", exit::SANDBOX, "The guest exceeded the limit on table size."),
    code("wasm.too_large", exit::USAGE, "The component, or the source for an interpreter, is too large."),
    code(
        "wasm.trap",
        exit::ERROR,
        "The guest trapped: division by zero, access outside its memory, or unreachable code.",
    ),
    code(
        "wasm.unavailable",
        exit::SANDBOX,
        "This machine lacks what the WASM tier needs, such as address space (`ulimit -v`).",
    ),
    code(
        "wasm.world",
        exit::USAGE,
        "The component exports nothing that can be called: it must implement the world `tool` or `script` of `regent:host`, or be a WASI command.",
    ),
];
