"""Clients that know nothing of the package: one made from the protos, one by reflection."""

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import grpc_tools

from tests.e2e.stack import Stack

PROTO = Path(__file__).resolve().parents[2] / "proto"

CLIENT = """
import hashlib
import sys

sys.path.insert(0, sys.argv[1])
import grpc
from fastvideo.artifacts.v1 import artifacts_pb2, artifacts_pb2_grpc
from fastvideo.gateway.v1 import gateway_pb2, gateway_pb2_grpc

with grpc.insecure_channel(sys.argv[2]) as channel:
    gateway = gateway_pb2_grpc.GatewayServiceStub(channel)
    message = gateway_pb2.SubmitRequestRequest(model_id="moving-digits")
    part = message.inputs.add().text
    part.role, part.text = "prompt", "a red three moving left"
    message.sampling.steps, message.sampling.seed = 4, 1
    request_id = gateway.SubmitRequest(message, timeout=60).state.spec.request_id
    watch = gateway_pb2.WatchRequestRequest(request_id=request_id)
    for answer in gateway.WatchRequest(watch, timeout=60):
        last = answer.event
    completed = last.request_completed
    artifacts = artifacts_pb2_grpc.ArtifactServiceStub(channel)
    wanted = artifacts_pb2.GetArtifactRequest(artifact_id=completed.artifact_ids[0])
    first, *rest = artifacts.GetArtifact(wanted, timeout=60)
    data = b"".join(answer.chunk for answer in rest)
    assert hashlib.sha256(data).hexdigest() == first.record.digest
    print(last.name, completed.latents_digest, first.record.content_type)
"""


def test_a_client_made_from_the_protos_alone_completes_a_request(
    stack: Stack, tmp_path: Path
) -> None:
    generated = tmp_path / "generated"
    generated.mkdir()
    include = Path(grpc_tools.__file__).parent / "_proto"
    command = [
        *(sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO}", f"-I{include}"),
        *(f"--python_out={generated}", f"--grpc_python_out={generated}"),
        *sorted(map(str, PROTO.rglob("*.proto"))),
    ]
    subprocess.run(command, check=True, timeout=60)
    # A package of its own, so that it wins over the project's, which has the same name.
    (generated / "fastvideo" / "__init__.py").touch()
    program = tmp_path / "client.py"
    program.write_text(CLIENT)
    command = [sys.executable, "-I", str(program), str(generated), stack.gateway]
    result = subprocess.run(command, check=True, timeout=90, capture_output=True, text=True)
    name, digest, content_type = result.stdout.split()
    assert (name, content_type) == ("request.completed", "video/mp4")
    ours = stack.generate("a red three moving left", "--steps", "4", "--seed", "1")
    assert digest == ours["latents_digest"]


def test_buf_curl_lists_the_services_and_completes_a_request(stack: Stack) -> None:
    url = f"http://{stack.gateway}"
    services = buf("--list-services", url).split()
    assert {
        "fastvideo.gateway.v1.GatewayService",
        "fastvideo.artifacts.v1.ArtifactService",
        "fastvideo.sessions.v1.SessionService",
        "grpc.health.v1.Health",
    } <= set(services)
    method = f"{url}/fastvideo.gateway.v1.GatewayService"
    body = {
        "modelId": "moving-digits",
        "inputs": [{"text": {"role": "prompt", "text": "a green two moving down"}}],
        "sampling": {"steps": 2},
    }
    submitted = json.loads(buf("-d", json.dumps(body), f"{method}/SubmitRequest"))
    wanted = json.dumps({"requestId": submitted["state"]["spec"]["requestId"]})
    events = buf("-d", wanted, f"{method}/WatchRequest")
    assert "request.completed" in events
    got = json.loads(buf("-d", wanted, f"{method}/GetRequest"))
    assert got["state"]["status"] == "REQUEST_STATUS_COMPLETED"


def buf(*arguments: str) -> str:
    """What `buf curl` prints."""
    program = Path(sysconfig.get_path("scripts")) / "buf"
    command = [str(program), "curl", "--protocol", "grpc", "--http2-prior-knowledge", *arguments]
    done = subprocess.run(command, check=False, timeout=60, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout
