"""Takes every request that Regent sends, validates it by the vendor's own types, and answers it or passes it on.

    http://127.0.0.1:PORT/RUN/WIRE/TARGET/REST

RUN names the run in the log, WIRE the protocol (chat, compatible, responses, anthropic, gemini, ollama) and TARGET who answers:
`vendor` (this process, as the vendor would), `misbehaving` (this process, in the way that RUN names, as CASE@KIND) or a server named with --target.
`backend` answers as `vendor` and notes nothing: it stands behind a proxy, whose requests are not Regent's. The log has one JSON line a request: what the types say
against it and the status of the answer; it is written before the answer goes on, so that it is whole when Regent ends.

It is also the proxy that the other servers are told to use for everything beyond loopback. It passes nothing on: what reaches it so
is logged as an attempt to reach the network.
"""
import argparse
import collections
import http.client
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import misbehaving
import schemas
import vendor
from official import Official

HOP = {"connection", "transfer-encoding", "content-length", "keep-alive", "host", "authorization", "x-api-key"}
CHUNK = 65_536


class Log:
    def __init__(self, path):
        self.file = open(path, "w", encoding="utf-8")
        self.lock = threading.Lock()
        self.counts = collections.Counter()

    def line(self, **fields):
        with self.lock:
            self.counts[fields["run"]] += 1
            self.file.write(json.dumps(fields, ensure_ascii=False) + "\n")
            self.file.flush()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60
    official: Official
    log: Log
    targets: dict

    def log_message(self, *_words):
        pass

    def do_CONNECT(self):
        self.outside()

    def do_GET(self):
        self.outside()

    def outside(self):
        self.log.line(run="outside", wire=self.command, status=403, findings=[self.path])
        self.send_error(403)
        self.close_connection = True

    def do_POST(self):
        if self.path.startswith("http"):
            return self.outside()
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        run, wire, target, rest = self.path.lstrip("/").split("/", 3)
        try:
            body = json.loads(raw)
        except ValueError as error:
            self.log.line(run=run, wire=wire, status=0, findings=[f"the body is not JSON: {error}"])
            self.send_error(400)
            return None
        if target == "backend":
            kind, chunks = vendor.answer(wire, body)
            return self.stream(200, [("content-type", kind)], chunks)
        found = self.official.findings(wire, body)
        found += self.head(wire) + schemas.findings(wire, body)
        if target == "vendor":
            # The proof that the types see into this request: whatever is damaged in it is found.
            found += [] if found else self.official.blind_spots(wire, body)
            self.log.line(run=run, wire=wire, status=200, findings=found, body=body if found else None)
            kind, chunks = vendor.answer(wire, body)
            return self.stream(200, [("content-type", kind)], chunks)
        if target == "misbehaving":
            self.log.line(run=run, wire=wire, status=200, findings=found, body=body if found else None)
            self.wire = wire
            return misbehaving.CASES[run.split("@")[0]](self, body, self.log.counts[run])
        return self.forward(run, wire, found, target, rest, raw, body)

    def head(self, wire):
        """What the wire demands of the head of a request."""
        lines = []
        if self.headers.get_content_type() != "application/json":
            lines.append(f"content-type: {self.headers.get_content_type()}")
        if wire == "anthropic" and not self.headers.get("anthropic-version"):
            lines.append("anthropic-version: required")
        return lines

    def forward(self, run, wire, found, target, rest, raw, body):
        to = self.targets[target]
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP}
        headers["Authorization"] = f"Bearer {to['key']}"
        onward = http.client.HTTPConnection(to["host"], to["port"], timeout=60)
        try:
            onward.request("POST", f"/{rest}", raw, headers)
            answer = onward.getresponse()
            refusal = answer.read().decode(errors="replace") if answer.status >= 400 else None
            kept = body if found or refusal else None
            self.log.line(run=run, wire=wire, status=answer.status, findings=found, refusal=refusal, body=kept)
            kept = [(name, value) for name, value in answer.getheaders() if name.lower() not in HOP]
            chunks = iter(lambda: answer.read1(CHUNK), b"") if refusal is None else [refusal.encode()]
            return self.stream(answer.status, kept, chunks)
        except OSError as error:
            self.log.line(run=run, wire=wire, status=0, findings=[*found, f"{target}: {error}"])
            self.send_error(502)
        finally:
            onward.close()
        return None

    def stream(self, status, headers, chunks):
        self.begin(status, headers)
        for chunk in chunks:
            self.chunk(chunk)
        self.end()

    def begin(self, status, headers):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self.wfile.flush()

    def chunk(self, chunk):
        if chunk:
            self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
            self.wfile.flush()

    def end(self):
        self.wfile.write(b"0\r\n\r\n")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--port", type=int, required=True)
    arguments.add_argument("--log", required=True)
    arguments.add_argument("--target", action="append", default=[], help="NAME=URL, its key in the environment as KEY_NAME")
    chosen = arguments.parse_args()
    Handler.official, Handler.log, Handler.targets = Official(), Log(chosen.log), targets(chosen.target)
    server = ThreadingHTTPServer(("127.0.0.1", chosen.port), Handler)
    server.daemon_threads = True
    server.serve_forever()


def targets(words):
    named = {}
    for word in words:
        name, url = word.split("=", 1)
        parts = urlsplit(url)
        named[name] = {"host": parts.hostname, "port": parts.port, "key": os.environ.get(f"KEY_{name.upper()}", "none")}
    return named


if __name__ == "__main__":
    main()
