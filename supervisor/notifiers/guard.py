"""The guard before every message to a receiver that a user has named: may the connection be made, and to which address?

Only https, to a name on the usual ports, where every address of the name is on the public internet. The name is looked
up at every try, and the connection goes to one of the addresses that were checked, never to the name again: so a name
that first resolves to a public address and then to a private one (DNS rebinding) reaches nothing. The operator may
allow hosts that are exempt from all of this.

A name may resolve to the cloud's metadata server or to a neighbor of ours. `ipaddress.is_global` cannot decide that: in
Python 3.11 it calls multicast global, and IPv6 addresses that carry a private IPv4 address (NAT64, 6to4) too. So the
networks are listed here, from IANA's registries of special-purpose addresses, with the addresses inside clouds that
look public; a carried address is extracted.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from urllib.parse import SplitResult, urlsplit

PORTS = (443, 8443)
URL_MAX = 2000
HOST_MAX = 253
DEFAULT_PORTS = {"http": 80, "https": 443}
NOT_PUBLIC = "its host has no public address"
_NAME = re.compile(r"([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]([a-z0-9-]{0,61}[a-z0-9])?")
_PLAIN = re.compile(r"[!#-;=?-\[\]_a-z~]+")  # printable ASCII without space, " < > \ ^ ` { | }

_CLOSED_4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",
            "100.64.0.0/10",  # shared behind a carrier's NAT; metadata of some clouds
            "127.0.0.0/8",
            "168.63.129.16/32",  # the host of Azure
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
        ),
    )
)
_OPEN_6 = IPv6Network("2000::/3")  # the only allocated part of IPv6
# Protocols such as Teredo; documentation; 6to4: an IPv4 address behind a relay; documentation.
_CLOSED_6 = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")))
_NAT64 = IPv6Network("64:ff9b::/96")
_ISATAP = (0x00005EFE, 0x02005EFE)  # the third quarter of an address whose last quarter is an IPv4 address

Resolve = Callable[[str, int], Sequence[str]]


class NoSuchHost(Exception):
    def __str__(self) -> str:
        return "no such host"


class Refused(Exception):
    """The text says why. It never names an address of the host: a response must not map a private network."""


@dataclass(frozen=True, slots=True)
class Way:
    """Where to connect. `addresses`: checked, in the order of the tries. `netloc`: for the header Host."""

    host: str
    netloc: str
    addresses: tuple[str, ...]
    url: str = field(repr=False)


class Guard:
    """`allowed`: hosts, or host:port, in lower case, that may be private and may use http."""

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
        """Raises Refused, NoSuchHost."""
        parts, host, port = _split(url)
        exempt = trusted or host in self._allowed or f"{host}:{port}" in self._allowed
        if not exempt:
            _refuse_shape(parts, host, port)
        addresses = tuple(self._resolve(host, port))
        if not addresses:
            raise NoSuchHost
        if not exempt and not all(is_public(address) for address in addresses):
            raise Refused(NOT_PUBLIC)
        name = f"[{host}]" if ":" in host else host
        return Way(host, name if port == DEFAULT_PORTS[parts.scheme] else f"{name}:{port}", addresses, url)


def look_up(host: str, port: int) -> Sequence[str]:
    """Raises NoSuchHost. Not bounded in time."""
    try:
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise NoSuchHost from None
    return list(dict.fromkeys(str(address[0]) for *_, address in entries))


def _split(url: str) -> tuple[SplitResult, str, int]:
    """The parts of the address, its host and its port. Raises Refused."""
    if len(url) > URL_MAX or not _PLAIN.fullmatch(url):
        raise Refused(f"it must be at most {URL_MAX} printable ASCII characters without spaces and quotes")
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        host, port = "", None
    if not host or parts.scheme not in DEFAULT_PORTS or len(host) > HOST_MAX or port == 0:
        raise Refused("it is not an address of the form https://HOST/PATH")
    if "@" in parts.netloc:
        raise Refused("it must not contain a user name or a password")
    if "#" in url:
        raise Refused("it must not contain a part after #")
    return parts, host, port or DEFAULT_PORTS[parts.scheme]


def _refuse_shape(parts: SplitResult, host: str, port: int) -> None:
    if parts.scheme != "https":
        raise Refused("it must begin with https://")
    if is_literal(host):
        raise Refused("its host must be a name, not a number")
    if not _NAME.fullmatch(host):
        raise Refused("its host must be a full name such as hooks.example.org")
    if port not in PORTS:
        raise Refused(f"its port must be {' or '.join(map(str, PORTS))}")


def is_literal(host: str) -> bool:
    """True for a number instead of a name, in any spelling that a resolver accepts: 127.1, 0x7f000001, [::1]."""
    last = host.rstrip(".").rpartition(".")[2].lower()
    return ":" in host or last.isdigit() or re.fullmatch("0x[0-9a-f]*", last) is not None


def is_public(text: str) -> bool:
    """False for everything but one address on the public internet, also for a text that is not an address."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    return _is_public_4(address) if isinstance(address, IPv4Address) else _is_public_6(address)


def _is_public_4(address: IPv4Address) -> bool:
    return not any(address in network for network in _CLOSED_4)


def _is_public_6(address: IPv6Address) -> bool:
    if address.scope_id is not None:
        return False
    if address.ipv4_mapped is not None:
        return _is_public_4(address.ipv4_mapped)
    last = IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _NAT64:
        return _is_public_4(last)
    if (int(address) >> 32) & 0xFFFFFFFF in _ISATAP and not _is_public_4(last):
        return False
    return address in _OPEN_6 and not any(address in network for network in _CLOSED_6)
