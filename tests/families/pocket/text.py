"""Text as its bytes, the tokens of this family."""

import torch

from fastvideo.errors import InvalidField
from fastvideo.requests.types import RequestSpec, TextPart

PROMPT = "prompt"


def part_text(request: RequestSpec, role: str = PROMPT) -> str:
    """The text of a role. Raises InvalidField when the request has none."""
    for part in request.inputs:
        if isinstance(part, TextPart) and part.role == role:
            return part.text
    raise InvalidField("inputs", "", f"a text part with role {role}")


def tokens_of(text: str, tokens_max: int) -> tuple[int, ...]:
    """The bytes of a text. Raises InvalidField for one that is empty or too long."""
    tokens = tuple(text.encode())
    if not 1 <= len(tokens) <= tokens_max:
        raise InvalidField("prompt", f"{len(tokens)} bytes", f"1 to {tokens_max} bytes")
    return tokens


def padded(tokens: tuple[int, ...], length: int) -> torch.Tensor:
    """[1, length] int64, zeros behind the tokens."""
    ids = torch.zeros((1, length), dtype=torch.int64)
    ids[0, : len(tokens)] = torch.tensor(tokens)
    return ids
