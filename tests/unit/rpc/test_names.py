"""What can be looked up, and what is refused by name before anything is asked."""

import pytest

from fastvideo.errors import InvalidField
from fastvideo.rpc.names import NAME_CHARACTERS_MAX, check_name, require_name


@pytest.mark.parametrize("name", ["a\0b", "\0", "line\nbreak", "x" * (NAME_CHARACTERS_MAX + 1)])
def test_names_that_nothing_can_have_are_refused(name: str) -> None:
    for check in (check_name, lambda field, value: require_name(field, value, "an id")):
        with pytest.raises(InvalidField) as caught:
            check("request_id", name)
        assert caught.value.field == "request_id"


def test_an_absent_name_is_refused_only_where_one_is_required() -> None:
    check_name("session_id", "")
    with pytest.raises(InvalidField) as caught:
        require_name("session_id", "", "the id of a session")
    assert caught.value.reason == "FIELD_REQUIRED"
