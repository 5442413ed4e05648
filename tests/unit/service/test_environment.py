"""Reading a service's variables: typed, bounded, and refused by name."""

from collections.abc import Callable

import pytest

from fastvideo.errors import InvalidField
from fastvideo.service.environment import Environment
from fastvideo.telemetry.config import TelemetryConfig


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (lambda e: e.required("X"), ""),
        (lambda e: e.address("X"), "localhost"),
        (lambda e: e.count("X", 1), "0"),
        (lambda e: e.count("X", 1), "-1"),
        (lambda e: e.count("X", 1), "many"),
        (lambda e: e.count("X", 1, most=9), "10"),
        (lambda e: e.count_or_auto("X"), "0"),
        (lambda e: e.number("X", 1.0, least=0.2), "0.1"),
        (lambda e: e.number("X", 1.0, least=0.0), "nan"),
        (lambda e: e.number("X", 1.0, least=0.0), "inf"),
        (lambda e: e.number("X", 1.0, least=0.0), "soon"),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_variable(
    read: Callable[[Environment], object], value: str
) -> None:
    with pytest.raises(InvalidField) as caught:
        read(Environment({"X": value}))
    assert caught.value.field == "X"


def test_an_unknown_log_level_is_refused_with_those_that_are() -> None:
    with pytest.raises(InvalidField, match="debug, info"):
        _ = Environment({"FASTVIDEO_LOG_LEVEL": "loud"}).log_level


def test_what_is_absent_or_empty_takes_the_default() -> None:
    environment = Environment({"EMPTY": ""})
    assert environment.text("EMPTY", "kept") == "kept"
    assert environment.count("EMPTY", 3) == 3
    assert environment.number("ABSENT", 0.5, least=0.0) == 0.5
    assert environment.count_or_auto("ABSENT") is None
    assert environment.path("EMPTY") is None
    assert environment.words("ABSENT") == ()
    assert environment.telemetry == TelemetryConfig()
    assert environment.log_level == "INFO"


def test_words_are_what_stands_between_commas() -> None:
    assert Environment({"X": "a:1, b:2,,"}).words("X") == ("a:1", "b:2")


def test_a_switch_is_on_or_off() -> None:
    environment = Environment({"A": "OFF", "B": "on", "C": "yes"})
    assert [environment.switch(name, True) for name in ("A", "B", "D")] == [False, True, True]
    with pytest.raises(InvalidField, match="on or off"):
        environment.switch("C", True)
