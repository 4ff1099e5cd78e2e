"""Which addresses belong to the open internet: the judgement behind the guard, on texts alone.

A receiver's name is chosen by whoever adds an endpoint, and may lead to the cloud's metadata server or to a neighbour
of ours. `ipaddress.is_global` is no judge of that: in Python 3.11 it calls multicast global, and an IPv6 address in
which a private IPv4 address is packed (NAT64, 6to4). So what is open is listed, and what is packed is taken out.
The lists are IANA's registries of special-purpose addresses, and the addresses inside of a cloud that look public.
"""

from __future__ import annotations

from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

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
_CLOSED_6 = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocols, Teredo among them
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: an IPv4 address behind a relay
        "3fff::/20",  # documentation
    )
)
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
