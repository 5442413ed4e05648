"""The TLS variables: what goes together, what is named when it does not, and what is read."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from fastvideo.errors import InvalidField
from fastvideo.service.environment import Environment
from fastvideo.service.tls import client_tls_of, tls_of
from tests.plugins.certificates import Authority


def test_without_variables_everything_is_in_the_clear() -> None:
    config = tls_of(Environment({}))
    assert (config.server, config.client) == (None, None)


def test_a_service_shows_one_certificate_to_both_sides(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair, other = authority.issue("service"), authority.issue("other")
    variables = {
        "FASTVIDEO_TLS_CERT": str(pair.certificate),
        "FASTVIDEO_TLS_KEY": str(pair.key),
        "FASTVIDEO_TLS_CLIENT_CA": str(authority.file),
        "FASTVIDEO_TLS_CA": str(authority.file),
        "FASTVIDEO_TLS_PEER_NAME": "fastvideo",
    }
    config = tls_of(Environment(variables))
    assert config.server is not None
    assert (config.server.certificate, config.server.client_ca) == (
        pair.certificate,
        authority.file,
    )
    assert config.client is not None
    assert (config.client.certificate, config.client.name) == (pair.certificate, "fastvideo")
    own = {
        "FASTVIDEO_TLS_CLIENT_CERT": str(other.certificate),
        "FASTVIDEO_TLS_CLIENT_KEY": str(other.key),
    }
    client = tls_of(Environment(variables | own)).client
    assert client is not None
    assert client.certificate == other.certificate


def test_the_authorities_of_the_system_can_be_trusted() -> None:
    client = client_tls_of(Environment({"FASTVIDEO_TLS_CA": "system"}))
    assert client is not None
    assert client.ca is None


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"FASTVIDEO_TLS_CERT": "a"}, "FASTVIDEO_TLS_KEY"),
        ({"FASTVIDEO_TLS_KEY": "a"}, "FASTVIDEO_TLS_CERT"),
        ({"FASTVIDEO_TLS_CLIENT_CA": "a"}, "FASTVIDEO_TLS_CERT"),
        ({"FASTVIDEO_TLS_CLIENT_CERT": "a"}, "FASTVIDEO_TLS_CLIENT_KEY"),
        ({"FASTVIDEO_TLS_CLIENT_CERT": "a", "FASTVIDEO_TLS_CLIENT_KEY": "b"}, "FASTVIDEO_TLS_CA"),
        ({"FASTVIDEO_TLS_CA": "/absent.pem"}, "FASTVIDEO_TLS_CA"),
        ({"FASTVIDEO_TLS_CERT": "/absent", "FASTVIDEO_TLS_KEY": "/absent"}, "FASTVIDEO_TLS_CERT"),
    ],
)
def test_what_does_not_go_together_is_named(variables: Mapping[str, str], named: str) -> None:
    with pytest.raises(InvalidField) as caught:
        tls_of(Environment(variables))
    assert caught.value.field.startswith(named)
