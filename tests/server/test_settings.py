"""Flag > environment > file > default, ranges, and the sentences for what is wrong."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from server.settings import Settings, SettingsError, load_settings


def test_each_source_beats_the_next(tmp_path):
    file = tmp_path / "b.toml"
    file.write_text('port = 1\nqueue_limit_examples = 1\nhost = "::1"\n')
    environment = {"BATCHD_PORT": "2", "BATCHD_QUEUE_LIMIT_EXAMPLES": "2", "OTHER": "x"}
    settings = load_settings({"port": 3, "host": None}, environment, file)
    assert (settings.port, settings.source("port")) == (3, "flag")
    assert (settings.queue_limit_examples, settings.source("queue_limit_examples")) == (2, "environment")
    assert (settings.host, settings.source("host")) == ("::1", "file")
    assert (settings.seed, settings.source("seed")) == (0, "default")
    assert "port = 3 (flag)" in settings.lines()
    assert len(settings.lines()) == len(Settings.model_fields)


def test_the_file_is_optional_unless_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_settings({}, {}).port == 8000
    (tmp_path / "batchd.toml").write_text("port = 5\n")
    assert load_settings({}, {}).port == 5
    (tmp_path / "other.toml").write_text("port = 6\n")
    assert load_settings({}, {"BATCHD_CONFIG": "other.toml"}).port == 6
    with pytest.raises(SettingsError, match=r"nothing\.toml: no such file"):
        load_settings({}, {"BATCHD_CONFIG": "nothing.toml"})
    (tmp_path / "batchd.toml").write_text("port = \n")
    with pytest.raises(SettingsError, match=r"batchd\.toml: Invalid value"):
        load_settings({}, {})


def test_all_that_is_wrong_is_said_at_once(tmp_path):
    file = tmp_path / "b.toml"
    file.write_text("prot = 1\n")
    with pytest.raises(SettingsError) as refused:
        load_settings({"port": 99999}, {"BATCHD_REQUEST_TIMEOUT_S": "soon"}, file)
    message = refused.value.message
    assert "setting 'prot' (from file): there is no such setting" in message
    assert "setting 'port' (from flag): Input should be less than or equal to 65535, got 99999" in message
    assert "setting 'request_timeout_s' (from environment): Input should be a valid number" in message


def test_settings_are_frozen_and_described():
    settings = Settings()
    with pytest.raises(ValidationError):
        settings.port = 1
    assert all(field.description for field in Settings.model_fields.values())


def test_a_secret_is_not_shown(tmp_path):
    settings = load_settings({}, {"BATCHD_TLS_KEY_PASSWORD": "hunter2"})
    assert settings.tls_key_password.get_secret_value() == "hunter2"
    assert "hunter2" not in "\n".join(settings.lines()) + repr(settings)
    assert "tls_key_password = ********** (environment)" in settings.lines()
    file = tmp_path / "b.toml"
    file.write_text("tls_key_password = 1234567\n")
    with pytest.raises(SettingsError) as refused:
        load_settings({}, {}, file)
    assert "setting 'tls_key_password' (from file)" in refused.value.message
    assert "1234567" not in refused.value.message
