"""Options that several commands share, the forms that their values have, and what they name."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastvideo.errors import NotFound

if TYPE_CHECKING:
    from fastvideo.cli.connection import Target

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


def check_folder(name: str) -> None:
    """Raise NotFound for what is written as a path, and leads to no folder."""
    if name.startswith((".", "/", "~")) and not Path(name).is_dir():
        raise NotFound(f"there is no folder {name}", subject=name)


def gateway_target(gateway: str, data: Path | None) -> "Target":
    """The gateway of `--gateway` and `--data`: the named one, else the local stack's."""
    from fastvideo.cli.config import load_config
    from fastvideo.cli.connection import find_gateway

    return find_gateway(load_config(os.environ), gateway, data)
