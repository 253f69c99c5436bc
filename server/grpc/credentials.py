"""The same certificate and key for gRPC, which takes their text, and no password."""

from __future__ import annotations

import grpc

from server.settings import SettingsError
from server.tls import Tls


def server_credentials(tls: Tls) -> grpc.ServerCredentials:
    """Returns what a gRPC server listens with. Raises SettingsError for an encrypted key that can't be opened here."""
    key = tls.key.read_bytes()
    if tls.password is not None:
        key = _decrypted(key, tls)
    authorities = tls.client_ca.read_bytes() if tls.client_ca else None
    return grpc.ssl_server_credentials(
        [(key, tls.certificate.read_bytes())], authorities, require_client_auth=authorities is not None
    )


def _decrypted(key: bytes, tls: Tls) -> bytes:
    try:
        from cryptography.hazmat.primitives import serialization
    except ImportError:
        raise SettingsError(
            "gRPC takes no encrypted key by itself: `pip install cryptography`, or give it a tls_key without a password"
        ) from None
    assert tls.password is not None
    try:
        opened = serialization.load_pem_private_key(key, tls.password.encode())
    except TypeError:  # it wasn't encrypted, and a password was set all the same
        return key
    return opened.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
