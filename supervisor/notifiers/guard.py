"""The guard in front of every message to a receiver that somebody has named: where may it lead?

Only https, to a name on the usual ports, whose every address is on the open internet. The name is looked up at every
try and the connection is made to one of the addresses that were judged, never to the name again: a name that answers
with a public address first and with a private one a moment later (DNS rebinding) leads nowhere. Whoever runs the
supervisor may allow hosts for which none of this holds.

Which addresses belong to the open internet: the judgement behind the guard, on texts alone.

A receiver's name is chosen by whoever adds an endpoint, and may lead to the cloud's metadata server or to a neighbour
of ours. `ipaddress.is_global` is no judge of that: in Python 3.11 it calls multicast global, and an IPv6 address in
which a private IPv4 address is packed (NAT64, 6to4). So what is open is listed, and what is packed is taken out.
The lists are IANA's registries of special-purpose addresses, and the addresses inside of a cloud that look public.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from urllib.parse import SplitResult, urlsplit

_CLOSED_4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",
        "100.64.0.0/10",  # shared behind a carrier's NAT; some clouds' metadata
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's host
        "169.254.0.0/16",  # link-local: metadata servers
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
_OPEN_6 = IPv6Network("2000::/3")  # the only part of IPv6 that is given out
# Protocols, Teredo among them; documentation; 6to4: an IPv4 address behind a relay; documentation.
_CLOSED_6 = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")))
_NAT64 = IPv6Network("64:ff9b::/96")
_ISATAP = (0x00005EFE, 0x02005EFE)  # the third quarter of an address that holds an IPv4 address in its fourth


def is_public(text: str) -> bool:
    """False for everything that is not one address on the open internet, a text that is no address included."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if isinstance(address, IPv4Address):
        return _open_4(address)
    return _open_6(address)


def _open_4(address: IPv4Address) -> bool:
    return not any(address in network for network in _CLOSED_4)


def _open_6(address: IPv6Address) -> bool:
    if address.scope_id is not None:
        return False
    if address.ipv4_mapped is not None:
        return _open_4(address.ipv4_mapped)
    last = IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _NAT64:
        return _open_4(last)
    if (int(address) >> 32) & 0xFFFFFFFF in _ISATAP and not _open_4(last):
        return False
    return address in _OPEN_6 and not any(address in network for network in _CLOSED_6)


def is_literal(host: str) -> bool:
    """An address instead of a name, in any spelling that a resolver takes for one: 127.1, 0x7f000001, [::1]."""
    if ":" in host:
        return True
    last = host.rstrip(".").rpartition(".")[2].lower()
    if last.isdigit():
        return True
    if last.startswith("0x") and all(char in "0123456789abcdef" for char in last[2:]):
        return True
    try:
        IPv4Address(host)
    except AddressValueError:
        return False
    return True


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
