"""A service reduced to its environment contract: listens, says that it is healthy, ends on SIGTERM.

It logs the names of the variables that it was given, and for the gateway also opens HTTP's port.
"""

import asyncio
import logging
import os
import signal
import sys

import grpc
from grpc_health.v1 import health_pb2


class _Health(grpc.GenericRpcHandler):
    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        if details.method != "/grpc.health.v1.Health/Check":
            return None

        async def check(request: object, context: object) -> health_pb2.HealthCheckResponse:
            return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)

        return grpc.unary_unary_rpc_method_handler(
            check,
            request_deserializer=health_pb2.HealthCheckRequest.FromString,
            response_serializer=health_pb2.HealthCheckResponse.SerializeToString,
        )


async def serve() -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((_Health(),))
    server.add_insecure_port(os.environ["FASTVIDEO_LISTEN"])
    await server.start()
    web = None
    if http := os.environ.get("FASTVIDEO_HTTP_LISTEN"):
        host, _, port = http.rpartition(":")
        web = await asyncio.start_server(lambda reader, writer: writer.close(), host, int(port))
    names = sorted(name for name in os.environ if name.startswith(("FASTVIDEO_", "OMP_")))
    logging.info(f"{os.environ['FASTVIDEO_SERVICE_ID']} listens; given {' '.join(names)}")
    await stop.wait()
    logging.info("stopping")
    if web is not None:
        web.close()
    await server.stop(0.2)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if os.environ.get("STAND_IN_FAILS") == os.environ["FASTVIDEO_SERVICE_ID"]:
        logging.info("this part was told to fail")
        sys.exit(7)
    asyncio.run(serve())
