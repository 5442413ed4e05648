"""A session without what its tenant wrote."""

from dataclasses import replace
from datetime import datetime

from fastvideo.sessions.types import SessionState


def without_prompts(state: SessionState, before: datetime) -> SessionState:
    """The state with the texts of before a moment empty, as a fold gives it once erased."""
    memory = tuple(
        replace(entry, prompt="") if entry.at < before else entry for entry in state.prompt_memory
    )
    contexts = tuple(
        replace(pushed, text="") if pushed.at < before else pushed for pushed in state.context_texts
    )
    return replace(state, prompt_memory=memory, context_texts=contexts)
