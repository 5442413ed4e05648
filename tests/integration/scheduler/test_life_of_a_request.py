"""From the accepted event to the terminal one, through a real scheduler and a scripted worker."""

from tests.integration.scheduler.conftest import Stage


async def test_a_request_runs_and_its_stream_tells_it(stage: Stage):
    scheduler = await stage.scheduler()
    await stage.worker("w1", scheduler)
    await stage.submit("r1", steps=4)
    done = (await stage.ended("r1")).payload
    assert done.artifact_ids == ("art_r1",)
    assert done.latents_digest == "d-r1"
    assert done.metrics.units == 9
    assert done.metrics.attempts == 1
    history = await stage.history("r1")
    assert [e.type for e in history[:2]] == ["RequestAccepted", "RequestStarted"]
    fractions = [e.payload.fraction for e in history if e.type == "RequestProgressed"]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1.0
