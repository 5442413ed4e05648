"""Prompts as text encoders read them: cleaned, and counted in tokens, without torch."""

import html
import re
from pathlib import Path
from typing import Final

import ftfy
from tokenizers import Tokenizer

# Upstream's `regex` module does not count the four separators as space, Python's `re` does.
_SPACES: Final = re.compile(r"[^\S\x1c-\x1f]+")

TOKENIZER_FILE: Final = Path("tokenizer") / "tokenizer.json"
"""Where a checkpoint in diffusers format keeps its tokenizer."""


def clean_prompt(text: str) -> str:
    """The text as `diffusers.WanPipeline` cleans it: broken Unicode, HTML entities, spaces."""
    fixed = html.unescape(html.unescape(ftfy.fix_text(text))).strip()
    return _SPACES.sub(" ", fixed).strip()


class TokenCounter:
    """Counts a prompt's tokens, the end token included, as the checkpoint's encoder will."""

    def __init__(self, checkpoint: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(checkpoint / TOKENIZER_FILE))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    def count(self, text: str) -> int:
        """The tokens of a text that is not cleaned yet."""
        return len(self._tokenizer.encode(clean_prompt(text)).ids)
