"""The forms of option values."""

import pytest
import typer

from fastvideo.cli.config import load_config, wants_traceback
from fastvideo.cli.options import parse_address, parse_size


@pytest.mark.parametrize(
    ("text", "size"), [("48x48", (48, 48)), ("832X480", (832, 480)), ("63x64", (63, 64))]
)
def test_a_size_is_width_by_height(text: str, size: tuple[int, int]) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "48", "48x", "axb", "48x48x3", "4.5x3", "9999999999x1"])
def test_another_form_of_size_is_wrong_usage(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="WxH"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:7070", "127.0.0.1:7070"),
        ("http://gateway:80/", "gateway:80"),
        ("[::1]:7070", "[::1]:7070"),
    ],
)
def test_an_address_is_host_and_port(text: str, address: str) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "localhost", "localhost:0", "localhost:70000", "a b:1"])
def test_another_form_of_address_is_wrong_usage(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="HOST:PORT"):
        parse_address(text)


def test_the_environment_gives_defaults() -> None:
    config = load_config({"FASTVIDEO_GATEWAY": "a:1", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://b:2"})
    assert (config.gateway, config.otlp_endpoint) == ("a:1", "http://b:2")
    bare = load_config({})
    assert (bare.gateway, bare.otlp_endpoint) == ("", None)
    assert wants_traceback({"FASTVIDEO_TRACEBACK": "1"})
    assert not any(map(wants_traceback, ({}, {"FASTVIDEO_TRACEBACK": "0"})))
