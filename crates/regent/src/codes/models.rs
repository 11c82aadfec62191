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
        "Policy doesn't allow `text.extract` to read the file or to ask a model. The nested call in the ledger names the rule.",
    ),
    code(
        "extract.failed",
        exit::ERROR,
        "The file or the model returned nothing. The nested call in the ledger says why.",
    ),
    code(
        "extract.pending",
        exit::APPROVAL,
        "The nested call of `text.extract` needs your approval: `regent approve list` shows it.",
    ),
    code("extract.source", exit::USAGE, "`text.extract` needs either `path` or `text`."),
    code(
        "extract.unfit",
        exit::ERROR,
        "The model that read the text returned no value of the requested type. Regent passes on nothing else of its answer.",
    ),
    code(
        "model.absent",
        exit::NOT_FOUND,
        "The model's weights are not on this machine, or can't be used; the message names the file. `regent model pull NAME` downloads known ones.",
    ),
    code(
        "model.busy",
        exit::TEMPORARY,
        "Too many calls wait for this provider. Try again, or raise `waiting_max` of `[models.NAME]`.",
    ),
    code(
        "model.confidential",
        exit::DENIED,
        "The conversation contains a secret, a credential, regulated or unclassified text. Such text stays on this machine: use a local model, or `auto`.",
    ),
    code(
        "model.cut",
        exit::TEMPORARY,
        "The answer was truncated, and a retry didn't help. The partial answer is charged and in the ledger.",
    ),
    code(
        "model.down",
        exit::TEMPORARY,
        "The provider failed several times in a row, so Regent pauses calls to it. Then one call tests whether it is back.",
    ),
    code(
        "model.garbled",
        exit::TEMPORARY,
        "The provider's answer can't be parsed: it doesn't follow the protocol, or is empty.",
    ),
    code(
        "model.late",
        exit::TEMPORARY,
        "The answer took longer than `patience.total_ms_max` of `[models.NAME]` allows. The partial answer is charged.",
    ),
    code(
        "model.none_fits",
        exit::DENIED,
        "`auto` found no usable model. The message names each with the reason (text too confidential to leave, provider down, too expensive).",
    ),
    code(
        "model.not_an_api",
        exit::ERROR,
        "The server answered with a web page. `url` of `[models.NAME]` has the wrong path, or a proxy or login page is in between.",
    ),
    code(
        "model.rate_limited",
        exit::TEMPORARY,
        "The provider limits the rate of calls (429), even after the requested wait.",
    ),
    code("model.refused", exit::ERROR, "The provider refused; the message has its own words."),
    code("model.stopped", exit::INTERRUPTED, "The call was stopped before the answer was complete."),
    code("model.too_large", exit::ERROR, "The answer is larger than Regent or the rule's `limits` allow."),
    code(
        "model.too_long",
        exit::ERROR,
        "The conversation is too long for the model. A retry doesn't help: give the task a smaller goal, or use a model with a larger context.",
    ),
    code(
        "model.unauthorised",
        exit::DENIED,
        "The provider doesn't accept the key. `key` of `[models.NAME]` names the secret.",
    ),
    code(
        "model.unfit",
        exit::ERROR,
        "The prompt can't be sent to this model; a scripted one has no turn for it.",
    ),
    code(
        "model.unknown",
        exit::NOT_FOUND,
        "No such model is set up. `regent model list` shows the models; their names are `provider/model`.",
    ),
    code(
        "model.unreachable",
        exit::TEMPORARY,
        "The provider can't be reached: no such host, no connection, no trusted certificate, or no answer in time.",
    ),
    code(
        "model.unsupported_part",
        exit::DENIED,
        "The conversation has an image or a file that this provider's protocol has no place for. Use a model of another kind, or `auto`.",
    ),
];
