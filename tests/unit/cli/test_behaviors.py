import pytest
import typer

from fastvideo.cli.behaviors import parse_conditions


def test_conditions_are_fields_and_values_of_any_form() -> None:
    found = parse_conditions(["model_id=m", "guidance_settings=scale=3.0", "session_id="])
    assert found == {"model_id": "m", "guidance_settings": "scale=3.0", "session_id": ""}
    assert parse_conditions([]) == {}


@pytest.mark.parametrize("where", [["model_id"], ["=m"], ["seeds=1", "seeds=2"]])
def test_what_is_no_condition_is_wrong_usage(where: list[str]) -> None:
    with pytest.raises(typer.BadParameter):
        parse_conditions(where)
