"""The server's certificate and key: read and checked at the start, so that what is wrong with them is said there."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from server.settings import Settings, SettingsError

_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2; those of 1.3 are always on, and Python offers nothing older."""


@dataclass(frozen=True, slots=True)
class Tls:
    """The files, which fit together. `client_ca`: whose certificates callers must show, if they must."""

    certificate: Path
    key: Path
    password: str | None = field(repr=False)
    client_ca: Path | None


def read_tls(settings: Settings) -> Tls | None:
    """Returns what the settings ask for, None for no TLS. Raises SettingsError if that can't work."""
    certificate, key, client_ca = settings.tls_certificate, settings.tls_key, settings.tls_client_ca
    if certificate is None or key is None:
        if certificate or key or client_ca:
            raise SettingsError("TLS takes both `tls_certificate` and `tls_key`")
        return None
    password = settings.tls_key_password.get_secret_value() if settings.tls_key_password else None
    for name, path in (("tls_certificate", certificate), ("tls_key", key), ("tls_client_ca", client_ca)):
        if path is not None:
            _check_readable(name, path)
    _check_pair(certificate, key, password)
    if client_ca is not None:
        _check_authorities(client_ca)
    return Tls(certificate, key, password, client_ca)


def uvicorn_options(tls: Tls | None) -> dict[str, Any]:
    """Returns what uvicorn takes for it; nothing for no TLS."""
    if tls is None:
        return {}
    callers = {"ssl_ca_certs": str(tls.client_ca), "ssl_cert_reqs": ssl.CERT_REQUIRED} if tls.client_ca else {}
    return {
        "ssl_certfile": tls.certificate,
        "ssl_keyfile": tls.key,
        "ssl_keyfile_password": tls.password,
        "ssl_ciphers": _CIPHERS,
        **callers,
    }


def _check_readable(name: str, path: Path) -> None:
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        raise SettingsError(f"{name} {path}: {(error.strerror or 'it can not be read').lower()}") from None


def _check_pair(certificate: Path, key: Path, password: str | None) -> None:
    asked = False

    def give_password() -> str:
        nonlocal asked
        asked = True
        return password or ""

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, give_password)
    except ssl.SSLError as error:
        raise SettingsError(_explain(error, certificate, key, asked, password)) from None


def _explain(error: ssl.SSLError, certificate: Path, key: Path, asked: bool, password: str | None) -> str:
    if asked and password is None:
        return f"tls_key {key} is encrypted: set BATCHD_TLS_KEY_PASSWORD, or tls_key_password in the settings file"
    if asked:
        return f"tls_key {key} can't be decrypted with the tls_key_password that is set"
    if error.reason == "KEY_VALUES_MISMATCH":
        return f"tls_key {key} doesn't belong to tls_certificate {certificate}"
    return f"tls_certificate {certificate} and tls_key {key} can't be used: they must be PEM files ({error.reason})"


def _check_authorities(client_ca: Path) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(client_ca)
    except ssl.SSLError as error:
        raise SettingsError(f"tls_client_ca {client_ca} has no certificate in PEM form ({error.reason})") from None
