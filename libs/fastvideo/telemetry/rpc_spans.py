"""How a gRPC call looks as a span, on both of its sides."""

from typing import Final

# Probes come every few seconds and say nothing about anybody's request.
_UNTRACED: Final = ("/grpc.health.v1.", "/grpc.reflection.")


def is_traced(method: str) -> bool:
    """Whether calls of a full method, "/package.Service/Method", get spans."""
    return not method.startswith(_UNTRACED)


def rpc_name(method: str) -> str:
    """The span's name: "package.Service/Method"."""
    return method.removeprefix("/")


def rpc_attributes(method: str) -> dict[str, str]:
    """OpenTelemetry's attributes of an RPC."""
    service, _, name = rpc_name(method).partition("/")
    return {"rpc.system": "grpc", "rpc.service": service, "rpc.method": name}
