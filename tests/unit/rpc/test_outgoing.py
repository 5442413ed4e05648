"""What a channel says of whose call it is."""

from typing import Any

import grpc
import pytest

from fastvideo.errors import Unauthenticated
from fastvideo.rpc.identity import Caller, Role, calling
from fastvideo.rpc.outgoing import TENANT, with_tenant

DETAILS = grpc.aio.ClientCallDetails("/fastvideo.Service/Method", None, None, None, None)


async def made(details: grpc.aio.ClientCallDetails, request: bytes) -> grpc.aio.ClientCallDetails:
    return details


async def test_a_call_says_whose_it_is_and_one_that_is_nobodys_is_not_made() -> None:
    interceptor: Any = with_tenant()[0]
    with pytest.raises(Unauthenticated):
        await interceptor.intercept_unary_unary(made, DETAILS, b"")
    with calling(Caller(tenant_id="acme", role=Role.USER)):
        details = await interceptor.intercept_unary_unary(made, DETAILS, b"")
    assert details.metadata[TENANT] == "acme"
