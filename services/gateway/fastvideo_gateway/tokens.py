"""How long prompts are in tokens, for the models whose tokenizer is on this machine."""

import asyncio
from collections.abc import Callable

from fastvideo.deployment.catalog import CatalogEntry
from fastvideo.model.prompts import TOKENIZER_FILE, TokenCounter
from fastvideo.requests.inputs import characters_max, check_tokens, tokens_max
from fastvideo.requests.types import RequestSpec


class PromptLengths:
    """Refuses prompts that an encoder would have to cut.

    Where the checkpoint is not on the gateway's machine the worker refuses them.
    """

    def __init__(self) -> None:
        self._counters: dict[str, TokenCounter | None] = {}

    async def check(self, spec: RequestSpec, entry: CatalogEntry) -> None:
        """Raise InvalidField, PROMPT_TOO_LONG, for a text of more tokens than the card allows."""
        counter = await self._counter_of(entry)
        if counter is not None:
            check_tokens(spec.inputs, entry.card, counter.count)

    async def fitting(self, entry: CatalogEntry) -> Callable[[str], bool]:
        """Tells whether the model's encoder takes a text whole.

        Without a tokenizer each byte counts as a token: hardly any is shorter.
        """
        counter = await self._counter_of(entry)
        longest, characters = tokens_max(entry.card), characters_max(entry.card)

        def fits(text: str) -> bool:
            if len(text) > characters:
                return False
            if not longest:
                return True
            tokens = len(text.encode()) + 1 if counter is None else counter.count(text)
            return tokens <= longest

        return fits

    async def _counter_of(self, entry: CatalogEntry) -> TokenCounter | None:
        model_id = entry.card.model_id
        if model_id not in self._counters:
            self._counters[model_id] = await asyncio.to_thread(_counter, entry)
        return self._counters[model_id]


def _counter(entry: CatalogEntry) -> TokenCounter | None:
    folder = entry.checkpoint_path
    if folder is None or not (folder / TOKENIZER_FILE).is_file():
        return None
    return TokenCounter(folder)
