"""The variables of a service, read with errors that name them."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from fastvideo.errors import InvalidField
from fastvideo.telemetry.config import TelemetryConfig

_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


class Environment:
    """Typed reading of variables; an empty value counts as absent.

    Every method raises InvalidField, which names the variable, for a value that is not allowed.
    """

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables

    def text(self, name: str, default: str = "") -> str:
        """The value as it is."""
        return self._variables.get(name) or default

    def required(self, name: str) -> str:
        """A value that must be there."""
        value = self.text(name)
        if not value:
            raise InvalidField(name, value, "a value in the environment")
        return value

    def address(self, name: str) -> str:
        """ "host:port", or empty."""
        value = self.text(name)
        if value and not value.rpartition(":")[2].isdecimal():
            raise InvalidField(name, value, "host:port")
        return value

    def words(self, name: str) -> tuple[str, ...]:
        """Values between commas."""
        return tuple(word.strip() for word in self.text(name).split(",") if word.strip())

    def path(self, name: str) -> Path | None:
        """A path, or None."""
        value = self.text(name)
        return Path(value) if value else None

    def switch(self, name: str, default: bool) -> bool:
        """ "on" or "off"."""
        value = self.text(name, "on" if default else "off").lower()
        if value not in ("on", "off"):
            raise InvalidField(name, value, "on or off")
        return value == "on"

    def count(self, name: str, default: int, *, least: int = 1, most: int | None = None) -> int:
        """A whole number, `least` or more and no more than `most`."""
        value = self.text(name)
        if not value:
            return default
        if not value.isdecimal() or int(value) < least or (most is not None and int(value) > most):
            bound = "or more" if most is None else f"to {most}"
            raise InvalidField(name, value, f"a whole number, {least} {bound}")
        return int(value)

    def count_or_auto(self, name: str) -> int | None:
        """A whole number, 1 or more; None for "auto" and when it is absent."""
        value = self.text(name, "auto")
        if value == "auto":
            return None
        if not value.isdecimal() or int(value) < 1:
            raise InvalidField(name, value, "auto, or a whole number, 1 or more")
        return int(value)

    def number(self, name: str, default: float, *, least: float, most: float = math.inf) -> float:
        """A finite number, `least` or more, and at most `most`."""
        text = self.text(name)
        if not text:
            return default
        allowed = f"a number, {least:g} {'or more' if most == math.inf else f'to {most:g}'}"
        try:
            value = float(text)
        except ValueError as error:
            raise InvalidField(name, text, allowed) from error
        if not least <= value <= most or math.isinf(value):
            raise InvalidField(name, text, allowed)
        return value

    @property
    def log_level(self) -> str:
        """FASTVIDEO_LOG_LEVEL, upper case."""
        level = self.text("FASTVIDEO_LOG_LEVEL", "info").upper()
        if level not in _LEVELS:
            raise InvalidField("FASTVIDEO_LOG_LEVEL", level, ", ".join(_LEVELS).lower())
        return level

    @property
    def telemetry(self) -> TelemetryConfig:
        """OTEL_EXPORTER_OTLP_ENDPOINT, FASTVIDEO_TRACE_SAMPLE, _TRACE_FOLDER, _METRICS_LISTEN."""
        sample = self.number("FASTVIDEO_TRACE_SAMPLE", 1.0, least=0.0)
        if sample > 1:
            given = self.text("FASTVIDEO_TRACE_SAMPLE")
            raise InvalidField("FASTVIDEO_TRACE_SAMPLE", given, "a share, 0 to 1")
        return TelemetryConfig(
            otlp_endpoint=self.text("OTEL_EXPORTER_OTLP_ENDPOINT") or None,
            trace_sample=sample,
            trace_folder=self.path("FASTVIDEO_TRACE_FOLDER"),
            metrics_listen=self.address("FASTVIDEO_METRICS_LISTEN"),
        )
