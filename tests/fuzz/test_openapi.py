"""What is served agrees with the OpenAPI document, and with OpenAI's own package."""

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from fastvideo.rpc.identity import Access
from fastvideo_gateway.access.rules import ROUTES
from fastvideo_gateway.http.openapi.table import OPERATIONS
from tests.fuzz.places import Place
from tests.plugins.http import Answer, call

SEED = 20_260_101
RUN_S_MAX = 300.0
# A request that is valid in form may still be of no use to the model that is asked; what a model
# takes its card says, not the schema.
NOT_CHECKED = ("positive_data_acceptance",)
# That no worker serves a model is a probe's answer, not a fault.
CONFIGURATION = """
[[operations]]
include-operation-id = "isReady"
checks.not_a_server_error.expected-statuses = ["2xx", "4xx", "503"]
"""
# Never end by themselves.
ENDLESS = ("watchRequests",)


async def schemathesis(place: Place, folder: Path, *options: str) -> None:
    """Try the whole of the served document; fails with all that is found."""
    pytest.importorskip("schemathesis")
    url = f"http://{place.world.gateway.http_address}"
    arguments = [
        *("-m", "schemathesis.cli", "run", f"{url}/openapi.json", "--url", url),
        *("--seed", str(SEED), "--no-color", "--request-timeout", "30", "--warnings", "off"),
        *("--header", f"Authorization: Bearer {place.key}"),
        *("--exclude-checks", ",".join(NOT_CHECKED), "--generation-database", "none"),
        *(part for name in ENDLESS for part in ("--exclude-operation-id", name)),
        *("--continue-on-failure", *options),
    ]
    (folder / "schemathesis.toml").write_text(CONFIGURATION)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        # It leaves a cache where it runs.
        cwd=folder,
    )
    try:
        async with asyncio.timeout(RUN_S_MAX):
            printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, printed.decode()


@pytest.mark.timeout(330)
async def test_what_is_answered_is_as_documented(keyed_place: Place, tmp_path: Path) -> None:
    await schemathesis(keyed_place, tmp_path, "--phases", "examples,coverage")


@pytest.mark.slow
@pytest.mark.timeout(330)
async def test_whatever_is_asked_is_answered_as_documented(
    keyed_place: Place, tmp_path: Path
) -> None:
    await schemathesis(
        keyed_place, tmp_path, "--phases", "fuzzing,stateful", "--max-examples", "30"
    )


async def test_every_documented_operation_is_served(keyed_place: Place) -> None:
    for name in OPERATIONS:
        method, _, path = name.partition(" ")
        asked = re.sub(r"\{\w+(:int)?(:path)?\}", lambda found: "1" if found[1] else "x", path)
        answer = await call(keyed_place.world.gateway.http_address, asked, method=method)
        if ROUTES[name] is Access.PUBLIC:
            assert answer.status in (200, 204, 400, 503), name
        else:
            # Without a key nothing else is told, but of a path that there is not it is.
            assert answer.status == 401, name


async def test_answers_are_those_of_openais_package(keyed_place: Place) -> None:
    types = pytest.importorskip("openai.types")

    async def ask(path: str, method: str = "GET", body: Any = None) -> Answer:
        headers = {"Authorization": f"Bearer {keyed_place.key}"}
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        address = keyed_place.world.gateway.http_address
        return await call(address, path, method=method, headers=headers, body=data)

    def faults(kind: str, value: Any) -> list[str]:
        """Where a value is not what the package says, but for sizes: ours are more than four."""
        from pydantic import ValidationError

        try:
            getattr(types, kind).model_validate(value, strict=True)
        except ValidationError as error:
            return [str(one) for one in error.errors() if one["loc"] != ("size",)]
        return []

    asked = {"prompt": "a red three", "seed": 7}
    created = (await ask("/v1/videos", "POST", asked)).json
    assert faults("Video", created) == []
    sync = {"Accept": "application/json", "Authorization": f"Bearer {keyed_place.key}"}
    address = keyed_place.world.gateway.http_address
    ended = await call(
        address,
        "/v1/videos/sync",
        method="POST",
        headers=sync | {"Content-Type": "application/json"},
        body=json.dumps(asked).encode(),
    )
    assert ended.json["status"] == "completed"
    assert faults("Video", ended.json) == []
    listed = (await ask("/v1/videos?limit=1")).json
    assert [faults("Video", video) for video in listed["data"]] == [[]]
    for form in ("url", "b64_json"):
        images = await ask(
            "/v1/images/generations", "POST", {**asked, "n": 2, "response_format": form}
        )
        assert faults("ImagesResponse", images.json) == []
        assert all(image[form] for image in images.json["data"])
    for model in (await ask("/v1/models")).json["data"]:
        assert faults("Model", model) == []
    refused = await ask("/v1/videos", "POST", {**asked, "size": "0x0"})
    assert set(refused.error) == {"message", "type", "param", "code"}
