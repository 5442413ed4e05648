"""A session in use: what is pushed and asked in it, and its end."""

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from fastvideo.client.generation import Generation
from fastvideo.client.session_calls import SessionInfo
from fastvideo.client.submission import check_names, keywords
from fastvideo.client.types import DEFAULT_MODEL_ID
from fastvideo.errors import FailedPrecondition, InvalidField
from fastvideo.sessions.types import PushedText

if TYPE_CHECKING:
    from fastvideo.client.async_client import AsyncClient


class AsyncSession:
    """`async with client.session(conditioning="memory") as session:`; see `AsyncClient.session`.

    Requests take the session's model where it is bound to one. Methods raise what those of the
    client raise, and FailedPrecondition, SESSION_NOT_OPENED, before the block is entered.
    """

    def __init__(self, client: "AsyncClient", session_id: str, options: dict[str, Any]) -> None:
        check_options(client.create_session, session_id, options)
        self._client = client
        self._given_id = session_id
        self._options = options
        self._opened: SessionInfo | None = None

    async def __aenter__(self) -> Self:
        if self._given_id:
            self._opened = await self._client.get_session(self._given_id)
        else:
            self._opened = await self._client.create_session(**self._options)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._given_id:
            await self._client.close_session(self.session_id)

    @property
    def session_id(self) -> str:
        """The id, `ses_...`."""
        return opened(self._opened).session_id

    async def state(self) -> SessionInfo:
        """Where it stands now: its prompts and contexts, its running requests, its artifacts."""
        return await self._client.get_session(self.session_id)

    async def push_text(self, text: str, *, role: str = "context") -> PushedText:
        """Give it a text; see `AsyncClient.push_text`."""
        return await self._client.push_text(self.session_id, text, role=role)

    async def submit(self, prompt: str, **options: Any) -> Generation:
        """Ask for a generation in it; `options` are those of `AsyncClient.submit`."""
        return await self._client.submit(prompt, **in_session(opened(self._opened), options))

    async def generate(self, prompt: str, **options: Any) -> Generation:
        """Submit and wait; `options` are those of `AsyncClient.generate`."""
        return await self._client.generate(prompt, **in_session(opened(self._opened), options))


def check_options(
    create: Callable[..., Any], session_id: str, options: Mapping[str, object]
) -> None:
    """Raise InvalidField for an option that there is not, and for one of a session that is."""
    check_names(options, keywords(create))
    if session_id and options:
        name, value = next(iter(options.items()))
        raise InvalidField(name, value, "left out for a session that is there already")


def opened(state: SessionInfo | None) -> SessionInfo:
    """The session of a block. Raises FailedPrecondition outside of one."""
    if state is None:
        raise FailedPrecondition(
            "the session is opened by `with`", reason="SESSION_NOT_OPENED", subject="session"
        )
    return state


def in_session(state: SessionInfo, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a submit in a session, with its model where none is named."""
    bound = state.model_bindings
    model_id = bound[0].model_id if bound else DEFAULT_MODEL_ID
    return {"model_id": model_id, **options, "session_id": state.session_id}
