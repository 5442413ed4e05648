"""Hostile HTTP: what the OpenAPI document has, asked wrongly, and bytes that are no HTTP at all."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any
from urllib.parse import quote, quote_from_bytes

from tests.fuzz import hostile
from tests.fuzz.judging import OPEN, Outcome

_PATHS = (
    "/",
    "//",
    "/../../etc/passwd",
    "/page/..%2f..%2fapp.py",
    "/page/%2e%2e/%2e%2e/app.py",
    "/v1/videos/..%2f..%2fhealth%2flive",
    "/v1/videos/%00",
    "/v1/videos/%ff%fe",
    "/v1/videos/%2e%2e/content",
    "/v1/models/../../api/events",
    "/api/requests/%E2%80%AE/events",
    "/api/artifacts/..%5c..%5cboot.ini/content",
    "/health/live?" + "a=" * 3_000,
    "/v1/videos?limit=1&limit=2",
    "/v1/videos?after[]=1",
    "/v1/videos;jsessionid=1",
    "/%",
    "/%zz",
    "/\u202e",
    "*",
    "http://127.0.0.1/health/live",
    "http://[::1",
)
_HEADS = (
    ("Content-Length", "-1"),
    ("Content-Length", "99999999999999999999"),
    ("Content-Length", "1, 2"),
    ("Transfer-Encoding", "chunked"),
    ("Transfer-Encoding", "gzip, chunked"),
    ("Transfer-Encoding", "identity"),
    ("Expect", "100-continue"),
    ("Upgrade", "websocket"),
    ("Upgrade", "h2c"),
    ("Connection", "Upgrade, HTTP2-Settings"),
    ("Host", ""),
    ("Host", "127.0.0.1:99999"),
    ("Host", "localhost, evil.example"),
    ("Origin", "null"),
    ("Range", "bytes=9999999999999999999-"),
    ("Range", "bytes=0-0,1-1,2-2"),
    ("Range", "bytes=-"),
    ("If-Range", '"'),
    ("If-None-Match", "*"),
    ("Last-Event-ID", "-1"),
    ("Last-Event-ID", "9" * 18),
    ("Idempotency-Key", "k" * 300),
    ("Accept", "*/*;q=nan"),
    ("Accept-Encoding", "gzip;q=1e9"),
    ("Cookie", "=;=;" * 500),
    ("Authorization", "Bearer " + "a" * 4_000),
    ("Authorization", "Basic !!!"),
    ("X-Forwarded-For", "127.0.0.1" * 100),
    ("traceparent", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"),
    ("traceparent", "zz"),
)
_TYPES = (
    "application/json",
    "application/json; charset=utf-16",
    "text/plain",
    "multipart/form-data",
    "multipart/form-data; boundary=",
    "multipart/form-data; boundary=b",
    "application/x-www-form-urlencoded",
    "application/grpc",
    "image/png",
    "\xff",
)
_LINES = (
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET /\r\n\r\n",
    b"GET  /  HTTP/1.1\r\n\r\n",
    b"G\0T / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\n Host: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n",
    b"GET / HTTP/1.1\nHost: localhost\n\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nA: \0\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 3_000 + b"\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + b"b" * 70_000 + b"\r\n\r\n",
    b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"POST /v1/videos HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"POST /v1/videos HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
    b"POST /v1/videos HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"ffffffffffffffffff\r\n",
    b"POST /v1/videos HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /health/live HTTP/1.1\r\n\r\n",
    b"POST /v1/videos HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n"
    b"Content-Length: 6\r\n\r\nabcde",
    b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50,
    b"\r\n" * 1_000,
    b"",
)


@dataclass(frozen=True, slots=True)
class Ask:
    """Bytes to send, and whether a refusal of them must name what is wrong."""

    name: str
    data: bytes
    named: bool


def ask_of(random: Random, document: Mapping[str, Any], ids: tuple[str, ...], key: str = "") -> Ask:
    """A hostile request."""
    if random.random() < 0.1:
        line = random.choice((*_LINES, random.randbytes(random.choice((1, 50, 5_000)))))
        return Ask("no HTTP", line, named=False)
    path, method, operation = random.choice(
        [
            (path, method, one)
            for path, methods in document["paths"].items()
            for method, one in methods.items()
        ]
    )
    heads: list[tuple[str, str]] = [("Host", "localhost")]
    if key and random.random() < 0.95:
        heads.append(("Authorization", f"Bearer {key}"))
    target = _target(random, path, operation, ids)
    body = b""
    if "requestBody" in operation or random.random() < 0.05:
        kind, body = _body(random, document, operation, ids)
        heads.append(("Content-Type", kind))
    named = True
    if random.random() < 0.2:
        heads += random.sample(_HEADS, random.choice((1, 1, 3)))
        named = False
    if random.random() < 0.05:
        target, named = random.choice(_PATHS), False
    if random.random() < 0.03:
        method, named = random.choice(("brew", "TRACE", "CONNECT", "put", "x" * 300)), False
    return Ask(f"{method.upper()} {path}", _bytes(method, target, heads, body), named)


def _bytes(method: str, target: str, heads: Sequence[tuple[str, str]], body: bytes) -> bytes:
    lengths = () if not body else (("Content-Length", str(len(body))),)
    lines = [f"{method.upper()} {target} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in (*heads, *lengths)]
    return "\r\n".join(lines).encode("utf-8", "surrogateescape") + b"\r\n\r\n" + body


def _target(random: Random, path: str, operation: Mapping[str, Any], ids: tuple[str, ...]) -> str:
    pairs: list[str] = []
    for parameter in operation["parameters"]:
        value = _text(random, parameter["schema"], ids)
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", value)
        elif parameter["in"] == "query" and random.random() < 0.4:
            pairs += [f"{parameter['name']}={value}"] * random.choice((1, 1, 1, 1, 2))
    if random.random() < 0.05:
        pairs.append(quote(hostile.text(random, ids)[:500]) + "=1")
    query = f"?{'&'.join(pairs)}" if pairs else ""
    return (path + query)[:12_000]


def _text(random: Random, schema: Mapping[str, Any], ids: tuple[str, ...]) -> str:
    """A value as it stands in a URL."""
    dice = random.random()
    if dice < 0.15:
        return quote_from_bytes(random.randbytes(random.choice((1, 5))), safe="")
    if dice < 0.3:
        return str(hostile.whole(random, -(2**63), 2**64))
    if dice < 0.4 and "enum" in schema:
        return str(random.choice(schema["enum"]))
    return quote(hostile.text(random, ids)[:2_000], safe="") or "x"


def _body(
    random: Random, document: Mapping[str, Any], operation: Mapping[str, Any], ids: tuple[str, ...]
) -> tuple[str, bytes]:
    dice = random.random()
    if dice < 0.1:
        return random.choice(_TYPES), hostile.data(random)
    contents = operation.get("requestBody", {}).get("content", {})
    fields = _fields(random, document, contents, ids)
    if dice < 0.4 and "multipart/form-data" in contents:
        return _form(random, fields)
    if dice < 0.5:
        return "application/json", random.choice(_JSON)
    # NaN and infinity are written as such, halves of pairs as escapes.
    data = json.dumps(fields).encode()
    if random.random() < 0.1:
        data = hostile.spoiled(random, data)
    return "application/json", data


def _fields(
    random: Random,
    document: Mapping[str, Any],
    contents: Mapping[str, Any],
    ids: tuple[str, ...],
) -> dict[str, Any]:
    """Fields of a body: what an example has, and some of all that there is spoiled."""
    content = contents.get("application/json", {})
    examples = [one["value"] for one in content.get("examples", {}).values()] or [{}]
    fields = dict(random.choice(examples))
    reference = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    names = [*document["components"]["schemas"].get(reference, {}).get("properties", ()), "x\0"]
    for name in random.sample(names, min(len(names), random.choice((1, 1, 2, 4)))):
        fields[name] = _value(random, ids)
    return fields


def _value(random: Random, ids: tuple[str, ...], depth: int = 0) -> Any:
    dice = random.random()
    if dice < 0.4:
        return hostile.text(random, ids)
    if dice < 0.6:
        return hostile.whole(random, -(2**63), 2**64)
    if dice < 0.75:
        return hostile.real(random)
    if dice < 0.85 or depth > 3:
        return random.choice((None, True, False, "\ud800", 10**400))
    if dice < 0.92:
        return [_value(random, ids, depth + 1)] * random.choice((0, 1, 3))
    return {hostile.text(random, ids)[:50]: _value(random, ids, depth + 1)}


def _form(random: Random, fields: Mapping[str, Any]) -> tuple[str, bytes]:
    """A form, with a lie in it more often than not."""
    boundary = random.choice(("b", "-" * 70, "x y", "b\u00fc"))
    told = random.choice((boundary, boundary, boundary, "other"))
    names = [
        *fields,
        *random.sample(["input_reference", "prompt", "", "file"], random.choice((0, 1))),
    ]
    parts = b""
    for name in names * random.choice((1, 1, 1, 2, 40)):
        value = fields.get(name, "")
        data = value.encode("utf-8", "replace") if isinstance(value, str) else str(value).encode()
        file = random.choice(
            ("", "", '; filename="../../x.png"', '; filename=""', "; filename*=UTF-8''%00")
        )
        if file:
            data = random.choice(
                (b"\x89PNG\r\n\x1a\n", b"GIF89a", data, b"\xff\xd8\xff" + bytes(20))
            )
        head = f'Content-Disposition: form-data; name="{name}"{file}'.encode("utf-8", "replace")
        parts += b"--" + boundary.encode() + b"\r\n" + head + b"\r\n\r\n" + data[:5_000] + b"\r\n"
    end = random.choice((b"--" + boundary.encode() + b"--\r\n", b"", b"--" + boundary.encode()))
    return f"multipart/form-data; boundary={told}", parts + end


_JSON = (
    b"",
    b"null",
    b"[]",
    b'"a"',
    b"1",
    b"{",
    b"{}",
    b'{"prompt": "a", "prompt": "b"}',
    b'{"prompt": NaN}',
    b'{"prompt": "a", "seed": 1e400}',
    b'{"prompt": "a", "seed": ' + b"9" * 5_000 + b"}",
    b'{"prompt": "\\ud800"}',
    b'{"prompt": "\\u0000"}',
    b'{"prompt": "\xff"}',
    b'\xef\xbb\xbf{"prompt": "a"}',
    b'{"prompt": "a"} {"prompt": "b"}',
    b'{"prompt": "a",}',
    b'{"prompt": "a", "input_reference": {"image_url": "data:image/png;base64,AAAA"}}',
    b'{"prompt": "a", "input_reference": {"image_url": "file:///etc/passwd"}}',
    b'{"prompt": "a", "input_reference": {"image_url": "http://127.0.0.1:1/a.png"}}',
    b'{"prompt": "a", "input_reference": {"file_id": "../../etc/passwd"}}',
    b'{"prompt": ' + b"[" * 20_000,
    b'{"prompt": ' + b'{"a":' * 20_000,
    b'{"prompt": [' + b"0," * 120_000 + b"0]}",
    '{"prompt": "a"}'.encode("utf-16"),
    '{"prompt": "a"}'.encode("utf-32"),
)


async def asked(address: str, ask: Ask, silence_s: float = 0.5) -> Outcome:
    """Send a request and judge the answer; whoever streams, or says nothing, is left."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(ask.data)
        try:
            async with asyncio.timeout(30):
                await writer.drain()
        except ConnectionError:
            # Refused before all of it was read; the answer is there nevertheless.
            pass
        return await _judged(reader, ask, silence_s)
    finally:
        writer.transport.abort()


async def _judged(reader: asyncio.StreamReader, ask: Ask, silence_s: float) -> Outcome:
    seen = b""
    try:
        async with asyncio.timeout(silence_s):
            while not _is_whole(seen):
                read = await reader.read(65_536)
                if not read:
                    break
                seen += read
    except ConnectionError:
        pass
    except TimeoutError:
        if not seen:
            return Outcome(OPEN)
    if not seen:
        return Outcome("CLOSED")
    if not _final(seen):
        return Outcome(OPEN)
    head, _, body = _final(seen).partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1].decode() if head.startswith(b"HTTP/1.1 ") else "none"
    if not status.isdigit() or status.startswith("5"):
        return Outcome(status, f"answered {seen[:300]!r}")
    if status == "400" and ask.named and not _names_a_field(body):
        return Outcome(status, f"names no field: {body[:300]!r}")
    return Outcome(status)


def _is_whole(seen: bytes) -> bool:
    """Whether an answer of a known length has come; of a stream, whether it has begun."""
    head, found, body = _final(seen).partition(b"\r\n\r\n")
    if not found:
        return False
    for line in head.lower().split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name == b"content-length":
            return len(body) >= int(value)
    return True


def _final(seen: bytes) -> bytes:
    """Without the leave to go on that comes before an answer."""
    return seen.partition(b"\r\n\r\n")[2] if seen.startswith(b"HTTP/1.1 100 ") else seen


def _names_a_field(body: bytes) -> bool:
    try:
        error = json.loads(body)["error"]
    except (ValueError, LookupError, TypeError):
        return False
    return bool(error.get("field") or error.get("param"))
