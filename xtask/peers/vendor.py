"""Answers as the vendors do: streamed, with thoughts that must come back, parallel calls, a call that fails, then an end.

The state is the conversation itself: which paths its calls have named.
"""
import json
import re

WRITTEN = {"path": "written ü.txt", "content": "ü 漢字 🙂 \"quoted\" \\ back\n"}
STEPS = (
    (WRITTEN["path"], [("fs_write", WRITTEN), ("fs_read", {"path": "picture.png"}), ("fs_list", {"path": "."})]),
    ("missing.txt", [("fs_read", {"path": "missing.txt"})]),
)
SAID = "Done: ü 漢字 🙂"
THOUGHT = "First the file, then the picture."
PIECE = 7


def answer(wire, body):
    """The type of the content and its chunks, for a request on `wire`."""
    whole = json.dumps(body, ensure_ascii=False)
    step = next((number for number, (path, _) in enumerate(STEPS) if path not in whole), len(STEPS))
    calls = STEPS[step][1] if step < len(STEPS) else []
    kind = "application/x-ndjson" if wire == "ollama" else "text/event-stream"
    schema = demanded(wire, body)
    if schema:
        return kind, ANSWERS[wire](body, step, [], json.dumps(example(schema)))
    calls = [(f"call_{step}_{at}", *call) for at, call in enumerate(calls)]
    return kind, ANSWERS[wire](body, step, calls, "I look." if calls else SAID)


SCHEMAS = {
    "chat": ("response_format", "json_schema", "schema"),
    "compatible": ("response_format", "json_schema", "schema"),
    "responses": ("text", "format", "schema"),
    "anthropic": ("output_config", "format", "schema"),
    "gemini": ("generationConfig", "responseJsonSchema"),
    "ollama": ("format",),
}


def demanded(wire, body):
    """The JSON Schema that the answer must fit, if the request has one."""
    value = body
    for key in SCHEMAS[wire]:
        value = (value or {}).get(key)
    return value


def example(schema):
    """The least that fits a schema."""
    kinds = schema.get("type")
    if "anyOf" in schema:
        kinds = [choice.get("type") for choice in schema["anyOf"]]
    if isinstance(kinds, list):
        return None if "null" in kinds else example({**schema, "type": kinds[0]})
    if kinds == "object":
        return {key: example(schema["properties"][key]) for key in schema.get("required", [])}
    if kinds == "array":
        # A strict schema says it in words: "minItems 1".
        said = re.search(r"minItems\W+(\d+)", schema.get("description", ""))
        return [example(schema["items"])] * schema.get("minItems", int(said[1]) if said else 0)
    return {"string": schema.get("enum", ["write"])[0], "boolean": True, "integer": 1, "number": 1}[kinds]


def pieces(text):
    return [text[at : at + PIECE] for at in range(0, len(text), PIECE)]


def data(value):
    return b"data: " + (value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False).encode()) + b"\n\n"


def named(value):
    """An event with its name, as OpenAI's responses and Anthropic send it."""
    return f"event: {value['type']}\n".encode() + data(value)


def chat(body, _step, calls, said):
    def chunk(delta, reason=None):
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return data({**HEAD, "model": body["model"], "choices": [choice], "usage": None})

    yield chunk({"role": "assistant", "content": "", "refusal": None})
    for piece in pieces(said):
        yield chunk({"content": piece})
    for at, (name, tool, args) in enumerate(calls):
        first = {"index": at, "id": name, "type": "function", "function": {"name": tool, "arguments": ""}}
        yield chunk({"tool_calls": [first]})
        for piece in pieces(json.dumps(args, ensure_ascii=False)):
            yield chunk({"tool_calls": [{"index": at, "function": {"arguments": piece}}]})
    yield chunk({}, "tool_calls" if calls else "stop")
    if (body.get("stream_options") or {}).get("include_usage"):
        usage = {"prompt_tokens": 321, "completion_tokens": 77, "total_tokens": 398}
        yield data({**HEAD, "model": body["model"], "choices": [], "usage": usage})
    yield data(b"[DONE]")


HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_795_000_000}


def compatible(body, step, calls, said):
    """As servers do that show what was thought."""
    head = {**HEAD, "model": body["model"]}
    for piece in pieces(THOUGHT):
        choice = {"index": 0, "delta": {"reasoning_content": piece}, "finish_reason": None}
        yield data({**head, "choices": [choice]})
    yield from chat(body, step, calls, said)


def responses(body, step, calls, said):
    numbers = iter(range(10_000))
    items = []

    def event(kind, **fields):
        return named({"type": kind, "sequence_number": next(numbers), **fields})

    def item(value, *between):
        at = len(items)
        items.append(value)
        yield event("response.output_item.added", output_index=at, item={**value, **UNFINISHED.get(value["type"], {})})
        for kind, fields in between:
            yield event(kind, output_index=at, item_id=value["id"], **fields)
        yield event("response.output_item.done", output_index=at, item=value)

    whole = {"id": "resp_1", "object": "response", "created_at": 1_795_000_000, "model": body["model"], "output": items}
    yield event("response.created", response={**whole, "status": "in_progress"})
    summary = [{"type": "summary_text", "text": THOUGHT}]
    thought = {"id": f"rs_{step}", "type": "reasoning", "summary": summary, "encrypted_content": f"opaque-{step}="}
    delta = [("response.reasoning_summary_text.delta", {"summary_index": 0, "delta": piece}) for piece in pieces(THOUGHT)]
    yield from item(thought, *delta)
    text = {"type": "output_text", "text": said, "annotations": []}
    message = {"id": f"msg_{step}", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
    delta = [("response.output_text.delta", {"content_index": 0, "delta": piece}) for piece in pieces(said)]
    yield from item(message, *delta)
    for name, tool, args in calls:
        text = json.dumps(args, ensure_ascii=False)
        call = {"id": f"fc_{name}", "type": "function_call", "call_id": name, "name": tool, "arguments": text}
        delta = [("response.function_call_arguments.delta", {"delta": piece}) for piece in pieces(text)]
        done = ("response.function_call_arguments.done", {"arguments": text})
        yield from item({**call, "status": "completed"}, *delta, done)
    usage = {
        "input_tokens": 321,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 77,
        "output_tokens_details": {"reasoning_tokens": 14},
        "total_tokens": 398,
    }
    yield event("response.completed", response={**whole, "status": "completed", "usage": usage})


UNFINISHED = {"function_call": {"arguments": "", "status": "in_progress"}, "message": {"content": []}}


def anthropic(body, step, calls, said):
    blocks = [
        (
            {"type": "thinking", "thinking": "", "signature": ""},
            [{"type": "thinking_delta", "thinking": piece} for piece in pieces(THOUGHT)]
            + [{"type": "signature_delta", "signature": f"signature-{step}="}],
        ),
        ({"type": "redacted_thinking", "data": f"redacted-{step}="}, []),
        (
            {"type": "text", "text": ""},
            [{"type": "text_delta", "text": piece} for piece in pieces(said)],
        ),
    ]
    for name, tool, args in calls:
        text = json.dumps(args, ensure_ascii=False)
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *pieces(text)]]
        blocks.append(({"type": "tool_use", "id": f"toolu_{name}", "name": tool, "input": {}}, deltas))
    usage = {"input_tokens": 321, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "content": []}
    yield named({"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}})
    yield named({"type": "ping"})
    for at, (block, deltas) in enumerate(blocks):
        yield named({"type": "content_block_start", "index": at, "content_block": block})
        for delta in deltas:
            yield named({"type": "content_block_delta", "index": at, "delta": delta})
        yield named({"type": "content_block_stop", "index": at})
    stop = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    yield named({"type": "message_delta", "delta": stop, "usage": {"output_tokens": 77}})
    yield named({"type": "message_stop"})


def gemini(_body, step, calls, said):
    def chunk(parts, **fields):
        candidate = {"index": 0, "content": {"role": "model", "parts": parts}, **fields}
        usage = {"promptTokenCount": 321, "candidatesTokenCount": 63, "thoughtsTokenCount": 14, "totalTokenCount": 398}
        return data({"candidates": [candidate], "usageMetadata": usage, "modelVersion": "m", "responseId": "r"})

    yield chunk([{"text": THOUGHT, "thought": True}])
    signature = {"thoughtSignature": "c2lnbmF0dXJl" + "QUJD" * step}
    if not calls:
        for piece in pieces(said):
            yield chunk([{"text": piece}])
        yield chunk([{"text": "", **signature}], finishReason="STOP")
        return
    for at, (_name, tool, args) in enumerate(calls):
        call = {"functionCall": {"name": tool, "args": args}}
        yield chunk([{**call, **signature} if at == 0 else call])
    yield chunk([{"text": ""}], finishReason="STOP")


def ollama(body, _step, calls, said):
    def line(message, **fields):
        whole = {"model": body["model"], "created_at": "2026-11-19T00:00:00Z", "message": message, "done": False}
        return json.dumps({**whole, **fields}, ensure_ascii=False).encode() + b"\n"

    for piece in pieces(THOUGHT):
        yield line({"role": "assistant", "content": "", "thinking": piece})
    for piece in pieces(said):
        yield line({"role": "assistant", "content": piece})
    for name, tool, args in calls:
        call = {"id": name, "function": {"index": 0, "name": tool, "arguments": args}}
        yield line({"role": "assistant", "content": "", "tool_calls": [call]})
    usage = {"prompt_eval_count": 321, "eval_count": 77, "total_duration": 1, "load_duration": 1}
    yield line({"role": "assistant", "content": ""}, done=True, done_reason="stop", **usage)


ANSWERS = {"chat": chat, "compatible": compatible, "responses": responses, "anthropic": anthropic, "gemini": gemini, "ollama": ollama}
