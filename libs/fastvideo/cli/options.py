"""Options that several commands share, and the forms that their values have."""

import re
from typing import Annotated

import typer

Gateway = Annotated[
    str,
    typer.Option(
        "--gateway",
        metavar="HOST:PORT",
        help="The gateway to talk to; default: FASTVIDEO_GATEWAY, else the local stack.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]


def parse_size(text: str) -> tuple[int, int]:
    """Width and height of "WxH", in pixels. Whether a model can do it is for the server to say."""
    found = re.fullmatch(r"(-?\d{1,9})[xX](-?\d{1,9})", text)
    if found is None:
        raise typer.BadParameter(
            f"{text!r} is not of the form WxH, such as 48x48", param_hint="--size"
        )
    return int(found[1]), int(found[2])


def parse_address(text: str) -> str:
    """The "host:port" that was given."""
    found = re.fullmatch(r"(?:(?:http|grpc)://)?(\[[0-9a-fA-F:]+\]|[^\s/:]+):(\d{1,5})/?", text)
    if found is None or not 1 <= int(found[2]) <= 65_535:
        raise typer.BadParameter(
            f"{text!r} is not of the form HOST:PORT, such as 127.0.0.1:7070",
            param_hint="--gateway",
        )
    return f"{found[1]}:{found[2]}"
