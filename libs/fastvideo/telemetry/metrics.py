"""Meters by name; the values go where `tracing.configure` sends them."""

from typing import Final

from opentelemetry import metrics

# Seconds, from a fast unit to a long request.
SECONDS_BOUNDARIES: Final = (
    0.001,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
)

# Shares of a whole; a prediction within 5 % is good, one beyond 50 % is none.
RATIO_BOUNDARIES: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0)


def counter(name: str, description: str, unit: str = "1") -> metrics.Counter:
    """A sum that only rises, such as "fastvideo.requests.accepted"."""
    return _meter().create_counter(name, unit=unit, description=description)


def level(name: str, description: str, unit: str = "1") -> metrics.UpDownCounter:
    """A sum that rises and falls, such as the length of a queue."""
    return _meter().create_up_down_counter(name, unit=unit, description=description)


def seconds(name: str, description: str) -> metrics.Histogram:
    """A distribution of durations in seconds."""
    return _meter().create_histogram(
        name,
        unit="s",
        description=description,
        explicit_bucket_boundaries_advisory=SECONDS_BOUNDARIES,
    )


def ratio(name: str, description: str) -> metrics.Histogram:
    """A distribution of shares from 0 to 1, such as a relative error."""
    return _meter().create_histogram(
        name,
        unit="1",
        description=description,
        explicit_bucket_boundaries_advisory=RATIO_BOUNDARIES,
    )


def _meter() -> metrics.Meter:
    return metrics.get_meter("fastvideo")
