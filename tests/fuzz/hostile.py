"""Values that nobody means well with, by a seeded hand: the same seed gives the same values."""

import math
from random import Random

TEXTS = (
    "",
    " ",
    "\0",
    "a\0b",
    "null",
    "undefined",
    "NaN",
    "-0",
    "1e999",
    "../../../../etc/passwd",
    "..%2f..%2fetc%2fpasswd",
    "%00",
    "%ff%fe",
    "C:\\windows\\system32",
    "'; DROP TABLE events; --",
    "${jndi:ldap://127.0.0.1/a}",
    "{{7*7}}",
    "<script>alert(1)</script>",
    "\r\nX-Injected: 1\r\n\r\n",
    "\u202egnp.exe",
    "\u0645\u0631\u062d\u0628\u0627",
    "e\u0301\u0301\u0301\u0301\u0301",
    "Z" + "\u0321\u0337\u0489" * 200,
    "\U0001f469\u200d\U0001f467" * 20,
    "\ufeff",
    "\ufffe\uffff",
    "\u2028\u2029",
    "\x7f\x80\x9f",
    "\x1b[31mred\x1b[0m",
    "\u0130\u0131\u00df\ufb01",
    "req_" + "0" * 26,
    "a" * 201,
    "a" * 5_000,
    "a " * 50_000,
    "\u6f22" * 10_000,
    "9" * 400,
)
WHOLES = (
    0,
    1,
    -1,
    7,
    127,
    2**16,
    2**31 - 1,
    -(2**31),
    2**32 - 1,
    2**53,
    2**63 - 1,
    -(2**63),
    2**64 - 1,
)
REALS = (
    0.0,
    -0.0,
    0.5,
    -1.0,
    5e-324,
    1.7976931348623157e308,
    math.inf,
    -math.inf,
    math.nan,
    1e-30,
)
BYTES = (b"", b"\0", b"\xff" * 16, b"\xc3\x28", b"\xed\xa0\x80", b"a" * 100_000)
MANY = (0, 1, 2, 3, 3, 3, 200, 20_000)


def text(random: Random, ids: tuple[str, ...]) -> str:
    """A text: a hostile one, an id that exists, or letters of anywhere."""
    dice = random.random()
    if dice < 0.25 and ids:
        return random.choice(ids)
    if dice < 0.85:
        return random.choice(TEXTS)
    return "".join(chr(_letter(random)) for _ in range(random.choice((1, 3, 20))))


def whole(random: Random, least: int, most: int) -> int:
    """A whole number that fits."""
    fitting = [one for one in WHOLES if least <= one <= most]
    return random.choice(fitting) if random.random() < 0.8 else random.randint(least, most)


def real(random: Random) -> float:
    """A number of any kind."""
    return random.choice(REALS) if random.random() < 0.8 else random.uniform(-1e6, 1e6)


def data(random: Random) -> bytes:
    """Bytes."""
    return (
        random.choice(BYTES) if random.random() < 0.6 else random.randbytes(random.choice((1, 30)))
    )


def spoiled(random: Random, whole_data: bytes) -> bytes:
    """Bytes with something about them changed: cut, doubled, overwritten, or with more behind."""
    dice = random.random()
    if dice < 0.25:
        return whole_data[: random.randint(0, len(whole_data))]
    if dice < 0.5 and whole_data:
        place = random.randrange(len(whole_data))
        return whole_data[:place] + random.randbytes(1) + whole_data[place + 1 :]
    if dice < 0.75:
        return whole_data + random.randbytes(random.choice((1, 8, 64)))
    return whole_data + whole_data


def _letter(random: Random) -> int:
    """A code point that is no half of a pair."""
    point = random.randrange(0x110000 - 0x800)
    return point if point < 0xD800 else point + 0x800
