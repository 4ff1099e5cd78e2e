"""The address at which sessions of a notebook service fetch their job: whether it leads to the supervisor."""

from __future__ import annotations

import urllib.error
import urllib.request
from urllib.parse import urlsplit

from supervisor.domain.findings import FAIL, OK, WARN, Finding

TIMEOUT_S = 5.0
FIRST = "/v1/door/agent.pyz"  # the first that a session reads; anybody may
ARCHIVE = "application/octet-stream"
LOOPBACK = ("127.0.0.1", "::1", "localhost")
FIX = "set public_url to an https:// address that the internet reaches, such as one of a tunnel"


def address_finding(url: str, group: str) -> Finding:
    """`url`: the setting public_url. May block for TIMEOUT_S."""
    name, host = "address", urlsplit(url).hostname or ""
    if not host or host in LOOPBACK:
        return Finding(name, FAIL, url or "public_url is not set", "no session can reach the supervisor", FIX, group)
    if not url.startswith("https://"):
        return Finding(name, WARN, url, "what a session sends would not be encrypted", FIX, group)
    if problem := why_not(url):
        fix = "start the supervisor, and the tunnel or proxy before it, which leaves the Host header unchanged"
        return Finding(name, WARN, f"{url} does not lead to the supervisor, as seen from here", problem, fix, group)
    return Finding(name, OK, f"sessions fetch their job from {url}", group=group)


def why_not(url: str) -> str:
    """Why a session could not begin there; "" = it could."""
    try:
        with urllib.request.urlopen(url.rstrip("/") + FIRST, timeout=TIMEOUT_S) as response:  # noqa: S310 - https
            kind = response.headers.get_content_type()
    except urllib.error.HTTPError as error:
        return f"the response is {error.code} {error.reason}"
    except (OSError, ValueError) as error:
        return str(error)
    return "" if kind == ARCHIVE else f"the response is {kind}, not the agent that sessions download"
