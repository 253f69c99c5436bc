"""The token file: what it may hold, what is refused without being shown, and that changes are seen."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from pathlib import Path

import pytest

from server.settings import SettingsError
from server.tokens import RECHECK_S, TokenFile, digest_of, parse_tokens

ROOT = Path(__file__).parents[2]
ONE, OTHER = "a-token-of-the-shop.1", "another/token+of~us=="


def test_a_file_with_everything():
    text = f"""# tokens
    predict           {ONE}   # of the shop
\t
predict,metrics,admin\tsha256:{hashlib.sha256(OTHER.encode()).hexdigest().upper()}
"""
    tokens = parse_tokens(text, "t")
    assert [token.digest for token in tokens] == [digest_of(ONE), digest_of(OTHER)]
    assert [set(token.rights) for token in tokens] == [{"predict"}, {"predict", "metrics", "admin"}]
    assert ONE not in repr(tokens)
    assert tokens[0].digest.hex() not in repr(tokens)


def test_the_file_that_the_documents_show():
    (shown,) = re.findall(r"^```text\n(# rights.*?)^```", (ROOT / "docs" / "security.md").read_text(), re.M | re.S)
    assert [sorted(token.rights) for token in parse_tokens(shown, "t")] == [
        ["predict"],
        ["metrics", "predict"],
        ["admin"],
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "there is no token in it"),
        ("# predict a-token-of-the-shop\n\n", "there is no token in it"),
        ("predict\n", "line 1: expected the rights, separated by commas, and then one token"),
        (f"predict {ONE} {OTHER}\n", "line 1: expected the rights"),
        (f"predict, metrics {ONE}\n", "line 1: expected the rights"),
        (f"\nread {ONE}\n", "line 2: unknown right; the rights are predict, metrics, admin"),
        (f"{ONE} predict\n", "line 1: unknown right"),
        (f"predict, {ONE}\n", "line 1: unknown right"),
        ("predict short-secret-15\n", "line 1: the token is too short: 16 characters are the least"),
        ("predict a-token-with-umläut\n", "line 1: a token is made of letters, digits"),
        ("predict sha256:0123\n", "line 1: behind sha256: belong 64 hexadecimal digits"),
        (f"predict {ONE}\nmetrics {ONE}\n", "line 2: the token of line 1 again"),
        (f"predict {ONE}\nadmin sha256:{digest_of(ONE).hex()}", "line 2: the token of line 1 again"),
        (f"x {ONE}\ny {OTHER}\n", "line 1: unknown right; the rights are predict, metrics, admin, and stand before"),
    ],
)
def test_what_is_refused_and_never_shown(text, sentence):
    if "short" in text:
        text = text.replace("short-secret-15", "short-secret-15"[:15])
    with pytest.raises(SettingsError) as refused:
        parse_tokens(text, "the/file")
    message = refused.value.message
    assert message.startswith("token file the/file: ")
    assert sentence in message
    assert not any(word in message for word in text.split() if len(word) > 12)


def test_all_that_is_wrong_is_said_at_once():
    with pytest.raises(SettingsError, match=r"line 1: unknown right.*; line 3: the token is too short"):
        parse_tokens(f"x {ONE}\npredict {OTHER}\npredict short\n", "t")


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(SettingsError, match=r"token file .*nothing: no such file or directory"):
        TokenFile(tmp_path / "nothing")
    with pytest.raises(SettingsError, match=r"token file .*: is a directory"):
        TokenFile(tmp_path)
    (tmp_path / "bytes").write_bytes(b"predict \xff\xfe\xff")
    with pytest.raises(SettingsError, match=r"it isn't UTF-8 text"):
        TokenFile(tmp_path / "bytes")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_of_somebody_else(tmp_path):
    (tmp_path / "t").write_text(f"predict {ONE}\n")
    (tmp_path / "t").chmod(0)
    with pytest.raises(SettingsError, match="permission denied"):
        TokenFile(tmp_path / "t")


@pytest.mark.parametrize(("mode", "warns"), [(0o600, False), (0o640, False), (0o644, True), (0o602, True)])
def test_a_file_that_everybody_can_read_is_warned_of(tmp_path, caplog, mode, warns):
    path = tmp_path / "t"
    path.write_text(f"predict {ONE}\n")
    path.chmod(mode)
    TokenFile(path)
    assert ("open to every user" in caplog.text) == warns


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def digests(file: TokenFile) -> list[bytes]:
    return [token.digest for token in file.tokens()]


@pytest.fixture
def path(tmp_path) -> Path:
    path = tmp_path / "t"
    path.write_text(f"predict {ONE}\n")
    path.chmod(0o600)
    return path


def test_a_line_ends_where_an_editor_ends_it():
    for end in "\u2028\u0085\x0b\x0c\x1c":
        text = f"predict {ONE}  # a comment{end}admin {OTHER}\n"
        assert [token.digest for token in parse_tokens(text, "tokens")] == [digest_of(ONE)]
    with pytest.raises(SettingsError, match="line 2"):
        parse_tokens(f"predict {ONE}\r\nnonsense\r\n", "tokens")


def test_a_pipe_is_not_waited_for(path, caplog):
    clock = Clock()
    file = TokenFile(path, clock)
    path.unlink()
    os.mkfifo(path)
    clock.now += RECHECK_S
    assert digests(file) == [digest_of(ONE)]
    assert "it isn't a regular file" in caplog.text
    with pytest.raises(SettingsError, match="regular file"):
        TokenFile(path, clock)


def test_a_changed_file_is_seen_within_the_time_said(path):
    clock = Clock()
    file = TokenFile(path, clock)
    path.write_text(f"predict {OTHER}\n")
    assert digests(file) == [digest_of(ONE)]
    clock.now += RECHECK_S
    assert digests(file) == [digest_of(OTHER)]


def test_a_replaced_file_is_seen_though_time_and_size_are_the_same(path):
    clock = Clock()
    file = TokenFile(path, clock)
    new = path.with_name("new")
    new.write_text(f"predict {ONE[::-1]}\n")
    os.utime(new, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    new.replace(path)
    clock.now += RECHECK_S
    assert digests(file) == [digest_of(ONE[::-1])]


def test_a_file_that_breaks_keeps_the_tokens_and_is_said_once(path, caplog):
    clock = Clock()
    file = TokenFile(path, clock)
    path.write_text("predict nonsense\n")
    for _ in range(3):
        clock.now += RECHECK_S
        assert digests(file) == [digest_of(ONE)]
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "the tokens stay as they were" in caplog.text
    assert "nonsense" not in caplog.text
    path.unlink()
    clock.now += RECHECK_S
    assert digests(file) == [digest_of(ONE)]
    path.write_text(f"admin {OTHER}\n")
    clock.now += RECHECK_S
    assert digests(file) == [digest_of(OTHER)]


def test_the_file_is_not_looked_at_for_every_request(path, monkeypatch):
    clock = Clock()
    file = TokenFile(path, clock)
    looks = []
    real = os.stat
    monkeypatch.setattr(os, "stat", lambda *args, **kwargs: looks.append(args) or real(*args, **kwargs))
    clock.now += RECHECK_S
    for _ in range(1000):
        file.tokens()
    assert len(looks) == 1
