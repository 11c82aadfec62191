"""Validates requests against the types of the vendors' own packages. Unknown keys are findings at every depth.

The packages are lenient in three ways, which `strict` undoes: their dictionaries ignore unknown keys, pydantic checks an
`Iterable` only when somebody iterates it, and a number passes for a text.
"""
import importlib
import json

from pydantic import TypeAdapter
from pydantic_core import SchemaValidator, ValidationError

# Of one request; more say the same.
FINDINGS_MAX = 40


# Parts of ollama's types that describe a JSON Schema by a few of its keywords: other keywords are no finding.
OPEN = ("Tool.Function.Parameters", "Tool.Function.Parameters.Property")


def strict(schema):
    """The same core schema with unknown keys forbidden and lists checked at once."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if isinstance(schema, tuple):
        return tuple(strict(item) for item in schema)
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    kind = made.get("type")
    if kind == "generator":
        return {"type": "list", "items_schema": made.get("items_schema", {"type": "any"})}
    if kind == "union":
        # ollama's `Union[Mapping[str, Any], Message]` would take everything.
        typed = [choice for choice in made["choices"] if not is_any_mapping(choice)]
        if any(is_ollamas(choice) for choice in typed):
            made["choices"] = typed
    elif kind in ("typed-dict", "model-fields"):
        made["extra_behavior"] = "forbid"
    elif kind == "model":
        extra = "ignore" if schema["cls"].__qualname__ in OPEN else "forbid"
        made["config"] = {**(schema.get("config") or {}), "extra_fields_behavior": extra}
        if made["schema"]["type"] == "model-fields":
            made["schema"]["extra_behavior"] = extra
    return made


def is_any_mapping(schema):
    return isinstance(schema, dict) and schema["type"] == "dict" and schema["values_schema"]["type"] == "any"


def is_ollamas(schema):
    if not isinstance(schema, dict):
        return False
    return schema.get("schema_ref", "").startswith("ollama.") or getattr(schema.get("cls"), "__module__", "").startswith("ollama.")


def validator(module, name):
    """The strict validator of a type; `name` is looked up among the module's names, as in `list[Content]`."""
    kind = eval(name, dict(vars(importlib.import_module(module))))  # the tables of this file, no input
    adapter = TypeAdapter(kind)
    # Types that build themselves on first use have no schema yet.
    adapter.rebuild(force=True)
    # A prebuilt validator of a model would be the lenient one.
    return SchemaValidator(strict(adapter.core_schema), None, False)


def chosen(errors):
    """The errors of the union members that the value means: its `type` and `role` fit, and it fits deepest."""
    others = {
        error["loc"][:-1]
        for error in errors
        if error["type"] == "literal_error" and error["loc"] and error["loc"][-1] in ("type", "role")
    }
    meant = [error for error in errors if not any(error["loc"][: len(other)] == other for other in others)]
    # Of `Union[str, List[…]]`, a list doesn't mean the text.
    meant = [one for one in meant if one["type"] != "string_type" or not isinstance(one["input"], (list, dict))] or meant
    return sorted(meant or errors, key=lambda error: -len(error["loc"]))[:FINDINGS_MAX]


def path(loc):
    """The place in the request, and the types that it was taken for, without the lists of all union members."""
    return ".".join(str(part) for part in loc if "[" not in str(part))


def findings(check, value, prefix=""):
    """What `check` finds wrong, one line a finding: where, what, and the value."""
    try:
        check.validate_json(json.dumps(value), strict=True)
        return []
    except ValidationError as error:
        errors = chosen(error.errors(include_url=False, include_context=False))
    return [
        f"{prefix}{path(one['loc'])}: {one['msg']} (is {json.dumps(one['input'], default=str)[:120]})" for one in errors
    ]


# Where servers that speak OpenAI's protocol want the model's thoughts back. OpenAI's own types don't have them.
THOUGHTS = ("reasoning_content", "reasoning", "reasoning_details")


def as_openai(turn):
    if turn.get("role") != "assistant":
        return turn
    return {key: value for key, value in turn.items() if key not in THOUGHTS}


GEMINI = {
    "contents": "list[Content]",
    "systemInstruction": "Content",
    "tools": "list[Tool]",
    "toolConfig": "ToolConfig",
    "generationConfig": "GenerationConfig",
    "safetySettings": "list[SafetySetting]",
    "cachedContent": "str",
    "labels": "dict[str, str]",
    "serviceTier": "ServiceTier",
}


class Official:
    """The validators, by wire."""

    def __init__(self):
        self.whole = {
            "chat": validator("openai.types.chat.completion_create_params", "CompletionCreateParamsStreaming"),
            "responses": validator("openai.types.responses.response_create_params", "ResponseCreateParamsStreaming"),
            "anthropic": validator("anthropic.types.message_create_params", "MessageCreateParamsStreaming"),
            "ollama": validator("ollama._types", "ChatRequest"),
        }
        self.gemini = {key: validator("google.genai.types", kind) for key, kind in GEMINI.items()}

    def findings(self, wire, body):
        if wire == "gemini":
            return self.gemini_findings(body)
        if wire == "compatible":
            return findings(self.whole["chat"], {**body, "messages": [as_openai(turn) for turn in body["messages"]]})
        return findings(self.whole[wire], body)

    def gemini_findings(self, body):
        """The package has no type of the whole body, only of its fields."""
        lines = []
        if "contents" not in body:
            lines.append("contents: required")
        for key, value in body.items():
            if key in self.gemini:
                lines.extend(findings(self.gemini[key], value, f"{key}."))
            else:
                lines.append(f"{key}: there is no such field (is {json.dumps(value)[:120]})")
        return lines

    def blind_spots(self, wire, body):
        """Where an unknown key, or a number in place of a text, would not be found."""
        blind = []
        for where, damage in damages(body):
            repair = damage()
            if not self.findings(wire, body):
                blind.append(f"{where}: the types don't notice that this is damaged")
            repair()
        return blind


# What is free by design: JSON Schemas, arguments of calls, results of tools.
FREE = {"input_schema", "parameters", "parametersJsonSchema", "responseJsonSchema", "schema", "args", "response", "arguments"}
# Free where they are objects: arguments of Anthropic's calls, which share their name with OpenAI's items; and Ollama's schema.
FREE_OBJECTS = ("input", "$.format")
UNKNOWN = "no_vendor_knows_this"


def damages(value, where="$"):
    """Every way to damage one place: its path, and a function that does it and returns one that undoes it."""
    if isinstance(value, list):
        # The first ones and the last ones: a list of tools or messages has more of the same between them.
        for at, item in enumerate(value):
            if at < 3 or at >= len(value) - 2:
                yield from damages(item, f"{where}.{at}")
    elif isinstance(value, dict):
        yield where, lambda: (value.update({UNKNOWN: True}), lambda: value.pop(UNKNOWN))[1]
        for key, inner in list(value.items()):
            is_free = isinstance(inner, dict) and (key in FREE_OBJECTS or f"{where}.{key}" in FREE_OBJECTS)
            if key in FREE or key in THOUGHTS or is_free:
                continue
            if isinstance(inner, str):
                yield f"{where}.{key}", lambda key=key, inner=inner: (
                    value.update({key: 7}),
                    lambda: value.update({key: inner}),
                )[1]
            else:
                yield from damages(inner, f"{where}.{key}")
