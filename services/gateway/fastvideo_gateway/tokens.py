"""How long prompts are in tokens, for the models whose tokenizer is on this machine."""

import asyncio

from fastvideo.deployment.catalog import CatalogEntry
from fastvideo.model.prompts import TOKENIZER_FILE, TokenCounter
from fastvideo.requests.inputs import check_tokens
from fastvideo.requests.types import RequestSpec


class PromptLengths:
    """Refuses prompts that an encoder would have to cut.

    Where the checkpoint is not on the gateway's machine the worker refuses them.
    """

    def __init__(self) -> None:
        self._counters: dict[str, TokenCounter | None] = {}

    async def check(self, spec: RequestSpec, entry: CatalogEntry) -> None:
        """Raise InvalidField, PROMPT_TOO_LONG, for a text of more tokens than the card allows."""
        if spec.model_id not in self._counters:
            self._counters[spec.model_id] = await asyncio.to_thread(_counter, entry)
        counter = self._counters[spec.model_id]
        if counter is not None:
            check_tokens(spec.inputs, entry.card, counter.count)


def _counter(entry: CatalogEntry) -> TokenCounter | None:
    folder = entry.checkpoint_path
    if folder is None or not (folder / TOKENIZER_FILE).is_file():
        return None
    return TokenCounter(folder)
