"""The model that ships with this package."""

from typing import Final

EMBEDDED_MODEL_ID: Final = "moving-digits"
"""Its id, which is meant wherever no other model is named."""
