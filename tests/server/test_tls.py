"""What is wrong with certificates and keys is said at the start, with what to do about it."""

from __future__ import annotations

import pytest

from server.settings import Settings, SettingsError
from server.tls import read_tls
from tests.support.certificates import PASSWORD, Certificates, make_certificates


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def test_nothing_asked_is_no_tls():
    assert read_tls(Settings()) is None


def test_what_fits_is_taken(made):
    tls = read_tls(Settings(tls_certificate=made.certificate, tls_key=made.key, tls_client_ca=made.authority))
    assert tls is not None
    assert (tls.certificate, tls.client_ca, tls.password) == (made.certificate, made.authority, None)
    tls = read_tls(Settings(tls_certificate=made.certificate, tls_key=made.encrypted_key, tls_key_password=PASSWORD))
    assert tls is not None
    assert PASSWORD not in repr(tls)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"tls_certificate": "certificate"}, "TLS takes both `tls_certificate` and `tls_key`"),
        ({"tls_key": "key"}, "TLS takes both"),
        ({"tls_client_ca": "authority"}, "TLS takes both"),
        ({"tls_certificate": "certificate", "tls_key": "other_key"}, "doesn't belong to tls_certificate"),
        ({"tls_certificate": "certificate", "tls_key": "certificate"}, "must be PEM files"),
        ({"tls_certificate": "key", "tls_key": "key"}, "must be PEM files"),
        ({"tls_certificate": "certificate", "tls_key": "encrypted_key"}, "is encrypted: set BATCHD_TLS_KEY_PASSWORD"),
        (
            {"tls_certificate": "certificate", "tls_key": "key", "tls_client_ca": "key"},
            "has no certificate in PEM form",
        ),
    ],
)
def test_what_does_not_fit_is_said(made, asked, sentence):
    settings = Settings(**{name: getattr(made, file) for name, file in asked.items()})
    with pytest.raises(SettingsError, match=sentence):
        read_tls(settings)


def test_a_wrong_password_is_said_and_not_shown(made):
    settings = Settings(
        tls_certificate=made.certificate, tls_key=made.encrypted_key, tls_key_password="wrong-but-secret"
    )
    with pytest.raises(SettingsError, match="can't be decrypted with the tls_key_password") as refused:
        read_tls(settings)
    assert "wrong-but-secret" not in str(refused.value)


@pytest.mark.parametrize("name", ["tls_certificate", "tls_key", "tls_client_ca"])
def test_a_file_that_is_not_there(made, tmp_path, name):
    files = {"tls_certificate": made.certificate, "tls_key": made.key, name: tmp_path / "nothing.pem"}
    with pytest.raises(SettingsError, match=rf"{name} .*nothing\.pem: no such file"):
        read_tls(Settings(**files))


def test_a_file_that_is_no_certificate(made, tmp_path):
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("nonsense")
    with pytest.raises(SettingsError, match="must be PEM files"):
        read_tls(Settings(tls_certificate=nonsense, tls_key=made.key))
