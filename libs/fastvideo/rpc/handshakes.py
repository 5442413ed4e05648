"""Why no TLS connection came about: from gRPC's words, and where those say nothing, by trying.

gRPC answers UNAVAILABLE in all these cases; so do we, with a reason of its own, so that whoever
waits for a peer goes on waiting, and whoever looks knows what to mend.
"""

import asyncio
import re
import ssl
from datetime import UTC, datetime
from typing import Final

from cryptography import x509

from fastvideo.errors import Unavailable
from fastvideo.rpc.tls import ClientTls

UNTRUSTED: Final = "TLS_PEER_UNTRUSTED"
"""The peer's certificate is of another CA, expired, or of another name."""
REFUSED: Final = "TLS_CERTIFICATE_REFUSED"
"""The peer wants a certificate, or another one than it was shown."""
NO_TLS: Final = "TLS_NOT_SPOKEN"
"""The peer speaks in the clear."""
TLS_ONLY: Final = "TLS_REQUIRED"
"""The peer speaks TLS, and was spoken to in the clear."""
REASONS: Final = frozenset({UNTRUSTED, REFUSED, NO_TLS, TLS_ONLY})

PROBE_S_MAX: Final = 2.0

_VERIFY: Final = re.compile(r"CERTIFICATE_VERIFY_FAILED: ([\w ,'-]+)")
_NAME: Final = re.compile(r"[Hh]ostname|[Pp]eer name")
# What is left of a peer that ended the connection for a reason that it told in an alert.
_CLOSED: Final = ("Socket closed", "Connection reset", "closed")


def handshake_error(message: str) -> Unavailable | None:
    """What gRPC's message about a failed connection says of TLS; None when it says nothing."""
    if found := _VERIFY.search(message):
        return _untrusted(found.group(1).strip())
    if "WRONG_VERSION_NUMBER" in message:
        return Unavailable("the peer does not speak TLS", reason=NO_TLS)
    if "andshake" in message and _NAME.search(message):
        return _untrusted("it is of another name")
    return None


async def try_handshake(address: str, tls: ClientTls | None) -> Unavailable | None:
    """Why calls to "host:port" find it closed; None when TLS is not the reason."""
    host, _, port = address.rpartition(":")
    context = _permissive() if tls is None else tls.context()
    try:
        async with asyncio.timeout(PROBE_S_MAX):
            context.set_alpn_protocols(["h2"])
            name = host.strip("[]") if tls is None or not tls.name else tls.name
            reader, writer = await asyncio.open_connection(
                host.strip("[]"), int(port), ssl=context, server_hostname=name
            )
            try:
                # A server that lets this client in speaks first, and one that does not ends.
                refused = not await reader.read(1)
            finally:
                writer.close()
    except ssl.SSLCertVerificationError as error:
        return _untrusted(error.verify_message)
    except ssl.SSLError as error:
        if "WRONG_VERSION_NUMBER" in (error.reason or ""):
            return (
                None if tls is None else Unavailable("the peer does not speak TLS", reason=NO_TLS)
            )
        return _tls_only() if tls is None else _refused(tls)
    except (OSError, TimeoutError, ValueError):
        return None
    if tls is None:
        return _tls_only()
    return _refused(tls) if refused else None


def looks_closed(message: str) -> bool:
    """Whether gRPC only knows that the peer ended the connection."""
    return any(words in message for words in _CLOSED)


def _refused(tls: ClientTls) -> Unavailable:
    """The peer tells nothing, so this is what can be seen from here."""
    if tls.certificate is None:
        why = "it wants a certificate, and none was shown"
    else:
        good_until = x509.load_pem_x509_certificate(
            tls.certificate.read_bytes()
        ).not_valid_after_utc
        why = f"it does not take {tls.certificate}, which may be of another CA"
        if good_until < datetime.now(UTC):
            why = f"{tls.certificate} has expired, at {good_until:%Y-%m-%d %H:%M} UTC"
    return Unavailable(f"the peer refuses this client: {why}", reason=REFUSED)


def _untrusted(why: str) -> Unavailable:
    return Unavailable(f"the certificate of the peer is not trusted: {why}", reason=UNTRUSTED)


def _tls_only() -> Unavailable:
    return Unavailable(
        "the peer speaks TLS alone; name the CA of its certificate (FASTVIDEO_TLS_CA)",
        reason=TLS_ONLY,
    )


def _permissive() -> ssl.SSLContext:
    """Finds out whether there is TLS at all; nothing is sent through it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
