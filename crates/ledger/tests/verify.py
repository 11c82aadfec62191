#!/usr/bin/env python3
"""Verifies Regent ledgers, formats 1 and 2. Written from FORMAT.md alone; needs nothing but Python's standard library.

usage: verify.py --key BASE64 FOLDER...      prints one line a folder: ok, unproven, broken: WHY, none
"""
import base64, hashlib, json, os, re, sys

# Ed25519 (RFC 8032), verification only.
P, L = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493
D, I = -121665 * pow(121666, 2**255 - 21, 2**255 - 19) % (2**255 - 19), pow(2, (2**255 - 20) // 4, 2**255 - 19)


def point(data):
    y = int.from_bytes(data, "little") & (2**255 - 1)
    xx = (y * y - 1) * pow(D * y * y + 1, P - 2, P) % P
    x = pow(xx, (P + 3) // 8, P)
    x = x if (x * x - xx) % P == 0 else x * I % P
    if y >= P or (x * x - xx) % P or len(data) != 32:
        raise ValueError("not a point")
    x = P - x if x & 1 != data[31] >> 7 else x
    return (x, y, 1, x * y % P)


def add(p, q):
    a, b = (p[1] - p[0]) * (q[1] - q[0]) % P, (p[1] + p[0]) * (q[1] + q[0]) % P
    c, d = 2 * p[3] * q[3] * D % P, 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return (e * f % P, g * h % P, f * g % P, e * h % P)


def multiply(n, p):
    total = (0, 1, 1, 0)
    while n:
        total, p, n = (add(total, p) if n & 1 else total), add(p, p), n >> 1
    return total


BASE, CACHE = point((4 * pow(5, P - 2, P) % P).to_bytes(32, "little")), {}


def signed(key, text, signature):
    if (key, text, signature) not in CACHE:
        k = int.from_bytes(hashlib.sha512(signature[:32] + key + text).digest(), "little") % L
        s = int.from_bytes(signature[32:], "little")
        try:
            left, right = multiply(s, BASE), add(point(signature[:32]), multiply(k, point(key)))
            good = s < L and all((left[n] * right[2] - right[n] * left[2]) % P == 0 for n in (0, 1))
        except ValueError:
            good = False
        CACHE[key, text, signature] = good
    return CACHE[key, text, signature]


class Broken(Exception):
    pass


def need(holds, why):
    if not holds:
        raise Broken(why)


# Canonical JSON (RFC 8785).
def number(value):
    if isinstance(value, int):
        need(abs(value) < 2**53, "integer out of range")
        return str(value)
    digits, exponent = re.sub(r"^-", "", "%r" % value), 0
    if "e" in digits:
        digits, exponent = digits.split("e")[0], int(digits.split("e")[1])
    whole, _, part = digits.partition(".")
    part = "" if part == "0" else part
    every, point_at = (whole + part).lstrip("0"), len(whole) + exponent - (len(whole + part) - len((whole + part).lstrip("0")))
    every, sign = every.rstrip("0") or "0", "-" if value < 0 else ""
    if len(every) <= point_at <= 21:
        return sign + every + "0" * (point_at - len(every))
    if 0 < point_at <= 21:
        return sign + every[:point_at] + "." + every[point_at:]
    if -6 < point_at <= 0:
        return sign + "0." + "0" * -point_at + every
    return sign + every[0] + ("." + every[1:] if every[1:] else "") + "e%+d" % (point_at - 1)


SHORT = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}


def canonical(value):
    if isinstance(value, str):
        return '"' + "".join(SHORT.get(ord(c)) or ("\\u%04x" % ord(c) if c < " " else c) for c in value) + '"'
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: key.encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(canonical(key) + ":" + canonical(value[key]) for key in keys) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    return {True: "true", False: "false", None: "null"}[value] if value in (True, False, None) and not isinstance(value, (int, float)) or isinstance(value, bool) else number(value)


INT = rb"(0|-?[1-9][0-9]*)"
FRAME = re.compile(rb'\{"at":' + INT + rb',"body":(\{.*\}),"kind":"([a-z]+)"(?:,"pack":' + INT + rb')?,"prev":"([0-9a-f]{64})","seq":' + INT + rb',"v":([12])\}')
KINDS = "intent outcome answer agent policy kernel lane recovery key erase pack resume checkpoint".split()


def read_line(line):
    """The entry in a line, or None if it isn't one."""
    match = FRAME.fullmatch(line)
    if not match or match[3].decode() not in KINDS or (match[4] and match[7] == b"1"):
        return None
    try:
        at, seq, pack = int(match[1]), int(match[6]), int(match[4]) if match[4] else None
        body = json.loads(match[2].decode("utf-8"))
        if canonical(body).encode("utf-8") != match[2] or max(abs(at), abs(seq), pack or 0) >= 2**53 or min(seq, pack or 0) < 0:
            return None
    except (ValueError, Broken, RecursionError):
        return None
    return {"at": at, "body": body, "raw": match[2], "kind": match[3].decode(), "pack": pack, "prev": bytes.fromhex(match[5].decode()), "seq": seq, "v": int(match[7]), "hash": hashlib.sha256(b"\0" + line).digest()}


class Short(Exception):
    pass


def is_start_of_line(text):
    """Whether text is a proper beginning of some line: what a torn write leaves."""
    at = [0]

    def look():
        if at[0] >= len(text):
            raise Short
        return text[at[0] : at[0] + 1]

    def literal(word):
        for byte in word:
            need(look() == bytes([byte]), "literal")
            at[0] += 1

    def run(pattern):
        begin = at[0]
        while re.fullmatch(pattern, look()):
            at[0] += 1
        return text[begin : at[0]]

    def integer():
        token = (b"-" if look() == b"-" else b"")
        at[0] += len(token)
        begin = at[0]
        while re.fullmatch(rb"[0-9]", look()):
            at[0] += 1
            need(re.fullmatch(rb"0|[1-9][0-9]{0,15}", text[begin : at[0]]) and int(text[begin : at[0]]) < 2**53, "integer")
        need(at[0] > begin and token + text[begin : at[0]] != b"-0", "integer")

    def string():
        literal(b'"')
        begin = at[0]
        while look() != b'"':
            byte = look()
            need(byte >= b" ", "control")
            at[0] += 1
            if byte == b"\\":
                escape = look()
                need(escape in b'"\\btnfru', "escape")
                at[0] += 1
                if escape == b"u":
                    literal(b"00")
                    high = look()
                    need(high in b"01", "escape")
                    at[0] += 1
                    need(look() in b"0123456789abcdef" and not (high == b"0" and look() in b"89acd"), "escape")
                    at[0] += 1
        at[0] += 1
        return json.loads(text[begin - 1 : at[0]].decode("utf-8"))

    def value(depth):
        need(depth <= 128, "depth")
        byte = look()
        if byte == b'"':
            string()
        elif byte in b"{[":
            at[0] += 1
            close, before = (b"}" if byte == b"{" else b"]"), None
            while look() != close or before is not None:
                if close == b"}":
                    key = string().encode("utf-16-be", "surrogatepass")
                    need(before is None or before is True or before < key, "order")
                    literal(b":")
                value(depth + 1)
                before = key if close == b"}" else True
                if look() == close:
                    break
                literal(b",")
            at[0] += 1
        elif byte in b"tfn":
            literal({b"t": b"true", b"f": b"false", b"n": b"null"}[byte])
        else:
            token = run(rb"[0-9+\-.eE]")
            try:
                parsed = json.loads(token.decode())
            except ValueError:
                raise Broken("number")
            need(token and canonical(parsed).encode() == token, "number")

    try:
        literal(b'{"at":'), integer(), literal(b',"body":')
        need(look() == b"{", "body")
        value(1)
        literal(b',"kind":"')
        need(run(rb"[a-z]").decode() in KINDS, "kind")
        literal(b'","p')
        if look() == b"a":
            literal(b'ack":'), integer(), literal(b',"p')
        literal(b'rev":"')
        for _ in range(64):
            need(look() in b"0123456789abcdef", "prev")
            at[0] += 1
        literal(b'","seq":'), integer(), literal(b',"v":'), integer(), literal(b"}\n")
    except Short:
        return True
    except (Broken, ValueError):
        return False
    return False


# Merkle tree (RFC 6962).
def node(left, right):
    return hashlib.sha256(b"\1" + left + right).digest()


class Tip:
    def __init__(self, prev):
        self.size, self.nodes, self.prev, self.at = 0, [], prev, 0

    def copy(self):
        tip = Tip(self.prev)
        tip.size, tip.nodes, tip.at = self.size, list(self.nodes), self.at
        return tip

    def push(self, leaf, at):
        self.prev, self.at, size = leaf, at, self.size
        while size & 1:
            leaf, size = node(self.nodes.pop(), leaf), size >> 1
        self.nodes.append(leaf)
        self.size += 1

    def root(self):
        if not self.nodes:
            return hashlib.sha256(b"").digest()
        root = self.nodes[-1]
        for left in reversed(self.nodes[:-1]):
            root = node(left, root)
        return root


def key_id(name, key):
    return hashlib.sha256(name.encode() + b"\n\1" + key).digest()[:4]


def b64(text):
    data = base64.b64decode(text, validate=True)
    need(base64.b64encode(data).decode() == text, "base64")
    return data


def read_key(text):
    key = b64(text)
    need(len(key) == 32, "key")
    point(key)
    return key


def read_vkey(text, name):
    parts = text.split("+", 2)
    key = b64(parts[2])
    need(len(key) == 33 and key[0] == 1 and parts[0] == name and parts[1] == key_id(name, key[1:]).hex(), "verifier key")
    point(key[1:])
    return key[1:]


def note_signer(note, name, keys):
    """The text of a signed note and which of the keys signed it."""
    need("\n\n" in note and note.endswith("\n") and not re.search("[\0-\x09\x0b-\x1f]", note), "note")
    text, lines = note.rsplit("\n\n", 1)
    signer = None
    for line in lines[:-1].split("\n"):
        match = re.fullmatch(r"— ([^\s+]+) (\S+)", line)
        need(match, "signature line")
        data = b64(match[2])
        need(len(data) > 4, "signature line")
        for key in keys:
            if match[1] == name and key_id(name, key) == data[:4]:
                need(len(data) == 68 and signed(key, (text + "\n").encode(), data[4:]), "signature")
                signer = key
                break
    need(signer, "no signature by a trusted key")
    return text + "\n", signer


class Lane:
    def __init__(self, folder, ledger, name):
        self.folder, self.name, self.origin = os.path.join(folder, "lanes", name), name, "regent/%s/%s" % (ledger, name)
        files = os.listdir(self.folder)
        self.firsts = sorted(int(file[:-6]) for file in files if re.fullmatch(r"[0-9]{12,}\.jsonl", file) and "%012d.jsonl" % int(file[:-6]) == file)
        self.known, self.settled, self.recoveries, self.erasures, self.packs, self.end = [], None, [], [], [], "clean"

    def path(self, first, end):
        return os.path.join(self.folder, "%012d.%s" % (first, end))

    def head(self):
        """Recovery entries in the lane's first batch."""
        found = []
        for line in self.read(0).split(b"\n")[:-1] if 0 in self.firsts else []:
            entry = read_line(line)
            if not entry or entry["kind"] not in ("lane", "recovery", "checkpoint"):
                return []
            if entry["kind"] == "checkpoint":
                return found
            if entry["kind"] == "recovery":
                found.append(entry["body"])
        return []

    def read(self, first):
        with open(self.path(first, "jsonl"), "rb") as file:
            return file.read()

    def verify(self, ring):
        tip, key, coming = Tip(hashlib.sha256(("regent ledger lane\n%s\n" % self.origin).encode()).digest()), None, None
        whole = tip
        for number_, first in enumerate(self.firsts):
            last = number_ == len(self.firsts) - 1
            need(first == tip.size, "a segment is missing")
            data, offset, stop, pack, pack_found, pending = self.read(first), 0, None, 0, None, False
            proven, proven_bytes, whole, events, final, recoveries = tip, 0, tip.copy(), [], None, []
            try:
                data.decode("utf-8")
                valid = len(data)
            except UnicodeDecodeError as error:
                valid = error.start
            limit = self.settled["proven"] if self.settled else None
            while offset < len(data) and whole.size != limit:
                end = data.find(b"\n", offset, valid)
                entry = read_line(data[offset:end]) if end >= 0 else None
                if not entry:
                    stop = "not an entry"
                    break
                need(entry["seq"] == whole.size and entry["prev"] == whole.prev, "sequence or link")
                body, kind = entry["body"], entry["kind"]
                need((kind == "lane") == (entry["seq"] == 0), "misplaced")
                if kind == "checkpoint":
                    need(entry["seq"] > 0 and entry["at"] == whole.at, "checkpoint")
                    frontier = [n.hex() for n in whole.nodes] if entry["v"] == 1 else base64.b64encode(b"".join(whole.nodes)).decode()
                    text = "%s\n%d\n%s\n" % (self.origin, whole.size, base64.b64encode(whole.root()).decode())
                    spelled = canonical({"frontier": frontier, "note": "%s\n— %s " % (text, self.origin)})[:-2].encode()
                    rest = entry["raw"][len(spelled) :]
                    need(entry["raw"].startswith(spelled) and len(rest) == 96 and rest.endswith(b'\\n"}'), "checkpoint")
                    if pending:
                        events.append(("signed", body["note"]))
                    final, pending = (None if pending else body["note"]), False
                elif kind == "lane":
                    need(set(body) - {"replaces"} == {"key", "lane", "origin"} and body["lane"] == self.name and body["origin"] == self.origin, "lane")
                    key = read_vkey(body["key"], self.origin)
                    need(key in ring, "untrusted key")
                elif kind == "recovery":
                    need(set(body) - {"refused"} == {"entries", "lane", "proven", "root", "tail_bytes", "tail_sha256", "torn_bytes"}, "recovery")
                    recoveries.append(body)
                elif kind == "key":
                    need(set(body) == {"key"} and not pending, "key")
                    events.append(("key", read_vkey(body["key"], self.origin)))
                    pending = True
                elif kind == "erase":
                    need(set(body) - {"lane", "segment", "sha256"} == {"reason"}, "erase")
                    self.erasures.append(body)
                elif kind == "pack":
                    need(entry["v"] == 1 and set(body) == {"bytes"} and body["bytes"] > pack, "pack")
                    pack = body["bytes"]
                elif kind == "resume":
                    need(set(body) - {"pack_bytes"} == {"entries", "proven"} and body["proven"] + body["entries"] == entry["seq"], "resume")
                    need(body["proven"] >= proven.size and (body["entries"] > 0 or "pack_bytes" in body), "resume")
                    need(body.get("pack_bytes", pack + 1) > pack, "resume")
                    pack_found = body.get("pack_bytes", pack_found)
                if entry["pack"] is not None:
                    need(entry["pack"] > pack and pack_found is None, "pack")
                    pack = entry["pack"]
                whole.push(entry["hash"], entry["at"])
                offset = end + 1
                for size, root in self.known:
                    need(size != whole.size or root == whole.root(), "another root is known")
                if kind == "checkpoint":
                    proven, proven_bytes = whole.copy(), offset
            if whole.size == limit:
                proven, proven_bytes = whole.copy(), offset
            tail = data[proven_bytes:]
            need(not tail or (last and (self.settled or explained(data, offset, stop))), "the segment ends without a checkpoint: %s" % stop)
            # The last checkpoint of the segment and each one that hands over to a new key.
            for what, value in events + ([("signed", final)] if final else []):
                if what == "key":
                    coming = value
                else:
                    note_signer(value, self.origin, [key])
                    key, coming = coming or key, None
            if last and self.settled:
                s = self.settled
                need(proven.size == s["proven"] and proven.root().hex() == s["root"] and len(tail) == s["tail_bytes"] and hashlib.sha256(tail).hexdigest() == s["tail_sha256"], "settled tail")
                self.end = "settled"
            elif tail:
                self.end = "unproven"
            self.recoveries += recoveries if proven.size else []
            self.packs.append((first, pack, pack_found, last))
            tip = proven
        need(all(size <= tip.size for size, _ in self.known), "shorter than known")


def explained(data, offset, stop):
    """Whether a crash explains what follows the last whole entry."""
    if stop is None:
        return True
    rest = data[offset:]
    zero = rest.find(b"\0")
    start = rest if zero < 0 else rest[:zero]
    try:
        start.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.reason != "unexpected end of data":
            return False
        start = start[: error.start]
    if not is_start_of_line(start):
        return False
    if zero < 0:
        return True
    zero += offset
    lost = data[zero : (zero // 512 + 1) * 512]
    return (zero % 512 == 0 or zero == offset) and not lost.strip(b"\0")


def check_packs(lanes):
    """Compares payloads with their digests; true if a pack holds more than entries say."""
    erased = {e["sha256"] for lane in lanes for e in lane.erasures if "sha256" in e}
    dropped = {(e["lane"], e["segment"]) for lane in lanes for e in lane.erasures if "lane" in e and "segment" in e}
    strays = False
    for lane in lanes:
        for first, recorded, noted, last in lane.packs:
            if (lane.name, first) in dropped:
                continue
            path = lane.path(first, "pack")
            data = open(path, "rb").read() if os.path.exists(path) else b""
            need(len(data) >= recorded, "a pack is shorter than recorded")
            if len(data) > (recorded if noted is None else noted) and lane.end != "settled":
                need(last, "a pack is longer than recorded")
                strays = True
            at, data = 0, data[:recorded]
            while at < len(data):
                old, flags = data[at : at + 4] == b"RGPK", data[at + 4 : at + 5]
                need(data[at : at + 4] in (b"RGPK", b"RGP2") and flags in (b"\0", b"\1", b"\2", b"\3") and data[at + 5 : at + 8] == b"\0\0\0", "payload")
                sealed, gone = flags[0] & 1, flags[0] & 2
                plain, stored = int.from_bytes(data[at + 8 : at + 16], "little"), None
                stored = plain + 16 * sealed
                body_at = at + (100 if old else 92 if sealed else 48)
                digest_at = at + (24 if old else 16)
                digest, seal = data[digest_at : digest_at + 32], data[digest_at + 32 : body_at]
                need(not old or int.from_bytes(data[at + 16 : at + 24], "little") == stored, "payload")
                need(plain <= 256 << 20 and body_at + stored <= len(data) and (not seal.strip(b"\0") or (sealed and not gone)), "payload")
                content, at = data[body_at : body_at + stored], body_at + stored
                if digest.hex() in erased:
                    continue
                need(not gone, "erased without an entry")
                whole = hashlib.sha256(digest + seal[:12] + content).digest() == seal[12:] if sealed else hashlib.sha256(content).digest() == digest
                need(whole, "payload")
    return strays


def verify(folder, trusted):
    names = sorted(os.listdir(os.path.join(folder, "lanes"))) if os.path.isdir(os.path.join(folder, "lanes")) else []
    names = [name for name in names if re.fullmatch("[0-9]{4}", name)]
    index = os.path.join(folder, "index")
    if not os.path.exists(index) and not names:
        return "none"
    need(os.path.exists(index), "the index is missing")
    note = open(index, "rb").read().decode("utf-8")
    ledger = re.match(r"regent/([0-9a-f]{16})/index\n", note)
    need(ledger, "index")
    text, signer = note_signer(note, ledger[0][:-1], [trusted])
    lines = text[:-1].split("\n")
    need(len(lines) > 1 and re.fullmatch("0|[1-9][0-9]*", lines[1]), "index")
    lanes, ring = {name: Lane(folder, ledger[1], name) for name in names}, [signer]
    for line in lines[2:]:
        words = line.split(" ")
        need((words[0], len(words)) in (("retired", 2), ("lane", 5)), "index")
        ring.append(read_key(words[1 if words[0] == "retired" else 2]))
        if words[0] == "lane":
            need(words[1] in lanes, "a lane is missing")
            lanes[words[1]].known.append((int(words[3]), b64(words[4])))
    lanes = list(lanes.values())
    settled = {}
    for lane in lanes:
        settled.update({body["lane"]: body for body in lane.head()})
    for lane in lanes:
        lane.settled = settled.get(lane.name)
    for lane in lanes:
        lane.verify(ring)
    for lane in lanes:
        need(all(settled.get(body["lane"]) == body and body["lane"] in [one.name for one in lanes] for body in lane.recoveries), "two truths about one tail")
    strays = check_packs(lanes)
    return "unproven" if strays or any(lane.end == "unproven" for lane in lanes) else "ok"


def main(arguments):
    need(len(arguments) > 2 and arguments[0] == "--key", __doc__)
    trusted = read_key(arguments[1])
    for folder in arguments[2:]:
        try:
            print(verify(folder, trusted), flush=True)
        except (Broken, ValueError, KeyError, TypeError, IndexError, OSError, AttributeError) as error:
            print("broken: %s" % str(error).replace("\n", " "), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
