"""What can be sampled by name is what can be sampled."""

import dataclasses

from fastvideo.client.submission import NamedSampling
from fastvideo.requests.types import SamplingOverrides


def test_every_field_can_be_given_by_name() -> None:
    fields = {field.name for field in dataclasses.fields(SamplingOverrides)}
    assert set(NamedSampling.__annotations__) == fields
