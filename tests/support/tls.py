"""TLS in front of a server on TCP, under a certificate of a test's own."""

import contextlib
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def certificate(folder: Path, host: str) -> Path:
    """A file with a key and a certificate for `host` that vouches for itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    text = key.private_bytes(pem, form, serialization.NoEncryption()) + made.public_bytes(pem)
    file = folder / f"{host}.pem"
    file.write_bytes(text)
    return file


@contextmanager
def tls_front(pem: Path, server: tuple[str, int]) -> Iterator[int]:
    """The port at which `server` is reached by TLS, one connection after the other."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_serve, args=(listener, context, server))
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _serve(listener: socket.socket, context: ssl.SSLContext, server: tuple[str, int]) -> None:
    while True:
        try:
            caller, _ = listener.accept()
        except OSError:
            return
        with caller, contextlib.suppress(OSError), context.wrap_socket(caller, server_side=True) as near:
            _join(near, server)


def _join(near: ssl.SSLSocket, server: tuple[str, int]) -> None:
    """In one thread: an SSL socket is not to be read and written by two."""
    with socket.create_connection(server) as far:
        while True:
            ready, _, _ = select.select([near, far], [], [])
            for source, sink in ((near, far), (far, near)):
                if source in ready:
                    data = source.recv(65_536)
                    while source is near and near.pending():  # what is decrypted already, select does not see
                        data += near.recv(65_536)
                    if not data:
                        return
                    sink.sendall(data)
