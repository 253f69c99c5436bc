"""Who may do what. Pure: no network, no framework; HTTP and gRPC both ask here.

Without tokens everything is open but `admin`, which changes what the server serves: that is for callers on the same
machine, so only where the server listens on loopback. Even there a web page in somebody's browser can send requests
(to 127.0.0.1, or to a name of its own that it has made resolve to it), and a proxy can bring the whole world in; what
looks like either is refused. With tokens a caller's token decides: a browser doesn't send it by itself.
"""

from __future__ import annotations

import hmac
import logging
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Literal, TypeAlias

from server.errors import Forbidden, Unauthenticated
from server.tokens import Right, TokenFile, digest_of

_log = logging.getLogger("batchd.access")

Admin: TypeAlias = Literal["auto", "on", "off"]


@dataclass(frozen=True, slots=True)
class Origin:
    """What tells a request made by a browser or brought by a proxy. Empty where there is nothing of the kind.

    `page`: the header Origin, which browsers add to whatever changes something. `host`: the header Host.
    `proxied`: whether a proxy says that it passed the request on.
    """

    page: str | None = None
    host: str | None = None
    proxied: bool = False


UNKNOWN = Origin()


class Access:
    """Decides for one server. `address`: what it listens on, as the socket says. `admin`: the setting."""

    def __init__(self, *, address: str = "127.0.0.1", admin: Admin = "auto", tokens: TokenFile | None = None) -> None:
        self._address = address
        self._is_local = is_loopback(address)
        self._admin: Admin = admin
        self._tokens = tokens

    @property
    def has_tokens(self) -> bool:
        """Whether callers have to show a token."""
        return self._tokens is not None

    def warn(self, *, with_tls: bool) -> None:
        """Logs what an operator may not have meant, once, at the start."""
        if self._is_local:
            return
        if self._tokens is not None and not with_tls:
            _log.warning("tokens cross the network readable: the server listens on %s without TLS", self._address)
        if self._tokens is None and self._admin == "on":
            _log.warning("whoever reaches %s may change what is served: admin = on, and no token_file", self._address)

    def check(self, authorization: str | None, right: Right, origin: Origin = UNKNOWN) -> None:
        """Raises Unauthenticated or Forbidden unless a caller with this `Authorization` header has the right."""
        if self._tokens is None:
            if right == "admin":
                self._check_open_admin(origin)
            return
        rights = self._rights_of(_token_in(authorization))
        if right not in rights:
            raise Forbidden(f"this token doesn't have the right {right!r}", right)
        if right == "admin" and self._admin == "off":
            raise Forbidden(_IS_OFF)

    def _rights_of(self, token: str) -> frozenset[Right]:
        """Compares with every token, so that how long it takes says nothing."""
        assert self._tokens is not None
        digest = digest_of(token)
        rights: frozenset[Right] = frozenset()
        for known in self._tokens.tokens():
            if hmac.compare_digest(known.digest, digest):
                rights |= known.rights
        if not rights:
            raise Unauthenticated("this token isn't known here", "invalid_token")
        return rights

    def _check_open_admin(self, origin: Origin) -> None:
        if self._admin == "off":
            raise Forbidden(_IS_OFF)
        if origin.page is not None:
            raise Forbidden(f"a web page may not change what is served ({_FROM_A_BROWSER})")
        if self._is_local and origin.host is not None and not _is_local_name(origin.host):
            raise Forbidden(f"the header Host names another machine, as a web page's might ({_FROM_A_BROWSER})")
        if self._admin == "on":
            return
        if not self._is_local:
            raise Forbidden(
                f"changing what is served is off, since the server listens on {self._address}: set `token_file` and "
                "give a token the right `admin`, or set `admin = on` to allow everybody"
            )
        if origin.proxied:
            raise Forbidden(
                "changing what is served is off for callers that come through a proxy: set `token_file` and give a "
                "token the right `admin`, or set `admin = on` to allow everybody"
            )


_IS_OFF = "changing what is served is off: the setting `admin` says so"
_FROM_A_BROWSER = "with `token_file` set, one with a token may"


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        return found.ipv4_mapped.is_loopback
    return found.is_loopback


def _is_local_name(host: str) -> bool:
    """Whether a Host header, with or without a port, names this machine and nothing else."""
    name = host.strip().lower()
    if name.startswith("["):
        name, bracket, port = name[1:].partition("]")
        if not bracket or (port and not port.startswith(":")):
            return False
    else:
        name = name.rpartition(":")[0] if name.count(":") == 1 else name
    return name == "localhost" or name.endswith(".localhost") or is_loopback(name)


def _token_in(authorization: str | None) -> str:
    """Returns the token of an `Authorization: Bearer TOKEN` header."""
    if authorization is None:
        raise Unauthenticated("this needs a token: send it as `Authorization: Bearer TOKEN`")
    scheme, _, token = authorization.strip().partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise Unauthenticated("the header Authorization must be `Bearer TOKEN`")
    return token.strip()
