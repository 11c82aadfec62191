"""The vendors' rules for schemas that an answer or a call must fit exactly: types don't know them, and a server answers 400.

OpenAI: developers' guide "Structured Outputs", supported schemas. Anthropic: what its package makes of a schema before it sends it.
"""
import json

from anthropic import transform_schema

NOT_OPENAIS = ("allOf", "oneOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "patternProperties")


def findings(wire, body):
    return [f"strict schema: {line}" for schema in strict(wire, body) for line in RULES[wire](schema)]


def strict(wire, body):
    """The schemas of a request that must be followed exactly."""
    tools = body.get("tools") or []
    if wire == "chat":
        found = [tool["function"].get("parameters") for tool in tools if tool.get("function", {}).get("strict")]
        answer = (body.get("response_format") or {}).get("json_schema") or {}
        return found + ([answer.get("schema")] if answer.get("strict") else [])
    if wire == "responses":
        found = [tool.get("parameters") for tool in tools if tool.get("strict")]
        answer = (body.get("text") or {}).get("format") or {}
        return found + ([answer.get("schema")] if answer.get("strict") else [])
    if wire == "anthropic":
        found = [tool.get("input_schema") for tool in tools if tool.get("strict")]
        answer = (body.get("output_config") or {}).get("format") or {}
        return found + ([answer["schema"]] if "schema" in answer else [])
    return []


def of_openai(schema, where="$"):
    if not isinstance(schema, dict):
        return
    yield from (f"{where}: `{key}` is not supported" for key in NOT_OPENAIS if key in schema)
    kinds = schema.get("type")
    if kinds == "object" or (isinstance(kinds, list) and "object" in kinds):
        if schema.get("additionalProperties") is not False:
            yield f"{where}: `additionalProperties` must be false"
        missing = sorted(set(schema.get("properties", {})) - set(schema.get("required", [])))
        if missing:
            yield f"{where}: `required` must name {', '.join(missing)} too"
    for key, inner in (schema.get("properties") or {}).items():
        yield from of_openai(inner, f"{where}.{key}")
    yield from of_openai(schema.get("items"), f"{where}[]")
    for at, inner in enumerate(schema.get("anyOf") or []):
        yield from of_openai(inner, f"{where}.anyOf.{at}")
    for key, inner in (schema.get("$defs") or {}).items():
        yield from of_openai(inner, f"{where}.$defs.{key}")


def of_anthropic(schema):
    sent = transform_schema(schema)
    if sent != schema:
        yield f"anthropic's package would send {json.dumps(sent)} for {json.dumps(schema)}"


RULES = {"chat": of_openai, "responses": of_openai, "anthropic": of_anthropic}
