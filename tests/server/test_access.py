"""The rules of who may do what, as tables."""

from __future__ import annotations

import hmac
from collections.abc import Iterator

import pytest

from server.access import Access, Origin, is_loopback
from server.errors import Forbidden, Unauthenticated
from server.tokens import RIGHTS, TokenFile

PREDICT, METRICS, ADMIN, ALL = (f"the-token-with-{name}" for name in ("predict", "metrics", "admin", "all"))


@pytest.fixture
def tokens(tmp_path) -> Iterator[TokenFile]:
    path = tmp_path / "tokens"
    path.write_text(
        f"predict {PREDICT}\nmetrics {METRICS}\nadmin {ADMIN}\npredict,metrics,admin {ALL}\n", encoding="utf-8"
    )
    path.chmod(0o600)
    return TokenFile(path)


def outcome(access: Access, *arguments) -> int:
    try:
        access.check(*arguments)
    except (Unauthenticated, Forbidden) as error:
        return error.status
    return 200


@pytest.mark.parametrize(
    ("token", "statuses"),
    [(PREDICT, (200, 403, 403)), (METRICS, (403, 200, 403)), (ADMIN, (403, 403, 200)), (ALL, (200, 200, 200))],
)
def test_each_token_has_its_rights(tokens, token, statuses):
    access = Access(tokens=tokens, address="192.0.2.1")
    assert tuple(outcome(access, f"Bearer {token}", right) for right in RIGHTS) == statuses


@pytest.mark.parametrize(
    "authorization",
    [
        *(None, "", "Bearer", "Bearer ", "bearer   ", PREDICT, f"Basic {ALL}", f"Token {ALL}", f"Bearer{ALL}"),
        *(f"Bearer {ALL}x", f"Bearer {ALL[:-1]}", f"Bearer {ALL.upper()}", f"Bearer {ALL}, Bearer {ALL}"),
        *(f"Bearer {ALL} {ALL}", "Bearer sha256:", "Bearer \xff\xfe", "Bearer " + "x" * 100_000),
    ],
)
def test_what_is_no_token_opens_nothing(tokens, authorization):
    access = Access(tokens=tokens)
    for right in RIGHTS:
        assert outcome(access, authorization, right) == 401


def test_the_scheme_has_no_case_and_spaces_do_not_matter(tokens):
    assert outcome(Access(tokens=tokens), f" BEARER   {ALL} ", "predict") == 200


def test_a_digest_is_no_token(tokens):
    for known in tokens.tokens():
        for form in (known.digest.hex(), f"sha256:{known.digest.hex()}"):
            assert outcome(Access(tokens=tokens), f"Bearer {form}", "predict") == 401


@pytest.mark.parametrize("token", [PREDICT, ALL, "no-such-token-at-all"])
def test_every_token_is_compared_in_constant_time(tokens, token, monkeypatch):
    compared = []
    original = hmac.compare_digest
    monkeypatch.setattr(
        hmac, "compare_digest", lambda one, other: compared.append((len(one), len(other))) or original(one, other)
    )
    outcome(Access(tokens=tokens), f"Bearer {token}", "predict")
    assert compared == [(32, 32)] * 4


def test_no_sentence_shows_a_token(tokens):
    for authorization in (f"Bearer {PREDICT}", f"Basic {PREDICT}", f"Bearer {PREDICT}x"):
        with pytest.raises((Unauthenticated, Forbidden)) as refused:
            Access(tokens=tokens).check(authorization, "admin")
        assert PREDICT not in refused.value.message + str(refused.value.challenge) + repr(refused.value)


@pytest.mark.parametrize(
    ("address", "admin", "status", "sentence"),
    [
        ("127.0.0.1", "auto", 200, ""),
        ("127.8.9.1", "auto", 200, ""),
        ("::1", "auto", 200, ""),
        ("::ffff:127.0.0.1", "auto", 200, ""),
        ("0.0.0.0", "auto", 403, "since the server listens on 0.0.0.0: set `token_file`"),
        ("::", "auto", 403, "since the server listens on ::"),
        ("10.0.0.7", "auto", 403, "set `admin = on`"),
        ("fe80::1%eth0", "auto", 403, "listens on fe80::1"),
        ("0.0.0.0", "on", 200, ""),
        ("127.0.0.1", "on", 200, ""),
        ("127.0.0.1", "off", 403, "the setting `admin` says so"),
    ],
)
def test_admin_without_tokens(address, admin, status, sentence):
    access = Access(address=address, admin=admin)
    assert outcome(access, None, "predict") == outcome(access, None, "metrics") == 200
    assert outcome(access, None, "admin") == status
    if status != 200:
        with pytest.raises(Forbidden) as refused:
            access.check(None, "admin")
        assert sentence in refused.value.message


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_with_tokens_the_right_decides_unless_admin_is_off(tokens, address):
    for admin in ("auto", "on"):
        access = Access(address=address, admin=admin, tokens=tokens)
        assert outcome(access, f"Bearer {ADMIN}", "admin") == 200
        assert outcome(access, None, "admin") == 401
    off = Access(address=address, admin="off", tokens=tokens)
    assert outcome(off, f"Bearer {ADMIN}", "admin") == 403
    assert outcome(off, f"Bearer {ALL}", "predict") == 200


LOCAL_HOSTS = (
    "127.0.0.1",
    "127.0.0.1:8000",
    "localhost",
    "LOCALHOST:8000",
    "[::1]:8000",
    "[::1]",
    "::1",
    "a.localhost:1",
)
FOREIGN_HOSTS = (
    *("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.example:80", "10.0.0.1:8000"),
    *("[::1].evil.example", "127.0.0.1:8000:1", "evil.example#127.0.0.1", "", "notlocalhost", "127.0.0.1@evil.example"),
)


@pytest.mark.parametrize("host", LOCAL_HOSTS)
def test_hosts_that_are_this_machine(host):
    assert outcome(Access(), None, "admin", Origin(host=host)) == 200


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_a_name_that_was_made_to_resolve_to_this_machine(host):
    for admin in ("auto", "on"):
        assert outcome(Access(admin=admin), None, "admin", Origin(host=host)) == 403
    assert outcome(Access(), None, "predict", Origin(host=host)) == 200


@pytest.mark.parametrize("page", ["https://evil.example", "null", "http://127.0.0.1:8000", ""])
@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_a_web_page_never_changes_what_is_served(page, address, tokens):
    origin = Origin(page=page, host="127.0.0.1:8000")
    for admin in ("auto", "on"):
        assert outcome(Access(address=address, admin=admin), None, "admin", origin) == 403
    # With a token it may: a browser doesn't add one by itself, so somebody typed it in.
    assert outcome(Access(address=address, tokens=tokens), f"Bearer {ADMIN}", "admin", origin) == 200


def test_what_comes_through_a_proxy_is_not_from_this_machine():
    origin = Origin(host="127.0.0.1:8000", proxied=True)
    assert outcome(Access(), None, "admin", origin) == 403
    assert outcome(Access(admin="on"), None, "admin", origin) == 200


def test_names_are_not_addresses():
    assert not is_loopback("localhost")
    assert not is_loopback("")


@pytest.mark.parametrize(
    ("address", "admin", "with_tokens", "with_tls", "sentence"),
    [
        ("0.0.0.0", "auto", True, False, "tokens cross the network readable"),
        ("0.0.0.0", "auto", True, True, ""),
        ("127.0.0.1", "on", True, False, ""),
        ("0.0.0.0", "on", False, False, "whoever reaches 0.0.0.0 may change what is served"),
        ("0.0.0.0", "auto", False, False, ""),
    ],
)
def test_what_may_not_have_been_meant_is_said(tokens, caplog, address, admin, with_tokens, with_tls, sentence):
    Access(address=address, admin=admin, tokens=tokens if with_tokens else None).warn(with_tls=with_tls)
    assert (sentence in caplog.text) if sentence else not caplog.text
