"""What gRPC's words about a failed connection say of TLS."""

import pytest

from fastvideo.rpc.handshakes import NO_TLS, UNTRUSTED, handshake_error, looks_closed

ALL = "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.1:50051: "
SSL = "Tls handshake failed (TSI_PROTOCOL_FAILURE): SSL_ERROR_SSL: error:1:SSL routines:OPENSSL:"


@pytest.mark.parametrize(
    ("words", "reason", "told"),
    [
        (f"{SSL}CERTIFICATE_VERIFY_FAILED: certificate has expired: OK", UNTRUSTED, "expired"),
        (f"{SSL}CERTIFICATE_VERIFY_FAILED: self signed certificate: OK", UNTRUSTED, "self signed"),
        (f"{SSL}WRONG_VERSION_NUMBER: Invalid certificate verification context", NO_TLS, "TLS"),
        ("Handshake failed: Hostname Verification Check failed.", UNTRUSTED, "name"),
    ],
)
def test_what_is_wrong_with_a_certificate_is_told(words: str, reason: str, told: str) -> None:
    error = handshake_error(ALL + words)
    assert error is not None
    assert error.reason == reason
    assert told in error.message


def test_a_connection_that_ended_may_have_many_reasons() -> None:
    assert handshake_error(f"{ALL}Socket closed") is None
    assert looks_closed(f"{ALL}Socket closed")
    assert not looks_closed(f"{ALL}Connection refused")
