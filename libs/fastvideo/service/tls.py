"""The TLS variables, which every service has."""

from pathlib import Path

from fastvideo.errors import InvalidField
from fastvideo.rpc.tls import SYSTEM, ClientTls, ServerTls, TlsConfig
from fastvideo.service.environment import Environment

CERTIFICATE = "FASTVIDEO_TLS_CERT"
KEY = "FASTVIDEO_TLS_KEY"
CLIENT_CA = "FASTVIDEO_TLS_CLIENT_CA"
CA = "FASTVIDEO_TLS_CA"
CLIENT_CERTIFICATE = "FASTVIDEO_TLS_CLIENT_CERT"
CLIENT_KEY = "FASTVIDEO_TLS_CLIENT_KEY"
PEER_NAME = "FASTVIDEO_TLS_PEER_NAME"


def tls_of(environment: Environment) -> TlsConfig:
    """What a service shows, and how it dials others. InvalidField names a variable that is wrong.

    Where no other certificate is named, a service shows those that it dials the one that it
    serves with.
    """
    return TlsConfig(server=_server(environment), client=client_tls_of(environment))


def client_tls_of(environment: Environment) -> ClientTls | None:
    """How to dial others; None, in the clear, without FASTVIDEO_TLS_CA.

    Instead of a file it may say "system", for the authorities that the machine trusts.
    """
    given = environment.path(CA)
    ca = None if given == Path(SYSTEM) else given
    certificate, key = _pair(environment, CLIENT_CERTIFICATE, CLIENT_KEY)
    if given is None:
        if certificate is not None:
            raise InvalidField(
                CA, "", f"the CA of those who are dialled, since {CLIENT_KEY} is set"
            )
        return None
    if certificate is None:
        certificate, key = _pair(environment, CERTIFICATE, KEY)
    try:
        return ClientTls(ca, certificate, key, environment.text(PEER_NAME))
    except InvalidField as error:
        raise InvalidField(f"{CA} or {CLIENT_CERTIFICATE}", "", error.message) from error


def _server(environment: Environment) -> ServerTls | None:
    certificate, key = _pair(environment, CERTIFICATE, KEY)
    client_ca = environment.path(CLIENT_CA)
    if certificate is None or key is None:
        if client_ca is not None:
            raise InvalidField(CERTIFICATE, "", f"a certificate, since {CLIENT_CA} is set")
        return None
    try:
        return ServerTls(certificate, key, client_ca)
    except InvalidField as error:
        raise InvalidField(f"{CERTIFICATE} or {CLIENT_CA}", "", error.message) from error


def _pair(environment: Environment, certificate: str, key: str) -> tuple[Path | None, Path | None]:
    """Two variables that go together."""
    found = environment.path(certificate), environment.path(key)
    if (found[0] is None) is not (found[1] is None):
        absent, present = (certificate, key) if found[0] is None else (key, certificate)
        raise InvalidField(absent, "", f"a file, since {present} is set")
    return found
