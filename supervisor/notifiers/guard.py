"""The guard in front of every message to a receiver that somebody has named: where may it lead?

Only https, to a name on the usual ports, whose every address is on the open internet. The name is looked up at every
try and the connection is made to one of the addresses that were judged, never to the name again: a name that answers
with a public address first and with a private one a moment later (DNS rebinding) leads nowhere. Whoever runs the
supervisor may allow hosts for which none of this holds.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

from supervisor.notifiers.addresses import is_literal, is_public

PORTS = (443, 8443)
URL_MAX = 2000
HOST_MAX = 253
_NAME = re.compile(r"([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_PLAIN = re.compile(r"[!#-;=?-\[\]_a-z~]+")  # printable ASCII without space, " < > \ ^ ` { | }
DEFAULT_PORTS = {"http": 80, "https": 443}
NOT_PUBLIC = "its host has no public address"

Resolve = Callable[[str, int], Sequence[str]]


class NoSuchHost(Exception):
    pass


class Refused(Exception):
    """The text says why, and names no address that was looked up: an answer must not map somebody's network."""


@dataclass(frozen=True, slots=True)
class Way:
    """`addresses`: judged, in the order in which they are to be tried. `netloc`: as the header Host names it."""

    scheme: str
    host: str
    port: int
    addresses: tuple[str, ...]
    url: str = field(repr=False)

    @property
    def netloc(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


def look_up(host: str, port: int) -> Sequence[str]:
    """Raises NoSuchHost. Not bounded in time."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise NoSuchHost(host) from None
    return list(dict.fromkeys(str(one[4][0]) for one in found))


class Guard:
    """`allowed`: hosts, or host:port, that may be private and take http; in lower case."""

    def __init__(self, allowed: Collection[str] = (), resolve: Resolve | None = None) -> None:
        self._allowed = frozenset(allowed)
        self._resolve = look_up if resolve is None else resolve

    def why_refused(self, url: str) -> str:
        """ "" = messages may go there now."""
        try:
            self.way(url)
        except Refused as error:
            return str(error)
        except NoSuchHost:
            return NOT_PUBLIC
        return ""

    def way(self, url: str, trusted: bool = False) -> Way:
        """Where to connect. Raises Refused, NoSuchHost."""
        parts, host, port = _split(url)
        free = trusted or host in self._allowed or f"{host}:{port}" in self._allowed
        if not free:
            _refuse_shape(parts, host, port)
        addresses = tuple(self._resolve(host, port))
        if not addresses:
            raise NoSuchHost(host)
        if not free and not all(is_public(address) for address in addresses):
            raise Refused(NOT_PUBLIC)
        return Way(parts.scheme, host, port, addresses, url)


def _split(url: str) -> tuple[SplitResult, str, int]:
    if len(url) > URL_MAX or not _PLAIN.fullmatch(url):
        raise Refused(f"it must be at most {URL_MAX} printable ASCII characters without spaces and quotes")
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        raise Refused("it is no address such as https://HOST/PATH") from None
    if parts.scheme not in DEFAULT_PORTS or not host or len(host) > HOST_MAX or port == 0:
        raise Refused("it is no address such as https://HOST/PATH")
    if "@" in parts.netloc:
        raise Refused("it must hold no user name and no password")
    if "#" in url:
        raise Refused("it must not have a part behind #")
    return parts, host, port or DEFAULT_PORTS[parts.scheme]


def _refuse_shape(parts: SplitResult, host: str, port: int) -> None:
    if parts.scheme != "https":
        raise Refused("it must begin with https://")
    if is_literal(host):
        raise Refused("its host must be a name, not a number")
    if not _NAME.fullmatch(host):
        raise Refused("its host must be a whole name such as hooks.example.org")
    if port not in PORTS:
        raise Refused("its port must be {}".format(" or ".join(map(str, PORTS))))
