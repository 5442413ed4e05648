"""Prompts as Wan reads them: cleaned, tokenised, padded to the text length."""

import threading
from typing import Any

import torch

from fastvideo.errors import InvalidField
from fastvideo.model.prompts import clean_prompt
from fastvideo.requests.types import RequestKind, RequestSpec, TextPart


def request_texts(request: RequestSpec) -> dict[str, str]:
    """The texts that a request needs encoded, cleaned, by the role "prompt" or "negative_prompt".

    Raises InvalidField when the prompt is absent, when a role is unknown or there twice, or when
    a negative prompt is given where it would change nothing.
    """
    texts: dict[str, str] = {}
    for part in request.inputs:
        if not isinstance(part, TextPart):
            continue
        if part.role not in ("prompt", "negative_prompt"):
            raise InvalidField("inputs.role", part.role, "prompt or negative_prompt")
        if part.role in texts:
            raise InvalidField(part.role, part.text, "one text")
        texts[part.role] = clean_prompt(part.text)
    if not texts.get("prompt"):
        raise InvalidField("prompt", texts.get("prompt", ""), "a text that is not empty")
    if request.kind is RequestKind.SCORING:
        return _only_prompt(texts, "no negative prompt; scores have no guidance")
    if request.kind is RequestKind.ENCODING:
        return texts
    if request.sampling.guidance_scale <= 1.0:
        return _only_prompt(texts, "no negative prompt at guidance_scale 1; it changes nothing")
    return {"prompt": texts["prompt"], "negative_prompt": texts.get("negative_prompt", "")}


class OneTextAtATime:
    """A tokenizer for several threads: how it pads and cuts is a setting that a call changes."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._turn = threading.Lock()

    def __call__(self, texts: list[str], **options: Any) -> Any:
        """As upstream's."""
        with self._turn:
            return self._tokenizer(texts, **options)


def tokenize(tokenizer: Any, text: str, text_length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and mask, both [1, text_length] int64, of a cleaned text."""
    encoded = tokenizer(
        [text],
        padding="max_length",
        max_length=text_length,
        truncation=True,
        add_special_tokens=True,
        return_attention_mask=True,
        return_tensors="pt",
    )
    return encoded.input_ids, encoded.attention_mask


def check_length(tokenizer: Any, role: str, text: str, text_length: int) -> None:
    """Check that a cleaned text fits; nothing is cut off in silence.

    Raises InvalidField with the reason PROMPT_TOO_LONG.
    """
    tokens = len(tokenizer([text], add_special_tokens=True, verbose=False).input_ids[0])
    if tokens > text_length:
        # Without the text: the error goes into the log, which holds none that it could not erase.
        raise InvalidField(
            role,
            f"{tokens} tokens",
            f"at most {text_length} tokens with the end token; this has {tokens}",
            reason="PROMPT_TOO_LONG",
        )


def _only_prompt(texts: dict[str, str], allowed: str) -> dict[str, str]:
    if texts.get("negative_prompt"):
        raise InvalidField("negative_prompt", "a text", allowed)
    return {"prompt": texts["prompt"]}
