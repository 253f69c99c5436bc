"""The token file: one line a token, what it may do and then the token itself or its SHA-256.

    # the web shop
    predict           lK3xN8w2Rk0sQ5vT9yB1
    predict,metrics   sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
    admin             4o1Zq6c8...             # deployments

Of a token only the digest is kept, and nothing here prints one: what is wrong is told by the number of its line. The
file is looked at again, at most once a second and only while requests come, and read anew when it has changed: so
tokens come and go without a restart and without a signal, which a file mounted by an orchestrator couldn't send. A
file that can't be used any more leaves the tokens as they were.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from server.settings import SettingsError

_log = logging.getLogger("batchd.tokens")

Right: TypeAlias = Literal["predict", "metrics", "admin"]
RIGHTS: tuple[Right, ...] = get_args(Right)

SHORTEST_TOKEN = 16
RECHECK_S = 1.0
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""What may stand behind `Bearer` (RFC 6750)."""
_DIGEST = re.compile(r"sha256:([0-9a-fA-F]{64})")
_COMMENT = re.compile(r"(?:^|\s)#.*")


@dataclass(frozen=True, slots=True, repr=False)
class Token:
    """The SHA-256 of a token, and what it may do."""

    digest: bytes
    rights: frozenset[Right]


def digest_of(token: str) -> bytes:
    """Returns what stands for a token. (Tokens are long and random, so a plain hash gives nothing away.)"""
    return hashlib.sha256(token.encode()).digest()


def parse_tokens(text: str, name: str) -> tuple[Token, ...]:
    """Returns the tokens of a file's text. Raises SettingsError with everything that is wrong, by line."""
    found: dict[bytes, int] = {}
    tokens: list[Token] = []
    problems: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):  # an editor, too, ends a line nowhere else
        words = _COMMENT.sub("", line).split()
        if not words:
            continue
        token = _token_of(words)
        if isinstance(token, str):
            problems.append(f"line {number}: {token}")
        elif token.digest in found:
            problems.append(f"line {number}: the token of line {found[token.digest]} again; give it all rights there")
        else:
            found[token.digest] = number
            tokens.append(token)
    if not tokens and not problems:
        problems.append("there is no token in it")
    if problems:
        raise SettingsError(f"token file {name}: {'; '.join(problems)}")
    return tuple(tokens)


def _token_of(words: Sequence[str]) -> Token | str:
    """Returns the token of a line, or what is wrong; without quoting, since anything there may be a secret."""
    if len(words) != 2:
        return "expected the rights, separated by commas, and then one token, as in `predict,metrics TOKEN`"
    rights = words[0].split(",")
    if not set(rights) <= set(RIGHTS):
        return f"unknown right; the rights are {', '.join(RIGHTS)}, and stand before the token"
    secret = words[1]
    if hashed := _DIGEST.fullmatch(secret):
        digest = bytes.fromhex(hashed[1])
    elif secret.startswith("sha256:"):
        return "behind sha256: belong 64 hexadecimal digits"
    elif not _TOKEN.fullmatch(secret):
        return "a token is made of letters, digits and - . _ ~ + /, with = only at its end"
    elif len(secret) < SHORTEST_TOKEN:
        return f"the token is too short: {SHORTEST_TOKEN} characters are the least, 32 random ones are good"
    else:
        digest = digest_of(secret)
    return Token(digest, frozenset(right for right in RIGHTS if right in rights))


class TokenFile:
    """The tokens of a file, as they are now. Raises SettingsError if it can't be used at the start."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._state, self._tokens = self._read()
        self._look_again_at = clock() + RECHECK_S

    def tokens(self) -> tuple[Token, ...]:
        """Returns the tokens, those of a file that has changed within a second or so."""
        now = self._clock()
        if now >= self._look_again_at:
            self._look_again_at = now + RECHECK_S
            self._look_again()
        return self._tokens

    def _look_again(self) -> None:
        try:
            if _state_of(os.stat(self._path)) == self._state:
                return
            self._state, self._tokens = self._read()
        except (OSError, SettingsError) as error:
            problem = str(error)
            if self._state is not None:
                _log.error("the tokens stay as they were: %s", problem)
            self._state = None
        else:
            _log.info("token file %s was read again: %d tokens", self._path, len(self._tokens))

    def _read(self) -> tuple[tuple[int, ...] | None, tuple[Token, ...]]:
        try:
            # A pipe would be waited for, and with it everything else.
            with open(os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                found = os.fstat(file.fileno())
                if not stat.S_ISREG(found.st_mode):
                    raise SettingsError(f"token file {self._path}: it isn't a regular file")
                text = file.read().decode("utf-8-sig")
        except UnicodeDecodeError:
            raise SettingsError(f"token file {self._path}: it isn't UTF-8 text") from None
        except OSError as error:
            raise SettingsError(f"token file {self._path}: {(error.strerror or 'can not be read').lower()}") from None
        tokens = parse_tokens(text, str(self._path))
        if found.st_mode & (stat.S_IROTH | stat.S_IWOTH):
            _log.warning("token file %s is open to every user of this machine; `chmod 600` it", self._path)
        return _state_of(found), tokens


def _state_of(found: os.stat_result) -> tuple[int, ...]:
    """What differs when a file was written or replaced."""
    return found.st_mtime_ns, found.st_size, found.st_ino
