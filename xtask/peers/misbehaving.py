"""A model server that misbehaves, one way a case. Where a case goes well in the end, it goes on as the vendor would.

What Regent must make of each case is a table in `xtask/src/peers/misbehaving.rs`.
"""
import email.utils
import json
import socket
import struct
import time

import vendor

SSE = [("content-type", "text/event-stream")]
JSON = [("content-type", "application/json")]


def fine(handler, body, _number):
    kind, chunks = vendor.answer(handler.wire, body)
    handler.stream(200, [("content-type", kind)], chunks)


def status(code, error, headers=()):
    """Always the same refusal."""
    text = json.dumps({"error": error}).encode()
    return lambda handler, _body, _number: handler.stream(code, [*JSON, *headers], [text])


def at_first(bad, times=1):
    """Misbehaves for the first requests of a run only."""
    return lambda handler, body, number: (bad if number <= times else fine)(handler, body, number)


def whole(kind, text):
    return lambda handler, _body, _number: handler.stream(200, [("content-type", kind)], [text])


def in_an_hour(handler, body, number):
    date = email.utils.formatdate(time.time() + 3600, usegmt=True)
    status(429, {"message": "later", "type": "rate_limit_error"}, [("retry-after", date)])(handler, body, number)


def reset(handler, body, _number):
    """A connection reset after half of an answer."""
    kind, chunks = vendor.answer(handler.wire, body)
    chunks = list(chunks)
    handler.begin(200, [("content-type", kind)])
    for chunk in chunks[: len(chunks) // 2]:
        handler.chunk(chunk)
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()
    handler.close_connection = True


def cut(handler, body, _number):
    """A stream that ends in the middle of an event, as if that were its end."""
    kind, chunks = vendor.answer(handler.wire, body)
    text = b"".join(chunks)
    handler.stream(200, [("content-type", kind)], [text[: len(text) // 2]])


def slow(handler, body, _number):
    """A few bytes at a time, within every limit."""
    kind, chunks = vendor.answer(handler.wire, body)
    text = b"".join(chunks)
    size = len(text) // 20
    handler.begin(200, [("content-type", kind)])
    for at in range(0, len(text), size):
        handler.chunk(text[at : at + size])
        time.sleep(0.03)
    handler.end()


def for_ever(pulse):
    def endless(handler, _body, _number):
        handler.begin(200, SSE)
        until = time.monotonic() + 30
        try:
            while time.monotonic() < until:
                if pulse:
                    handler.chunk(pulse)
                time.sleep(0.1)
        except OSError:
            handler.close_connection = True

    return endless


def silent(handler, _body, _number):
    time.sleep(8)
    handler.close_connection = True


def of_20_mb(handler, _body, _number):
    head = {**vendor.HEAD, "model": "m"}
    delta = {"index": 0, "delta": {"content": "x" * 65_536}, "finish_reason": None}
    event = vendor.data({**head, "choices": [delta]})
    try:
        handler.stream(200, SSE, [event] * (20_000_000 // len(event) + 1))
    except OSError:
        handler.close_connection = True


def call(index, name, tool, arguments):
    return {"index": index, "id": name, "type": "function", "function": {"name": tool, "arguments": arguments}}


def calls(*deltas, usage=None):
    """One answer with these calls, then as the vendor."""

    def answer(handler, _body, _number):
        head = {**vendor.HEAD, "model": "m"}
        choice = {"index": 0, "finish_reason": None}
        events = [vendor.data({**head, "choices": [{**choice, "delta": {"tool_calls": [delta]}}]}) for delta in deltas]
        events.append(vendor.data({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}))
        events += [vendor.data({**head, "choices": [], "usage": usage})] if usage else []
        handler.stream(200, SSE, [*events, vendor.data(b"[DONE]")])

    return at_first(answer)


def redirect(handler, _body, _number):
    place = f"/redirected/chat/vendor/{handler.path.split('/', 4)[4]}"
    handler.stream(302, [("location", place)], [])


def usage(**counts):
    return calls(call(0, "c1", "fs_list", '{"path": "."}'), usage=counts)


def whole_json(handler, body, _number):
    """An answer that isn't streamed although it was asked for: its last turn only, to keep it short."""
    message = {"role": "assistant", "content": vendor.SAID}
    answer = {"id": "c", "object": "chat.completion", "created": 1, "model": body["model"]}
    choices = [{"index": 0, "finish_reason": "stop", "message": message}]
    counts = {"prompt_tokens": 321, "completion_tokens": 77, "total_tokens": 398}
    handler.stream(200, JSON, [json.dumps({**answer, "choices": choices, "usage": counts}).encode()])


TOO_LONG = {
    "message": "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
    "type": "invalid_request_error",
    "param": "messages",
    "code": "context_length_exceeded",
}
DOWN = {"message": "The server had an error while processing your request.", "type": "server_error"}
WRITES = json.dumps({"path": "second.txt", "content": "two"})
CASES = {
    "fine": fine,
    "retry-after-hour": status(429, {"message": "later", "type": "rate_limit_error"}, [("retry-after", "3600")]),
    "retry-after-date": in_an_hour,
    "retry-after-now": at_first(status(529, {"message": "overloaded"}, [("retry-after", "0")])),
    "too-many": status(429, {"message": "later", "type": "rate_limit_error"}),
    "error-500": status(500, DOWN),
    "error-500-once": at_first(status(500, DOWN)),
    "error-503-twice": at_first(status(503, DOWN), 2),
    "web-page": whole("text/html", b"<html><body>Sign in to the network</body></html>"),
    "empty": whole("text/event-stream", b""),
    "cut": cut,
    "cut-once": at_first(cut),
    "reset": reset,
    "reset-once": at_first(reset),
    "error-event-once": at_first(whole("text/event-stream", vendor.data({"error": DOWN}))),
    "garbage-once": at_first(whole("text/event-stream", b"data: {\"choices\": [{\n\n")),
    "bad-arguments": calls(call(0, "c1", "fs_write", '{"path": "second.txt", "content": ')),
    "same-index": calls(
        call(0, "c1", "fs_write", WRITES), call(0, "c2", "fs_write", WRITES.replace("second", "third"))
    ),
    "no-id": calls({**call(0, "", "fs_write", WRITES), "id": None}),
    "unknown-tool": calls(call(0, "c1", "no_such_tool", "{}")),
    "not-streamed": whole_json,
    "slow": slow,
    "pings": for_ever(b": ping\n\n"),
    "stuck": for_ever(b""),
    "silent": silent,
    "absurd-usage": usage(prompt_tokens=10**18, completion_tokens=10**18, total_tokens=2 * 10**18),
    "negative-usage": usage(prompt_tokens=-5, completion_tokens=-7, total_tokens=-12),
    "redirect": redirect,
    "20-mb": of_20_mb,
    "too-long": status(400, TOO_LONG),
    "bad-request": status(400, {"message": "Invalid value: 'messages[0]'", "type": "invalid_request_error"}),
    "wrong-key": status(401, {"message": "Incorrect API key provided: none.", "code": "invalid_api_key"}),
    "forbidden": status(403, {"message": "Your organization must be verified", "code": "unsupported_country"}),
    "no-such-model": status(404, {"message": "The model `m` does not exist", "code": "model_not_found"}),
}
