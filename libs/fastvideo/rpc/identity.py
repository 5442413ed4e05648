"""Who is calling."""

from typing import Final

DEFAULT_TENANT: Final = "default"
"""The tenant of every caller, as long as there are no API keys."""
