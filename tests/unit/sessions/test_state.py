"""What a session decides and how it folds."""

from datetime import datetime, timedelta

import pytest

from fastvideo.errors import AlreadyExists, CorruptLog, FailedPrecondition, NotFound
from fastvideo.events.types import Event, EventMetadata
from fastvideo.sessions.commands import (
    BeginRequest,
    CheckInactivity,
    CloseSession,
    CreateSession,
    EndRequest,
    ForgetRequest,
    PushText,
    SessionCommand,
)
from fastvideo.sessions.erasing import without_prompts
from fastvideo.sessions.events import SessionClosed, SessionUpdated
from fastvideo.sessions.state import check_takes, decide, evolve, is_open, stream_of
from fastvideo.sessions.types import ModelBinding, PushedText, SessionState, SessionStatus

START = datetime.fromisoformat("2026-01-02T03:04:05+00:00")


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


class World:
    """A session under commands, each at a second of its own."""

    def __init__(self) -> None:
        self.state: SessionState | None = None
        self.version = 0
        create = CreateSession(
            session_id="s",
            tenant_id="t",
            user_id="u",
            model_bindings=(ModelBinding(model_id="digits", card_digest="d"),),
            inactivity_timeout_s=60,
            prompt_memory_limit=3,
            at=START,
        )
        self.tell(create, 0)

    def tell(self, command: SessionCommand, second: float, program: str = "p") -> int:
        """Decide and fold; how many events came of it."""
        events = decide(self.state, command)
        for payload in events:
            self.version += 1
            event = Event(
                stream_id=stream_of("s"),
                stream_version=self.version,
                type=type(payload).__name__,
                metadata=EventMetadata(occurred_at=at(second), program_id=program),
                recorded_at=at(second),
                payload=payload,
            )
            self.state = evolve(self.state, event)
        return len(events)

    @property
    def now(self) -> SessionState:
        assert self.state is not None
        return self.state


def begin(request_id: str, second: float = 1) -> BeginRequest:
    return BeginRequest(request_id=request_id, prompt=f"prompt of {request_id}", at=at(second))


def push(role: str, text: str, second: float) -> PushText:
    return PushText(
        pushed=PushedText(push_id=f"psh_{second:g}", role=role, text=text, at=at(second))
    )


def test_a_new_session_is_open_and_empty() -> None:
    state = World().now
    assert (state.status, state.user_id, state.created_at) == (SessionStatus.OPEN, "u", START)
    assert (state.prompt_memory, state.artifact_refs) == ((), ())


def test_a_session_is_created_once() -> None:
    world = World()
    command = CreateSession(
        session_id="s", tenant_id="t", inactivity_timeout_s=1, prompt_memory_limit=1, at=START
    )
    with pytest.raises(AlreadyExists):
        world.tell(command, 1)


def test_a_session_that_was_never_created_is_not_found() -> None:
    for command in (begin("r"), EndRequest(request_id="r"), CloseSession()):
        with pytest.raises(NotFound):
            decide(None, command)


def test_a_request_is_active_until_it_ends_and_leaves_its_artifacts() -> None:
    world = World()
    world.tell(begin("r1"), 1, "p1")
    world.tell(begin("r2"), 2, "p2")
    both = world.now
    assert both.cancel_scopes == ("request/r1", "request/r2")
    assert both.active_programs == ("p1", "p2")
    world.tell(EndRequest(request_id="r1", artifact_ids=("a", "b")), 3, "p1")
    one = world.now
    assert one.cancel_scopes == ("request/r2",)
    assert one.active_programs == ("p2",)
    assert one.artifact_refs == ("a", "b")
    assert one.last_active_at == at(3)


def test_prompts_are_remembered_oldest_first_and_bounded() -> None:
    world = World()
    for i in range(5):
        world.tell(begin(f"r{i}", i), i)
    assert [entry.request_id for entry in world.now.prompt_memory] == ["r2", "r3", "r4"]
    assert world.now.prompt_memory[0].prompt == "prompt of r2"


def test_a_repeated_command_adds_nothing() -> None:
    world = World()
    assert world.tell(begin("r"), 1) == 1
    assert world.tell(begin("r"), 2) == 0
    assert world.tell(EndRequest(request_id="r"), 3) == 1
    assert world.tell(EndRequest(request_id="r"), 4) == 0
    assert world.tell(CloseSession(), 5) == 1
    assert world.tell(CloseSession(), 6) == 0


def test_a_quiet_session_is_closed_at_its_timeout_and_not_before() -> None:
    world = World()
    assert world.tell(CheckInactivity(at=at(59.9)), 59.9) == 0
    assert world.tell(CheckInactivity(at=at(60)), 60) == 1
    assert (world.now.status, world.now.close_reason) == (SessionStatus.CLOSED, "inactive")
    assert world.now.closed_at == at(60)


def test_a_running_request_keeps_a_session_open_and_its_end_starts_the_wait_anew() -> None:
    world = World()
    world.tell(begin("r"), 1)
    assert world.tell(CheckInactivity(at=at(1000)), 1000) == 0
    world.tell(EndRequest(request_id="r"), 1000)
    assert world.tell(CheckInactivity(at=at(1059)), 1059) == 0
    assert world.tell(CheckInactivity(at=at(1060)), 1060) == 1


def test_a_request_that_ends_after_the_close_still_leaves_its_artifacts() -> None:
    world = World()
    world.tell(begin("r"), 1)
    world.tell(CloseSession(), 2)
    assert not is_open(world.now)
    world.tell(EndRequest(request_id="r", artifact_ids=("a",)), 3)
    assert (world.now.artifact_refs, world.now.cancel_scopes) == (("a",), ())
    assert world.now.status is SessionStatus.CLOSED


def test_artifact_references_are_bounded() -> None:
    world = World()
    world.tell(begin("r"), 1)
    ids = tuple(f"a{i}" for i in range(1500))
    world.tell(EndRequest(request_id="r", artifact_ids=ids), 2)
    assert world.now.artifact_refs == ids[500:]


def test_a_session_takes_requests_of_its_tenant_and_models_while_open() -> None:
    world = World()
    check_takes(world.now, "s", "t", "digits")
    with pytest.raises(NotFound, match="session s"):
        check_takes(None, "s", "t", "digits")
    with pytest.raises(NotFound):
        check_takes(world.now, "s", "other", "digits")
    with pytest.raises(FailedPrecondition, match="bound to digits"):
        check_takes(world.now, "s", "t", "other")
    world.tell(CloseSession(), 1)
    with pytest.raises(FailedPrecondition, match="open another") as caught:
        check_takes(world.now, "s", "t", "digits")
    assert caught.value.reason == "SESSION_CLOSED"


def test_a_stream_that_does_not_begin_with_its_creation_is_corrupt() -> None:
    for payload in (SessionUpdated(session_id="s"), SessionClosed(session_id="s")):
        event = Event(
            stream_id="session-s",
            stream_version=1,
            type=type(payload).__name__,
            metadata=EventMetadata(occurred_at=START),
            recorded_at=START,
            payload=payload,
        )
        with pytest.raises(CorruptLog):
            evolve(None, event)


def test_pushed_texts_are_kept_by_role_oldest_first_and_bounded() -> None:
    world = World()
    world.tell(begin("r1"), 1)
    for second in range(2, 7):
        world.tell(push("context", f"context {second}", second), second)
    world.tell(push("prompt", "slower", 7), 7)
    assert [text.text for text in world.now.context_texts] == [f"context {i}" for i in (4, 5, 6)]
    entries = [(e.request_id, e.push_id, e.prompt) for e in world.now.prompt_memory]
    assert entries == [("r1", "", "prompt of r1"), ("", "psh_7", "slower")]


def test_a_push_keeps_a_session_open_for_another_timeout() -> None:
    world = World()
    world.tell(push("context", "night", 50), 50)
    assert world.tell(CheckInactivity(at=at(109)), 109) == 0
    assert world.tell(CheckInactivity(at=at(110)), 110) == 1


@pytest.mark.parametrize("command", [CloseSession(), CheckInactivity(at=at(1000))])
def test_a_closed_session_remembers_nothing_and_takes_no_text(command: SessionCommand) -> None:
    world = World()
    world.tell(begin("r1"), 1)
    world.tell(EndRequest(request_id="r1"), 2)
    world.tell(push("context", "night", 3), 3)
    world.tell(command, 1000)
    assert (world.now.prompt_memory, world.now.context_texts) == ((), ())
    with pytest.raises(FailedPrecondition) as caught:
        world.tell(push("context", "day", 1001), 1001)
    assert caught.value.reason == "SESSION_CLOSED"
    # A request that was accepted before the close, and heard of after it.
    world.tell(begin("late"), 1002)
    assert world.now.prompt_memory == ()


def test_a_session_of_before_keeps_its_prompts_when_it_closes() -> None:
    world = World()
    world.tell(begin("r1"), 1)
    event = Event(
        stream_id=stream_of("s"),
        stream_version=3,
        type="SessionClosed",
        metadata=EventMetadata(occurred_at=at(2)),
        recorded_at=at(2),
        payload=SessionClosed(session_id="s", reason="closed"),
    )
    assert evolve(world.now, event).prompt_memory == world.now.prompt_memory


def test_erased_texts_are_empty_and_later_ones_stay() -> None:
    world = World()
    world.tell(push("context", "night", 1), 1)
    world.tell(push("context", "day", 5), 5)
    world.tell(push("prompt", "slower", 2), 6)
    erased = without_prompts(world.now, at(3))
    assert [text.text for text in erased.context_texts] == ["", "day"]
    assert [entry.prompt for entry in erased.prompt_memory] == [""]


def test_the_prompt_of_a_deleted_request_is_forgotten_and_the_others_stay() -> None:
    world = World()
    for i in range(3):
        world.tell(begin(f"r{i}", i), i)
        world.tell(EndRequest(request_id=f"r{i}"), i)
    world.tell(begin("r3"), 4)
    assert world.tell(ForgetRequest(request_id="r1"), 5) == 1
    assert [entry.request_id for entry in world.now.prompt_memory] == ["r2", "r3"]
    # What runs is not touched, and a second time there is nothing to forget.
    assert world.now.cancel_scopes == ("request/r3",)
    assert world.tell(ForgetRequest(request_id="r1"), 6) == 0
