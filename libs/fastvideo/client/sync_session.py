"""A session in use, for code without asyncio."""

from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from fastvideo.client.generation import Generation
from fastvideo.client.session import check_options, in_session, opened
from fastvideo.client.session_calls import SessionInfo
from fastvideo.sessions.types import PushedText

if TYPE_CHECKING:
    from fastvideo.client.sync_client import Client


class Session:
    """`with client.session(conditioning="memory") as session:`; see `AsyncSession`."""

    def __init__(self, client: "Client", session_id: str, options: dict[str, Any]) -> None:
        check_options(client.create_session, session_id, options)
        self._client = client
        self._given_id = session_id
        self._options = options
        self._opened: SessionInfo | None = None

    def __enter__(self) -> Self:
        if self._given_id:
            self._opened = self._client.get_session(self._given_id)
        else:
            self._opened = self._client.create_session(**self._options)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._given_id:
            self._client.close_session(self.session_id)

    @property
    def session_id(self) -> str:
        """The id, `ses_...`."""
        return opened(self._opened).session_id

    def state(self) -> SessionInfo:
        """Where it stands now."""
        return self._client.get_session(self.session_id)

    def push_text(self, text: str, *, role: str = "context") -> PushedText:
        """Give it a text; see `AsyncClient.push_text`."""
        return self._client.push_text(self.session_id, text, role=role)

    def submit(self, prompt: str, **options: Any) -> Generation:
        """Ask for a generation in it; `options` are those of `Client.submit`."""
        return self._client.submit(prompt, **in_session(opened(self._opened), options))

    def generate(self, prompt: str, **options: Any) -> Generation:
        """Submit and wait; `options` are those of `Client.generate`."""
        return self._client.generate(prompt, **in_session(opened(self._opened), options))
