"""A request as the client gives it: its state, and how a notebook and a prompt show it."""

import base64
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from fastvideo.artifacts.types import ArtifactKind, ArtifactRecord
from fastvideo.client import cards
from fastvideo.requests.types import RequestState, RequestStatus
from fastvideo.sessions.conditioning import own_prompt

ENDED = frozenset({RequestStatus.COMPLETED, RequestStatus.FAILED, RequestStatus.CANCELLED})
"""The states that a request does not leave."""


@dataclass(frozen=True, slots=True)
class Media:
    """An artifact with its bytes, as a notebook shows it."""

    record: ArtifactRecord
    # None when it is too large to stand in a page, or could not be had.
    data: bytes | None = dataclasses.field(repr=False)
    # Why there are none.
    missing: str = ""

    @property
    def url(self) -> str:
        """The bytes as a data URL; empty when there are none."""
        if self.data is None:
            return ""
        kind = self.record.content_type or "application/octet-stream"
        return f"data:{kind};base64,{base64.b64encode(self.data).decode()}"


def same_fields(one: Any, other: Any, cls: type[Any]) -> bool:
    """Whether two states of a dataclass say the same, viewed or not."""
    names = [field.name for field in dataclasses.fields(cls)]
    return all(getattr(one, name) == getattr(other, name) for name in names)


class Generation(RequestState):
    """A `RequestState` with the names that are asked for most, and a display.

    As the last line of a notebook's cell it shows its video and its contact sheet, if it has
    them, and what it was made with. What `wait` and `generate` give in a notebook, and what
    `show` gives everywhere, holds the bytes for that.
    """

    __slots__ = ("_media",)

    @classmethod
    def of(cls, state: RequestState, media: Sequence[Media] = ()) -> Self:
        """The state, with what it is shown with."""
        named = {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}
        generation = cls(**named)
        object.__setattr__(generation, "_media", tuple(media))
        return generation

    @property
    def request_id(self) -> str:
        """The id, `req_...`."""
        return self.spec.request_id

    @property
    def prompt(self) -> str:
        """The prompt as the user wrote it, without what a session joined to it."""
        return own_prompt(self.spec)

    @property
    def ended(self) -> bool:
        """Whether it is completed, failed or cancelled, and stays so."""
        return self.status in ENDED

    @property
    def video(self) -> ArtifactRecord | None:
        """The record of its video; None until that is stored."""
        videos = [one for one in self.artifacts if one.kind is ArtifactKind.VIDEO]
        # A preview is stored before the video itself.
        whole = [one for one in videos if "preview" not in one.name]
        return next((one for one in whole if one.completed_at is not None), None)

    def artifact(self, name: str) -> ArtifactRecord | None:
        """The record of the artifact of that name, such as "video.mp4"; None when there is none."""
        return next((one for one in self.artifacts if one.name == name), None)

    @property
    def media(self) -> tuple[Media, ...]:
        """What it is shown with; empty where nobody has brought it."""
        held: tuple[Media, ...] = getattr(self, "_media", ())
        return held

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RequestState):
            return NotImplemented
        return same_fields(self, other, RequestState)

    __hash__ = RequestState.__hash__

    def __repr__(self) -> str:
        return cards.request_text(self, self.prompt)

    def _repr_html_(self) -> str:
        shown = [(one.record, one.url, one.missing) for one in self.media]
        return cards.request_html(self, shown)

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> Mapping[str, Any]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}
