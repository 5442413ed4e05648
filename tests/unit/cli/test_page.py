"""`fastvideo page`: which address it prints."""

import json

import pytest
from typer.testing import CliRunner

from fastvideo.cli.config import CliConfig
from fastvideo.cli.connection import find_gateway_http
from fastvideo.cli.main import build
from fastvideo.errors import Unavailable


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(build(), ["page", *arguments])
    assert result.exit_code == 0, result.output
    return result.output.strip()


@pytest.mark.parametrize("http", ["gateway:8080", "http://gateway:8080", "http://gateway:8080/"])
def test_the_page_of_a_named_gateway(http: str) -> None:
    assert printed("--http", http) == "http://gateway:8080/"
    assert printed("req_1", "--http", http) == "http://gateway:8080/requests/req_1"
    assert json.loads(printed("a/b", "--http", http, "--json")) == {
        "url": "http://gateway:8080/requests/a%2Fb"
    }


def test_a_gateway_that_is_known_by_grpc_alone_is_refused() -> None:
    with pytest.raises(Unavailable, match="--http"):
        find_gateway_http(CliConfig(gateway="gateway:50051"), "", None)
