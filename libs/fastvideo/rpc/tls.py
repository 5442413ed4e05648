"""TLS by configuration: what a server shows, whom it lets in, and whom a client trusts.

Certificates are PEM files. A server reads them again when they change, at the next handshake, so
that they can be replaced without a restart; a client reads them when it opens a channel.
"""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from fastvideo.errors import InvalidField
from fastvideo.telemetry.logging import get_logger

if TYPE_CHECKING:
    import grpc

_LOG: Final = get_logger(__name__)
SYSTEM: Final = "system"
"""Where a CA is named: instead of a file, those that the machine trusts."""

_FILE_BYTES_MAX: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ServerTls:
    """What a server shows. With `client_ca` only clients with a certificate of that CA get in."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def __post_init__(self) -> None:
        """Raise InvalidField, naming the file, for what cannot be served with."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _load_pair(context, self.certificate, self.key)
        _read_ca(self.client_ca)

    def credentials(self) -> "grpc.ServerCredentials":
        """For a gRPC server; replaced files are used from the next connection on."""
        # Here, so that whoever only reads the configuration does without it.
        import grpc

        files = _Files(
            self._paths,
            lambda: grpc.ssl_server_certificate_configuration(
                [(self.key.read_bytes(), self.certificate.read_bytes())],
                None if self.client_ca is None else self.client_ca.read_bytes(),
            ),
        )
        return grpc.dynamic_ssl_server_credentials(
            files.read(), files.changed, require_client_authentication=self.client_ca is not None
        )

    def context(self) -> ssl.SSLContext:
        """For an HTTP server; replaced files are used from the next connection on."""
        return _ServerContext.of(self._paths, self._context)

    @property
    def _paths(self) -> tuple[Path, ...]:
        return (self.certificate, self.key, *([self.client_ca] if self.client_ca else []))

    def _context(self) -> ssl.SSLContext:
        """A context of the files as they are now."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        _load_pair(context, self.certificate, self.key)
        if self.client_ca is not None:
            context.load_verify_locations(self.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


@dataclass(frozen=True, slots=True)
class ClientTls:
    """Whom a client trusts, and what it shows of itself.

    `ca` is the file of the CA that the server's certificate must be of; None trusts those of the
    system. `name` is the name that the certificate must have, where that is not the one that is
    dialled, such as the address of a worker.
    """

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    name: str = ""

    def __post_init__(self) -> None:
        """Raise InvalidField, naming the file, for what no connection can be made with."""
        if (self.certificate is None) is not (self.key is None):
            raise InvalidField("tls", self.certificate or self.key, "a certificate and its key")
        _read_ca(self.ca)
        if self.certificate is not None and self.key is not None:
            _load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), self.certificate, self.key)

    def credentials(self) -> "grpc.ChannelCredentials":
        """For a gRPC channel, from the files as they are now."""
        import grpc

        return grpc.ssl_channel_credentials(
            root_certificates=None if self.ca is None else self.ca.read_bytes(),
            private_key=None if self.key is None else self.key.read_bytes(),
            certificate_chain=None if self.certificate is None else self.certificate.read_bytes(),
        )

    def context(self) -> ssl.SSLContext:
        """For an HTTP client, or a plain connection, from the files as they are now."""
        context = ssl.create_default_context(cafile=self.ca)
        if self.certificate is not None:
            context.load_cert_chain(self.certificate, self.key)
        return context


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """What a service shows, and how it dials others; None is without TLS."""

    server: ServerTls | None = None
    client: ClientTls | None = None


class _Files:
    """Reads files again when one of them was replaced; a broken replacement changes nothing."""

    def __init__(self, paths: tuple[Path, ...], read: Callable[[], Any]) -> None:
        self._paths = paths
        self._read = read
        self._seen: tuple[tuple[int, int, int], ...] = ()

    def read(self) -> Any:
        """What the files hold now."""
        self._seen = self._marks()
        return self._read()

    def changed(self) -> Any:
        """What the files hold, when they are others than at the last time; else None."""
        try:
            marks = self._marks()
            if marks == self._seen:
                return None
            self._seen = marks
            return self._read()
        except (OSError, ssl.SSLError, InvalidField) as error:
            # In the middle of being replaced, or wrong: what was read before goes on.
            _LOG.warning("the certificate on disk cannot be used", error=str(error))
            return None

    def _marks(self) -> tuple[tuple[int, int, int], ...]:
        stats = [path.stat() for path in self._paths]
        return tuple((one.st_ino, one.st_size, one.st_mtime_ns) for one in stats)


class _ServerContext(ssl.SSLContext):
    """Looks at its files before each handshake, and shakes hands by the newest that can be used.

    A context trusts every CA that it was ever given, so other files are another context.
    """

    _files: _Files
    _newest: ssl.SSLContext

    @classmethod
    def of(cls, paths: tuple[Path, ...], read: Callable[[], ssl.SSLContext]) -> Self:
        """A context that is made of files by a function."""
        context = cls(ssl.PROTOCOL_TLS_SERVER)
        context._files = _Files(paths, read)
        context._newest = context._files.read()
        return context

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        self._newest = self._files.changed() or self._newest
        return self._newest.wrap_bio(*args, **kwargs)


def _load_pair(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    for path in (certificate, key):
        _check_file(path)
    try:
        context.load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as error:
        raise InvalidField(
            "tls", str(certificate), f"a PEM certificate and its key, {key}; {error}"
        ) from error


def _read_ca(path: Path | None) -> None:
    if path is None:
        return
    _check_file(path)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except (ssl.SSLError, OSError) as error:
        raise InvalidField("tls", str(path), f"PEM certificates of a CA; {error}") from error


def _check_file(path: Path) -> None:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise InvalidField(
            "tls", str(path), f"a file that can be read; {error.strerror}"
        ) from error
    if size > _FILE_BYTES_MAX:
        raise InvalidField("tls", str(path), f"a file of at most {_FILE_BYTES_MAX} bytes")
