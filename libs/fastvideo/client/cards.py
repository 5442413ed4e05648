"""Requests and explanations for people to look at: a few lines of text, or HTML for a notebook."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from fastvideo.artifacts.types import ArtifactKind, ArtifactRecord
from fastvideo.explain.types import Explanation
from fastvideo.requests.types import RequestState, RequestStatus, TextPart
from fastvideo.sessions.conditioning import OWN, PROMPT
from fastvideo.sessions.types import SessionConditioning, SessionState

# A small video is drawn at a multiple of its size, so that it can be seen.
WIDTH_SHOWN_MIN: Final = 240
WIDTH_SHOWN_MAX: Final = 720
PROMPT_CHARACTERS_MAX: Final = 80

_COLOURS: Final = {
    RequestStatus.COMPLETED: "#1a7f4b",
    RequestStatus.FAILED: "#c0392b",
    RequestStatus.CANCELLED: "#8a6d1b",
}
_FRAME: Final = (
    "margin:4px 0 12px;font-family:system-ui,sans-serif;font-size:13px;line-height:1.5;"
    "max-width:760px"
)
_PALE: Final = "opacity:.65"


def request_text(state: RequestState, prompt: str) -> str:
    """A request in one to three lines."""
    shown = prompt if len(prompt) <= PROMPT_CHARACTERS_MAX else f"{prompt[:77]}..."
    first = f"Generation {state.spec.request_id} {_standing(state)}"
    lines = [first, f"  {state.spec.model_id}: {shown!r}, {_sampling(state)}"]
    if state.error is not None:
        lines.append(f"  {state.error.reason}: {state.error.message}")
    elif state.artifacts:
        lines.append("  " + ", ".join(map(_file, state.artifacts)))
    return "\n".join(lines)


def request_html(state: RequestState, media: Sequence[tuple[ArtifactRecord, str, str]] = ()) -> str:
    """A request with its media, each as its record, its data URL and, without one, why."""
    colour = _COLOURS.get(state.status, "#3567b5")
    head = (
        f'<div><b style="color:{colour}">{escape(_standing(state))}</b> '
        f'<code style="{_PALE}">{escape(state.spec.request_id)}</code></div>'
    )
    error = ""
    if state.error is not None:
        told = escape(f"{state.error.reason}: {state.error.message}")
        error = f'<div style="color:{_COLOURS[RequestStatus.FAILED]}">{told}</div>'
    shown = "".join(_medium(*one) for one in media)
    body = f"{head}{_prompt_html(state)}{error}{shown}{_table(_facts(state))}"
    return f'<div class="fastvideo-request" style="{_FRAME}">{body}</div>'


def progress_html(text: str, fraction: float) -> str:
    """How far a wait is, from 0 to 1."""
    percent = round(100 * min(max(fraction, 0.0), 1.0))
    return (
        f'<div class="fastvideo-progress" style="{_FRAME}">'
        f'<progress max="100" value="{percent}" style="width:240px"></progress> '
        f"{percent} % {escape(text)}</div>"
    )


def explanation_text(explanation: Explanation) -> str:
    """The explanation's sentence, and where the time went."""
    totals = explanation.totals
    waits = sorted(totals.waited_by_cause.items(), key=lambda item: -item[1])
    parts = [("computing", totals.device_busy_seconds), ("storing", totals.io_seconds), *waits]
    lines = [f"  {seconds:8.3f} s  {name}" for name, seconds in parts if seconds > 0]
    return "\n".join([explanation.headline, *lines])


def explanation_html(explanation: Explanation) -> str:
    """The same for a notebook."""
    first, *rest = explanation_text(explanation).split("\n")
    rows = [line.strip().split("  ", 1) for line in rest]
    table = _table([(name, seconds) for seconds, name in rows])
    return f'<div style="{_FRAME}"><div>{escape(first)}</div>{table}</div>'


def session_text(state: SessionState) -> str:
    """A session in a few lines: what it joins, what it remembers, what runs in it."""
    mode = (state.conditioning or SessionConditioning.INDEPENDENT).value
    standing = state.status.value
    if state.close_reason and state.close_reason != standing:
        standing = f"{standing} ({state.close_reason})"
    lines = [f"Session {state.session_id} {standing}, {mode}"]
    lines += [f"  context: {one.text!r}" for one in state.context_texts]
    lines += [f"  prompt: {one.prompt!r}" for one in state.prompt_memory]
    lines += [f"  running: {scope.removeprefix('request/')}" for scope in state.cancel_scopes]
    return "\n".join(lines)


def text_html(text: str) -> str:
    """Lines of text, as they are."""
    return f'<pre style="white-space:pre-wrap">{escape(text)}</pre>'


def size_text(size_bytes: int) -> str:
    """Bytes for people, such as "12.3 kB"."""
    size = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError("the last unit takes every size")


def _standing(state: RequestState) -> str:
    if state.expired_at is not None and state.status is RequestStatus.COMPLETED:
        return "completed, its files have expired"
    if state.status is RequestStatus.RUNNING:
        return f"running {state.progress:.0%}"
    if state.status in (RequestStatus.ACCEPTED, RequestStatus.QUEUED) and state.queue_reason:
        return f"{state.status.value}: {state.queue_reason}"
    if state.status is RequestStatus.COMPLETED and state.metrics is not None:
        return f"completed in {state.metrics.total_seconds:.2f} s"
    return state.status.value


def _sampling(state: RequestState) -> str:
    used = state.spec.sampling
    return (
        f"{used.width}x{used.height}, {used.num_frames} frames at {used.fps}/s, "
        f"{used.steps} steps, guidance {used.guidance_scale:g}, seed {used.seed}"
    )


def _file(record: ArtifactRecord) -> str:
    size = size_text(record.size_bytes) if record.completed_at is not None else "not stored yet"
    return f"{record.name or record.kind.value} ({size}) {record.artifact_id}"


def _facts(state: RequestState) -> list[tuple[str, str]]:
    facts = [("model", state.spec.model_id), ("sampling", _sampling(state))]
    if state.spec.session_id:
        facts.append(("session", state.spec.session_id))
    facts += [("file", _file(record)) for record in state.artifacts]
    if state.latents_digest:
        facts.append(("latents", state.latents_digest))
    if state.expires_at is not None:
        facts.append(("kept until", f"{state.expires_at:%Y-%m-%d %H:%M:%S} UTC"))
    return facts


def _table(rows: Iterable[tuple[str, str]]) -> str:
    cells = "".join(
        f'<tr><td style="{_PALE};text-align:left;padding:0 12px 0 0">{escape(name)}</td>'
        f'<td style="text-align:left"><code>{escape(value)}</code></td></tr>'
        for name, value in rows
    )
    return f'<table style="border-collapse:collapse">{cells}</table>'


def _prompt_html(state: RequestState) -> str:
    """The texts; what a session joined is paler than the user's own words."""
    lines = []
    for part in state.spec.inputs:
        if not isinstance(part, TextPart) or not part.text:
            continue
        if not part.segments:
            words = escape(part.text)
        else:
            words = " ".join(
                f'<span{_joined_style(one.role)} title="{escape(one.role)} '
                f'{escape(one.source_id)}">{escape(part.text[one.start : one.stop])}</span>'
                for one in part.segments
            )
        if part.role != PROMPT:
            words = f'<span style="{_PALE}">{escape(part.role)}:</span> {words}'
        lines.append(f"<div>{words}</div>")
    return "".join(lines)


def _joined_style(role: str) -> str:
    return "" if role == OWN else f' style="{_PALE}"'


def _medium(record: ArtifactRecord, url: str, missing: str) -> str:
    name = escape(record.name or record.artifact_id, quote=True)
    if not url:
        return f'<div style="{_PALE}">{name}: {escape(missing)}</div>'
    style = _style(record)
    if record.kind is ArtifactKind.VIDEO:
        return (
            f'<video controls autoplay loop muted playsinline title="{name}" '
            f'style="{style}" src="{url}"></video>'
        )
    return f'<div><img alt="{name}" title="{name}" style="{style}" src="{url}"></div>'


def _style(record: ArtifactRecord) -> str:
    """Small media by whole multiples, each pixel a square; large ones at most the page's width."""
    if record.kind is not ArtifactKind.VIDEO or record.media is None or not record.media.width:
        return "max-width:100%;image-rendering:pixelated;min-width:160px"
    width = record.media.width
    shown = min(width * max(1, -(-WIDTH_SHOWN_MIN // width)), WIDTH_SHOWN_MAX)
    smooth = "auto" if shown <= width else "pixelated"
    return f"width:{shown}px;max-width:100%;image-rendering:{smooth};display:block;margin:6px 0"
