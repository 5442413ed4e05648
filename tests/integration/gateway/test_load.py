"""Many submits, and a client that knows nothing but the protos."""

import asyncio
import gc
import subprocess
import sys
import textwrap
import tracemalloc
from pathlib import Path

import grpc_tools

from fastvideo.api.gateway.v1 import gateway_pb2
from tests.integration.gateway.worlds import World, submit_message

PROTO = Path(__file__).resolve().parents[3] / "proto"


async def test_a_thousand_submits_leave_no_memory_behind(world: World) -> None:
    async def submit_many(count: int) -> None:
        for _ in range(count // 50):
            await asyncio.gather(*(world.stub.SubmitRequest(submit_message()) for _ in range(50)))

    await submit_many(100)
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        await submit_many(1_000)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A request of 1 kB kept a thousand times would be 1 MB.
    assert after - before < 500_000
    page = await world.stub.ListRequests(gateway_pb2.ListRequestsRequest(page_size=200))
    assert len(page.states) == 200


CLIENT = """
import sys
sys.path.insert(0, sys.argv[1])
import grpc
from fastvideo.gateway.v1 import gateway_pb2, gateway_pb2_grpc

with grpc.insecure_channel(sys.argv[2]) as channel:
    stub = gateway_pb2_grpc.GatewayServiceStub(channel)
    message = gateway_pb2.SubmitRequestRequest(model_id="moving-digits")
    part = message.inputs.add().text
    part.role, part.text = "prompt", "a red three moving left"
    accepted = stub.SubmitRequest(message, timeout=10).state
    watch = stub.WatchRequest(
        gateway_pb2.WatchRequestRequest(request_id=accepted.spec.request_id), timeout=10
    )
    print(accepted.spec.request_id, next(iter(watch)).event.name)
    watch.cancel()
"""


async def test_a_client_made_from_the_protos_alone_submits_and_watches(
    world: World, tmp_path: Path
) -> None:
    generated = tmp_path / "generated"
    generated.mkdir()
    include = Path(grpc_tools.__file__).parent / "_proto"
    command = [
        *(sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTO}", f"-I{include}"),
        *(f"--python_out={generated}", f"--grpc_python_out={generated}"),
        *sorted(map(str, PROTO.rglob("*.proto"))),
    ]
    await asyncio.to_thread(subprocess.run, command, check=True, timeout=60)
    # A package of its own, so that it wins over the project's, which has the same name.
    (generated / "fastvideo" / "__init__.py").touch()
    client = tmp_path / "client.py"
    client.write_text(textwrap.dedent(CLIENT))
    command = [sys.executable, "-I", str(client), str(generated), world.gateway.address]
    result = await asyncio.to_thread(
        subprocess.run, command, check=True, timeout=60, capture_output=True, text=True
    )
    request_id, name = result.stdout.split()
    got = await world.stub.GetRequest(gateway_pb2.GetRequestRequest(request_id=request_id))
    assert got.state.spec.request_id == request_id
    assert name == "request.accepted"
