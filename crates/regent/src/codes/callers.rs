//! Codes about who calls: authentication, roles, tokens.

use super::{Code, code, exit};

/// All of them, by name.
pub(super) const CALLERS: &[Code] = &[
    code(
        "auth.class",
        exit::DENIED,
        "Programs may ask for less than people: agents don't answer questions, set budgets or manage tokens, and services and peers start out with even less.",
    ),
    code(
        "auth.expired",
        exit::AUTHENTICATION,
        "The token was valid for a while, and that is over. An admin makes a new one with `regent token rotate ID` or `regent token create`.",
    ),
    code(
        "auth.invalid",
        exit::AUTHENTICATION,
        "The token isn't valid: it was revoked or replaced, was copied incompletely, or never existed. The error doesn't say which, because anybody may present a token; an admin sees it in `regent token list`.",
    ),
    code(
        "auth.no_agent",
        exit::AUTHENTICATION,
        "The token stands for an agent that has ended, or that runs in another kernel process. `regent agent ps` lists the agents.",
    ),
    code("auth.other_user", exit::AUTHENTICATION, "The kernel belongs to another user of this machine."),
    code(
        "auth.role",
        exit::DENIED,
        "People have roles: a viewer looks, an operator runs tools and agents, an approver answers questions, an admin does all of this, sets budgets and manages tokens. The kernel checks the role before policy is asked. The user at the terminal is an admin; a caller with a token has the role of the token (`regent whoami`).",
    ),
    code(
        "auth.unavailable",
        exit::TEMPORARY,
        "The tokens are in the shared state, and it can't be read. Nobody is let in by a token until it can.",
    ),
    code(
        "auth.unlisted",
        exit::DENIED,
        "The operation is in no role, so that nobody may ask for it. That is a defect of Regent.",
    ),
    code("token.id", exit::CONFLICT, "A token with this id exists, or what was given isn't an id."),
    code(
        "token.name",
        exit::USAGE,
        "People and programs have names of 1 to 64 ASCII letters, digits, `.`, `_`, `@` and `-`. `operator`, `kernel`, `host`, `regent` and `nobody` are taken.",
    ),
    code(
        "token.no_agent",
        exit::NOT_FOUND,
        "A token can be made for an agent that runs in this kernel. `regent agent ps` lists the agents.",
    ),
    code(
        "token.too_many",
        exit::ERROR,
        "There are as many tokens as can be kept. Revoke those that nobody needs.",
    ),
];
