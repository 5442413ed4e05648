"""A gateway that starts on a log with a damaged event: it says so, and serves all that it can."""

from dataclasses import replace

import pytest

from fastvideo.events.postgres import PostgresEventStore
from fastvideo.requests.events import RequestProgressed, RequestStarted
from fastvideo.requests.tenants import TenantPolicy, TenantPolicySet
from fastvideo_gateway.quotas import following
from tests.integration.gateway.test_log_commands import command, forge
from tests.integration.gateway.test_quotas import end, tried
from tests.integration.gateway.worlds import gateway_config, world_of
from tests.plugins.waiting import eventually


async def test_a_damaged_event_stops_who_must_read_it_and_leaves_the_gateway(
    postgres_dsn: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "STANDS_STILL_S", 0.5)
    config = gateway_config(postgres_dsn)
    async with world_of(config) as world:
        request_id = await world.submit()
        await world.schedule(request_id, RequestStarted(attempt=1))
    # What no gateway has read yet.
    log = await PostgresEventStore.open(postgres_dsn)
    progress = (RequestProgressed(fraction=i / 9) for i in range(9))
    await replace(world, log=log).schedule(request_id, *progress)
    await log.close()
    await forge(postgres_dsn, 5)
    async with world_of(config) as world:

        async def told() -> bool:
            assert not world.gateway.task.done(), "the gateway ended"
            return "stands still before a broken event" in caplog.text

        await eventually(told)
        # Whoever looks for the damage finds it through this very gateway.
        verified = await command(world, "verify", "--json")
        assert verified.code == 1
        assert [fault["offset"] for fault in verified.records[0]["faults"]] == ["5"]
        # What comes goes on.
        other = await world.submit("a blue seven")
        shown = await command(world, "show", f"request-{other}", "--json")
        assert [record["name"] for record in shown.records] == ["request.accepted"]
        # So do quotas, also of what they find behind the damage.
        policy = TenantPolicy(device_seconds_per_hour=1.0)
        await world.append("tenant-default", TenantPolicySet(tenant_id="default", policy=policy))
        await end(world, request_id, 60.0)

        async def is_spent() -> bool:
            refused = await tried(world)
            return refused is not None and refused.reason == "QUOTA_DEVICE_SECONDS"

        await eventually(is_spent, every_s=0.25)
        assert not world.gateway.task.done()
