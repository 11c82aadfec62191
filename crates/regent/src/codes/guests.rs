//! Codes that guests meet: in the WASM and microVM tiers, at the broker, and as skills.

use super::{Code, code, exit};

/// All of them, by name.
pub(super) const GUESTS: &[Code] = &[
    code("kv.key", exit::USAGE, "Not a key: 1 to 64 of `a-z A-Z 0-9 . _ -`, not beginning with a dot."),
    code(
        "microvm.dead",
        exit::SANDBOX,
        "The virtual machine could not go on, through no fault of the program's that we could name. What it said until then is the result.",
    ),
    code(
        "microvm.memory",
        exit::SANDBOX,
        "The program, or what the rule gives it (`memory`), is not of a size that a microVM can be.",
    ),
    code(
        "microvm.no_shell",
        exit::SANDBOX,
        "A line for the shell needs a static shell to be run in a microVM, and this machine has none. On Debian the package `busybox-static` has one.",
    ),
    code(
        "microvm.not_a_program",
        exit::USAGE,
        "A microVM runs ELF programs for x86-64. Scripts need their interpreter named.",
    ),
    code(
        "microvm.not_found",
        exit::NOT_FOUND,
        "The program is neither in the workspace, where policy lets it be read, nor one of the machine's own in /usr/local/bin, /usr/bin or /bin.",
    ),
    code(
        "microvm.not_saved",
        exit::DENIED,
        "The program ended well, but something that it wrote is not in the workspace. The receipt says what was refused, and why.",
    ),
    code(
        "microvm.not_static",
        exit::SANDBOX,
        "The program needs a loader and libraries, and a microVM has none. Link it statically (`-static`, or a musl target), or run it in the process tier.",
    ),
    code(
        "microvm.stuck",
        exit::SANDBOX,
        "The program waited, without a time limit, for something that only another thread or process of its own could have done. A microVM has one thread.",
    ),
    code(
        "net.address_refused",
        exit::DENIED,
        "The host's address is private, local or a cloud's metadata. `network.allow_private` names exceptions.",
    ),
    code("net.broken", exit::ERROR, "The exchange or the tunnel broke off."),
    code("net.cancelled", exit::INTERRUPTED, "The exchange was stopped."),
    code("net.connect", exit::TEMPORARY, "The host can't be reached."),
    code("net.gone", exit::INTERRUPTED, "The program that asked for it has ended, or no longer waits."),
    code("net.header", exit::USAGE, "A header can't be sent as it would have to be."),
    code(
        "net.inspect",
        exit::ERROR,
        "A tunnel that policy wants opened can't be: the program doesn't trust the broker's certificate.",
    ),
    code("net.method", exit::USAGE, "A method that isn't known."),
    code(
        "net.name_refused",
        exit::DENIED,
        "The name is too long or too random to be that of a machine: a lookup would carry it to whoever answers for it.",
    ),
    code(
        "net.no_connection",
        exit::USAGE,
        "Only the broker makes this call, for a program that waits. `http.fetch` makes requests.",
    ),
    code("net.no_such_host", exit::NOT_FOUND, "The name has no address."),
    code(
        "net.secret_leaving",
        exit::DENIED,
        "The value of a secret would leave in a way that nobody agreed to. Send its handle (`secret://name`) instead.",
    ),
    code("net.secret_not_text", exit::ERROR, "A secret that isn't text can't be put into a JSON body."),
    code("net.timeout", exit::TEMPORARY, "The other side, or both, said nothing for too long."),
    code(
        "net.tls",
        exit::ERROR,
        "The host's certificate can't be trusted, or no secure connection came about.",
    ),
    code(
        "net.tls_refused",
        exit::DENIED,
        "The tunnel isn't TLS, or its greeting is to another host than the one that was judged.",
    ),
    code("net.too_large", exit::ERROR, "More bytes than one exchange may move."),
    code("net.url", exit::USAGE, "The URL can't be used."),
    code(
        "skill.blocked",
        exit::DENIED,
        "The scan of a skill found something of high severity: a secret, prompt injection, characters that don't show, a script that does harm. Look at each finding (`regent skill scan`); `--accept-findings` installs it all the same.",
    ),
    code(
        "skill.changed",
        exit::DENIED,
        "A file of the skill was changed, added or removed after it was installed. Every use compares every file with `.regent/skills.lock` and with the digest that you agreed to, so the skill is refused until it is installed again.",
    ),
    code(
        "skill.invalid",
        exit::INVALID_FILE,
        "The package has no usable `SKILL.md`: a head between two lines `---` with at least `name` and `description`; with a `runtime` also an `entrypoint` that is in the package.",
    ),
    code(
        "skill.lock",
        exit::INVALID_FILE,
        "`.regent/skills.lock` can't be read. It is written by `regent skill` alone; take it from a backup, or remove it and install the skills again.",
    ),
    code(
        "skill.no_file",
        exit::NOT_FOUND,
        "The skill has no such file; `regent skill show NAME` lists them.",
    ),
    code("skill.no_text", exit::ERROR, "The file is not a text, or too long to be shown."),
    code(
        "skill.not_granted",
        exit::APPROVAL,
        "The skill wants to do something that you haven't granted: at first, or because an update wants more than the version you have. On a terminal you are asked; elsewhere name each permission with `--grant`.",
    ),
    code(
        "skill.package",
        exit::DENIED,
        "The folder or archive is not taken: a path that leads out of it, a link, a device, names that differ only in case, more files or bytes than fit, or an archive that unpacks to much more than it is. Nothing was written.",
    ),
    code(
        "skill.permission",
        exit::DENIED,
        "What was granted to the skill can't be given to its program: more than one folder to write to, or a folder that isn't there or is a link.",
    ),
    code(
        "skill.signature",
        exit::DENIED,
        "The package has a `SKILL.sig` that doesn't hold: it is about other content, or a key that you trust did not make it. A package that was changed after it was signed looks like this.",
    ),
    code("skill.swapped", exit::CONFLICT, "The package is no longer the one that was looked at; look again."),
    code(
        "skill.pins",
        exit::INVALID_FILE,
        "The file in your state folder that holds which skills of this project you agreed to can't be read. Remove it and run `regent trust` in the project: it asks about every skill again.",
    ),
    code(
        "skill.unagreed",
        exit::DENIED,
        "The project's `.regent/skills.lock` names this skill, but you have not agreed to it on this machine. A lock travels with a project, so it grants nothing: digests and grants that you agreed to are kept in your state folder. Look at the skill, then `regent trust` asks about it.",
    ),
    code("skill.unknown", exit::NOT_FOUND, "There is no skill of that name in this project."),
    code(
        "skill.unreadable",
        exit::ERROR,
        "A file of the skill, or the place it is in, can't be read or written.",
    ),
    code("wasm.broken", exit::ERROR, "The WASM tier could not do its own part."),
    code("wasm.busy", exit::TEMPORARY, "As many WASM guests run as may; try again."),
    code("wasm.exit", exit::ERROR, "The guest ended itself with an exit code other than 0."),
    code(
        "wasm.fuel",
        exit::SANDBOX,
        "The guest used up the processor time that the rule gives (`cpu`), counted in instructions.",
    ),
    code(
        "wasm.import",
        exit::SANDBOX,
        "The guest wants something from its host that is not offered. Components get `regent:host` and a WASI with nothing in it; older modules get `az::log`, `az::read_file` and `az::write_file`.",
    ),
    code("wasm.invalid", exit::USAGE, "The bytes are not WASM, not valid, or need what this tier has not."),
    code("wasm.memory", exit::SANDBOX, "The guest wanted more memory than the rule gives (`memory`)."),
    code("wasm.stack", exit::SANDBOX, "The guest's calls went deeper than its stack."),
    code("wasm.stopped", exit::INTERRUPTED, "The guest was stopped because its call was."),
    code("wasm.table", exit::SANDBOX, "The guest wanted larger tables than any guest gets."),
    code(
        "wasm.too_large",
        exit::USAGE,
        "The component, or the source for an interpreter, is larger than is taken.",
    ),
    code(
        "wasm.trap",
        exit::ERROR,
        "The guest did what its code must not: divided by zero, left its memory, reached what it called unreachable.",
    ),
    code(
        "wasm.unavailable",
        exit::SANDBOX,
        "This machine doesn't give what the WASM tier needs, such as address space (`ulimit -v`).",
    ),
    code(
        "wasm.world",
        exit::USAGE,
        "The component exports nothing that can be called: it must be of the world `tool` or `script` of `regent:host`, or a WASI command.",
    ),
];
