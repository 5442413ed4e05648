"""A replay's process dials as whoever starts it does."""

from pathlib import Path

import pytest

from fastvideo.recompute.__main__ import _parser, _tls
from fastvideo.replay.process import tls_options
from fastvideo.rpc.tls import ClientTls
from tests.plugins.certificates import Authority


@pytest.mark.parametrize("certified", [False, True])
def test_what_is_handed_on_is_what_the_process_has(tmp_path: Path, certified: bool) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue("worker") if certified else None
    shown = (pair.certificate, pair.key) if pair is not None else (None, None)
    # None trusts the authorities of the machine, and is TLS all the same.
    for ca in (authority.file, None):
        tls = ClientTls(ca, shown[0], shown[1], name="fastvideo.internal")
        assert _tls(_parser().parse_args(tls_options(tls))) == tls
    assert _tls(_parser().parse_args(tls_options(None))) is None
