"""Real certificates, made for one test: an authority, a server's for 127.0.0.1, a client's, and keys in odd states."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization

PASSWORD = "a-password-for-the-key"


@dataclass(frozen=True)
class Certificates:
    """PEM files. `encrypted_key` is `key` under PASSWORD; `other_key` belongs to another certificate."""

    authority: Path
    certificate: Path
    key: Path
    encrypted_key: Path
    other_key: Path
    client_certificate: Path
    client_key: Path

    def trusting(self, *, as_client: bool = False) -> ssl.SSLContext:
        """What a client trusts, and, as a client with a certificate, shows."""
        context = ssl.create_default_context(cafile=self.authority)
        if as_client:
            context.load_cert_chain(self.client_certificate, self.client_key)
        return context


def make_certificates(folder: Path) -> Certificates:
    """Writes them into a folder."""
    authority, stranger = trustme.CA(), trustme.CA()
    server = authority.issue_cert("127.0.0.1", "localhost")
    client = authority.issue_cert("client@example.org")
    authority.cert_pem.write_to_path(folder / "authority.pem")
    for name, cert in (("server", server), ("client", client), ("other", stranger.issue_cert("127.0.0.1"))):
        cert.private_key_pem.write_to_path(folder / f"{name}.key")
        for index, blob in enumerate(cert.cert_chain_pems):
            blob.write_to_path(folder / f"{name}.pem", append=index > 0)
    key = serialization.load_pem_private_key(server.private_key_pem.bytes(), None)
    (folder / "encrypted.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(PASSWORD.encode()),
        )
    )
    return Certificates(
        authority=folder / "authority.pem",
        certificate=folder / "server.pem",
        key=folder / "server.key",
        encrypted_key=folder / "encrypted.key",
        other_key=folder / "other.key",
        client_certificate=folder / "client.pem",
        client_key=folder / "client.key",
    )
