"""What the commands about requests, models and sessions do once they know their gateway."""

import dataclasses
from collections.abc import Sequence
from contextlib import aclosing

from fastvideo.cli.connection import Target
from fastvideo.cli.offers import offers_record, told_offers
from fastvideo.cli.report import (
    event_record,
    plain_record,
    print_json,
    print_lines,
    request_lines,
    request_record,
)
from fastvideo.cli.running import run
from fastvideo.client import ModelSummary
from fastvideo.client.ending import within
from fastvideo.deployment.card import EngineOffer
from fastvideo.errors import InvalidField
from fastvideo.events.types import Event
from fastvideo.requests.types import RequestState, RequestStatus
from fastvideo.sessions.types import PushedText, SessionState
from fastvideo.simulation.recorded import recorded_lines

PAGE_MAX = 200
# How long a cancelled request may take to reach its next boundary, seconds.
CANCEL_S_MAX = 30.0


def show_request(target: Target, request_id: str, *, as_json: bool) -> None:
    """One request."""

    async def get() -> RequestState:
        async with target.client() as client:
            return await client.get(request_id)

    _print_request(run(get()), as_json=as_json)


def list_requests(
    target: Target, status: str, session_id: str, limit: int, *, as_json: bool
) -> None:
    """The newest requests."""
    allowed = ", ".join(RequestStatus)
    if status and status not in list(RequestStatus):
        raise InvalidField("--status", status, allowed)
    states = run(_collect(target, RequestStatus(status) if status else None, session_id, limit))
    if as_json:
        print_json([request_record(state) for state in states])
        return
    print_lines(
        [
            f"{state.spec.request_id}  {state.status.value:<9}  "
            f"{state.accepted_at:%Y-%m-%d %H:%M:%S}  {state.spec.model_id}"
            for state in states
        ]
    )


def record_arrivals(target: Target, limit: int) -> None:
    """When the newest requests came and what they asked, one JSON object a line."""
    for line in recorded_lines(run(_collect(target, None, "", limit))):
        print_json(line)


async def _collect(
    target: Target, status: RequestStatus | None, session_id: str, limit: int
) -> list[RequestState]:
    """Requests, the newest first."""
    found: list[RequestState] = []
    token = ""
    async with target.client() as client:
        while len(found) < limit:
            page = await client.list(
                status=status,
                session_id=session_id,
                page_size=min(limit - len(found), PAGE_MAX),
                page_token=token,
            )
            found += page.items
            token = page.next_page_token
            if not token:
                break
    return found


def cancel_request(
    target: Target, request_id: str, reason: str, *, loop: str, stream: str, as_json: bool
) -> None:
    """Cancel, and show how the request ended."""

    async def cancel() -> RequestState:
        what = f"the cancellation of {request_id}"
        async with target.client() as client, within(CANCEL_S_MAX, what):
            await client.cancel(request_id, loop=loop, stream=stream, reason=reason)
            return await client.wait(request_id)

    _print_request(run(cancel()), as_json=as_json)


def delete_requests(target: Target, request_ids: Sequence[str], *, as_json: bool) -> None:
    """Delete one after the other; the first that cannot be ends it."""

    async def delete() -> None:
        async with target.client() as client:
            for request_id in request_ids:
                await client.delete(request_id)
                if as_json:
                    print_json({"id": request_id, "deleted": True})
                else:
                    print_lines([f"{request_id}  deleted"])

    run(delete())


def watch_request(target: Target, request_id: str, after: int, *, as_json: bool) -> None:
    """A request's events as they come."""

    async def follow() -> None:
        async with (
            target.client() as client,
            aclosing(client.watch(request_id, after_sequence=after)) as events,
        ):
            async for event in events:
                if as_json:
                    print_json(event_record(event))
                else:
                    print_lines([_event_line(event)])

    run(follow())


def show_models(target: Target, *, as_json: bool) -> None:
    """The models that the server knows."""

    async def get() -> tuple[ModelSummary, ...]:
        async with target.client() as client:
            return await client.models()

    models = run(get())
    if as_json:
        print_json(
            [
                {
                    "model_id": model.model_id,
                    "family": model.family,
                    "description": model.description,
                    "capabilities": list(model.capabilities),
                    "ready": model.ready,
                    "unavailable_reason": model.unavailable_reason,
                    "servables": [dataclasses.asdict(one) for one in model.servables],
                }
                for model in models
            ]
        )
        return
    for model in models:
        ready = "ready" if model.ready else "not ready"
        print_lines([f"{model.model_id}  {ready}  {model.family}: {model.description}"])
        if model.unavailable_reason:
            print_lines([f"  {model.unavailable_reason}"])
        print_lines(
            [f"  {one.servable_id}  {one.kind}: {one.capability}" for one in model.servables]
        )


def deployment_of(target: Target) -> tuple[EngineOffer, ...]:
    """What the engines behind a gateway offer."""

    async def get() -> tuple[EngineOffer, ...]:
        async with target.client() as client:
            return await client.deployment()

    return run(get())


def show_deployment(target: Target, *, as_json: bool) -> None:
    """The same, shown."""
    offers = deployment_of(target)
    if as_json:
        print_json(offers_record(offers))
    else:
        told_offers(offers)


def create_session(
    target: Target,
    model_ids: Sequence[str],
    timeout_s: int,
    memory: int,
    conditioning: str,
    *,
    as_json: bool,
) -> None:
    """Open a session and show it."""

    async def create() -> SessionState:
        async with target.client() as client:
            return await client.create_session(
                model_ids=model_ids,
                inactivity_timeout_s=timeout_s,
                prompt_memory_limit=memory,
                conditioning=conditioning,
            )

    _print_session(run(create()), as_json=as_json)


def show_session(target: Target, session_id: str, *, as_json: bool) -> None:
    """One session."""

    async def get() -> SessionState:
        async with target.client() as client:
            return await client.get_session(session_id)

    _print_session(run(get()), as_json=as_json)


def list_sessions(target: Target, limit: int, *, as_json: bool) -> None:
    """Sessions."""

    async def collect() -> list[SessionState]:
        found: list[SessionState] = []
        token = ""
        async with target.client() as client:
            while len(found) < limit:
                size = min(limit - len(found), PAGE_MAX)
                page = await client.list_sessions(page_size=size, page_token=token)
                found += page.items
                token = page.next_page_token
                if not token:
                    break
        return found

    states = run(collect())
    if as_json:
        print_json([plain_record(state) for state in states])
        return
    print_lines([f"{state.session_id}  {state.status.value}" for state in states])


def push_text(target: Target, session_id: str, text: str, role: str, *, as_json: bool) -> None:
    """Give a session a text and show it."""

    async def push() -> PushedText:
        async with target.client() as client:
            return await client.push_text(session_id, text, role=role)

    pushed = run(push())
    if as_json:
        print_json(plain_record(pushed))
    else:
        print_lines([f"{pushed.push_id}  {pushed.role}  {pushed.text}"])


def close_session(target: Target, session_id: str, *, as_json: bool) -> None:
    """Close a session and show it."""

    async def close() -> SessionState:
        async with target.client() as client:
            return await client.close_session(session_id)

    _print_session(run(close()), as_json=as_json)


def _print_request(state: RequestState, *, as_json: bool) -> None:
    if as_json:
        print_json(request_record(state))
    else:
        print_lines(request_lines(state))


def _print_session(state: SessionState, *, as_json: bool) -> None:
    if as_json:
        print_json(plain_record(state))
        return
    models = ", ".join(binding.model_id for binding in state.model_bindings)
    lines = [f"{state.session_id}  {state.status.value}", f"  models     {models}"]
    if state.conditioning is not None:
        lines.append(f"  joins      {state.conditioning.value}")
    lines += [f"  context    {pushed.text}" for pushed in state.context_texts]
    lines += [f"  prompt     {entry.prompt}" for entry in state.prompt_memory]
    if state.close_reason:
        lines.append(f"  closed     {state.close_reason}")
    print_lines(lines)


def _event_line(event: Event) -> str:
    from fastvideo.client.waiting import describe

    return f"{event.stream_version:>5}  {event.recorded_at:%H:%M:%S.%f}  {event.name:<24}  " + (
        describe(event)
    )
