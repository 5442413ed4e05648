"""Secrets stay out of what is written down."""

import time

import pytest

from fastvideo.telemetry.redaction import REDACTED, is_secret, redact, redact_text

KEY_ID = f"ak_{'01jd2z' * 5}"[:29]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql://app:hunter2@db:5432/fv", f"postgresql://app:{REDACTED}@db:5432/fv"),
        ("redis://:hunter2@cache:6379/0", f"redis://:{REDACTED}@cache:6379/0"),
        ("nats://app:p@ss:word@bus:4222", f"nats://app:{REDACTED}@bus:4222"),
        ("host=db password=hunter2 port=5432", f"host=db password={REDACTED} port=5432"),
        ("GET /x?api_key=abc123&n=1", f"GET /x?api_key={REDACTED}&n=1"),
        ("Authorization: Bearer abc.def-123", f"Authorization: Bearer {REDACTED}"),
        ("http://db:5432/fv@home", "http://db:5432/fv@home"),
        ("dsn=postgresql+asyncpg://a:pw@db", f"dsn=postgresql+asyncpg://a:{REDACTED}@db"),
        ("1http://a:pw@db", f"1http://a:{REDACTED}@db"),
        ("three tokens of text", "three tokens of text"),
        (f"'fv_{KEY_ID}_{'s3_-' * 10}abc' is", f"'fv_{KEY_ID}_{REDACTED}' is"),
        (f"fv_{KEY_ID}_{'s' * 20}...", f"fv_{REDACTED}..."),
        (f"fv_admin_{'x' * 43}\n", f"fv_{REDACTED}\n"),
        (f"key {KEY_ID} of tenant acme", f"key {KEY_ID} of tenant acme"),
    ],
)
def test_secrets_inside_texts(text: str, expected: str) -> None:
    assert redact_text(text) == expected


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("password", True),
        ("DSN", True),
        ("Authorization", True),
        ("x-api-key", True),
        ("s3_secret_key", True),
        ("token", True),
        ("tokens", False),
        ("request_id", False),
        ("model_id", False),
        ("idempotency_key", False),
    ],
)
def test_names_of_secrets(name: str, secret: bool) -> None:
    assert is_secret(name) is secret


def test_nested_values_are_redacted_and_the_original_is_left_alone() -> None:
    original = {"db": {"dsn": "x", "port": 1}, "urls": ["redis://u:pw@h"], "n": 3}
    assert redact(original) == {
        "db": {"dsn": REDACTED, "port": 1},
        "urls": [f"redis://u:{REDACTED}@h"],
        "n": 3,
    }
    assert original["db"] == {"dsn": "x", "port": 1}


def test_a_value_that_holds_itself_ends() -> None:
    loop: list[object] = []
    loop.append(loop)
    assert "deeper" in str(redact(loop))


@pytest.mark.parametrize(
    "text",
    [
        "y" * 1_000_000,
        "a://" * 250_000,
        "a://b:" * 150_000,
        "a://:" + "c" * 1_000_000,
        "bearer" + " " * 1_000_000,
        "basic " * 150_000,
        "password=" * 100_000,
        "fv_" * 300_000,
        "fv_ak_" + "0" * 26 + "_-" * 400_000,
    ],
    ids=lambda text: text[:8],
)
def test_long_texts_cost_their_length_and_not_its_square(text: str) -> None:
    began = time.thread_time()
    redact_text(text)
    # Squares of these lengths take minutes.
    assert time.thread_time() - began < 20.0
