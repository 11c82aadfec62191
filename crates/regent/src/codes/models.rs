//! Codes that calls to models answer with.

use super::{Code, code, exit};

/// All of them, by name.
pub(super) const MODELS: &[Code] = &[
    code(
        "extract.choices",
        exit::USAGE,
        "`text.extract` takes `choices` if, and only if, its `type` is `choice`.",
    ),
    code(
        "extract.denied",
        exit::DENIED,
        "Policy doesn't let `text.extract` read the file, or ask a model. The nested call in the ledger names the rule.",
    ),
    code(
        "extract.failed",
        exit::ERROR,
        "The file or the model gave no answer. The nested call in the ledger says why.",
    ),
    code(
        "extract.pending",
        exit::APPROVAL,
        "A reviewer has to agree to the nested call of `text.extract` first: `regent approve list` shows it.",
    ),
    code("extract.source", exit::USAGE, "`text.extract` takes either `path` or `text`."),
    code(
        "extract.unfit",
        exit::ERROR,
        "The model that read the text gave no value of the type that was asked for. Nothing else of its answer is passed on.",
    ),
    code(
        "model.absent",
        exit::NOT_FOUND,
        "The model's weights are not on this machine, or can't be used; the message says which file. `regent model pull NAME` brings those that are known.",
    ),
    code(
        "model.busy",
        exit::TEMPORARY,
        "More calls wait for this provider than may. Try again, or raise `waiting_max` of `[models.NAME]`.",
    ),
    code(
        "model.confidential",
        exit::DENIED,
        "The conversation carries something secret, a credential, something under a law, or something that nobody has classified. Such text stays on this machine: ask a model here, or `auto`.",
    ),
    code(
        "model.cut",
        exit::TEMPORARY,
        "The answer ended before it was over, and asking anew did not help. What came is charged, and is in the ledger.",
    ),
    code(
        "model.down",
        exit::TEMPORARY,
        "The provider has failed several times in a row and isn't asked for a while. Then one call finds out whether it is back.",
    ),
    code(
        "model.garbled",
        exit::TEMPORARY,
        "The provider's answer can't be understood: not its protocol, or empty.",
    ),
    code(
        "model.late",
        exit::TEMPORARY,
        "The answer took longer than `patience.total_ms_max` of `[models.NAME]` allows. What came is charged.",
    ),
    code(
        "model.none_fits",
        exit::DENIED,
        "`auto` found no model that may be asked for this: each is named with the reason (too confidential to leave, down, too dear).",
    ),
    code(
        "model.not_an_api",
        exit::ERROR,
        "The server answered with a web page. `url` of `[models.NAME]` names the wrong path, or a proxy or a login is in between.",
    ),
    code(
        "model.rate_limited",
        exit::TEMPORARY,
        "The provider says that it is asked too often (429), also after waiting as long as it wanted.",
    ),
    code("model.refused", exit::ERROR, "The provider said no; its own words are in the message."),
    code("model.stopped", exit::INTERRUPTED, "The call was told to stop before the answer was over."),
    code(
        "model.too_large",
        exit::ERROR,
        "The answer is larger than is taken, or than the rule's `limits` allow.",
    ),
    code(
        "model.too_long",
        exit::ERROR,
        "The conversation is longer than the model takes. Asking again doesn't help: give the task a smaller goal, or use a model that takes more.",
    ),
    code(
        "model.unauthorised",
        exit::DENIED,
        "The provider doesn't accept the key. `key` of `[models.NAME]` names the secret that is used.",
    ),
    code(
        "model.unfit",
        exit::ERROR,
        "The question can't be put to this model; a scripted one has no turn for it.",
    ),
    code(
        "model.unknown",
        exit::NOT_FOUND,
        "No such model is set up. `regent model list` shows those that are; they are named `provider/model`.",
    ),
    code(
        "model.unreachable",
        exit::TEMPORARY,
        "The provider can't be reached: no such host, no connection, no trusted certificate, or no answer in time.",
    ),
];
