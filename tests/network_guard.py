"""Nothing leaves this machine: while tests run, Python's sockets reach the loopback addresses only.

An audit hook sees every use of the socket module, whichever library it comes from. Child processes are not covered;
they are ours, and what they may reach is set by their settings.
"""

import ipaddress
import socket
import sys
from typing import Any

_INTERNET = (socket.AF_INET, socket.AF_INET6)


class NetworkRefused(Exception):
    """A test tried to reach something that is not this machine. No OSError: nobody may take it for a bad network."""


def is_loopback(host: str | bytes | None) -> bool:
    """Whether the host is this machine by the loopback interface; None and "" mean just that for getaddrinfo."""
    text = host.decode("ascii", "replace") if isinstance(host, bytes) else host
    if not text or text == "localhost":
        return True
    try:
        return ipaddress.ip_address(text.partition("%")[0]).is_loopback
    except ValueError:
        return False


def refuse_the_network() -> None:
    """From now on, and for the rest of this process, connections and look-ups beyond loopback raise."""
    sys.addaudithook(_guard)


def _guard(event: str, arguments: tuple[Any, ...]) -> None:
    if not event.startswith("socket."):
        return
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        a_socket, address = arguments[:2]
        if a_socket.family in _INTERNET and address is not None and not is_loopback(address[0]):
            raise NetworkRefused(f"{event} to {address}")
    elif event in ("socket.getaddrinfo", "socket.gethostbyname") and not is_loopback(arguments[0]):
        raise NetworkRefused(f"{event} of {arguments[0]!r}")
