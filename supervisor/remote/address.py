"""The address at which sessions of a notebook service fetch their job: whether it leads to the supervisor.

The doctor reads what a session reads first: the agent, which needs no pass. That is the whole way through the tunnel or
the proxy, the check of the Host header, and the supervisor behind it.

An address of this computer can never serve (a failure). One that does not respond from here may still serve from
outside, because some networks do not lead their own public address back inside; and `spot doctor` may be the first
command, before the supervisor runs. So that is a warning. A page that is not the agent (the page of a proxy, a sign-in
of the tunnel) is one too: sessions compare the agent's hash, and would begin nothing.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from urllib.parse import urlsplit

from supervisor.domain.errors import SettingsRefused
from supervisor.domain.findings import FAIL, OK, WARN, Finding

TIMEOUT_S = 5.0
MOST_BYTES = 65536
FIRST = "/v1/door/agent.pyz"  # the first that a session reads; anybody may
ARCHIVE = "application/octet-stream"
LOOPBACK = ("127.0.0.1", "::1", "localhost")
FIX = "set public_url to an https:// address that the internet reaches, such as one of a tunnel"


def need_address(kind: str, public_url: str) -> None:
    """A supervisor without an address would start, and then every launch would fail. Raises SettingsRefused."""
    if not public_url:
        raise SettingsRefused(
            f"provider = {kind} needs public_url: a notebook asks the supervisor for its job, over an address that the "
            "internet reaches. For example: SPOT_PUBLIC_URL=https://spot.example.org",
            {"name": "public_url"},
        )


def address_finding(url: str, group: str) -> Finding:
    """`url`: the setting public_url. May block for TIMEOUT_S."""
    name, host = "address", urlsplit(url).hostname or ""
    if not host or host in LOOPBACK:
        fact, cause = url or "public_url is not set", "no session can reach the supervisor"
        return Finding(name, FAIL, fact, cause, FIX, group)
    if not url.startswith("https://"):
        return Finding(name, WARN, url, "what a session sends would not be encrypted", FIX, group)
    if problem := why_not(url):
        fix = "start the supervisor, and the tunnel or proxy before it, which leaves the Host header unchanged"
        return Finding(name, WARN, f"{url} does not lead to the supervisor, as seen from here", problem, fix, group)
    return Finding(name, OK, f"sessions fetch their job from {url}", group=group)


def why_not(url: str) -> str:
    """Why a session could not begin there; "" = it could. Only the headers are read."""
    try:
        with urllib.request.urlopen(url.rstrip("/") + FIRST, timeout=TIMEOUT_S) as response:  # noqa: S310 - https
            kind = response.headers.get_content_type()
    except urllib.error.HTTPError as error:
        with error:
            return f"the response is {error.code} {error.reason}{_own_code(error)}"
    except (OSError, ValueError) as error:
        return str(error)
    if kind != ARCHIVE:
        return f"the response is {kind}, not the agent that sessions download"
    return ""


def _own_code(error: urllib.error.HTTPError) -> str:
    """A supervisor's word for its refusal, such as HOST_REFUSED: the proxy has changed the Host header. "" = another
    program has refused."""
    if error.headers.get_content_type() != "application/problem+json":
        return ""
    try:
        return f" ({json.loads(error.read(MOST_BYTES))['code']}, of a supervisor)"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
