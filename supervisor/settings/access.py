"""Who may reach the API: where it listens, under which names, and whether it asks who comes.

It starts commands for whoever it lets in. Tokens are asked for, unless the computer itself is trusted; then it listens
where nobody else can reach it.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from supervisor.domain.errors import SettingsRefused
from supervisor.settings.values import check_own_url, is_loopback

ANYWHERE = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound
PLAIN_URL = re.compile(r"[\w.:/\[\]~%-]{0,200}", re.ASCII)
NO_TOKENS = (
    "insecure_loopback is on: no token is asked for. Every program and every user of this computer can start commands "
    "through this supervisor."
)


@dataclass(frozen=True, kw_only=True)
class AccessSettings:
    """`insecure_loopback`: no token is asked for. `allowed_hosts`: names, beside those of this computer, under which
    requests may come; a numeric `host` is one of them by itself. `rate_per_s`: requests of one token, 0 = no limit;
    `rate_burst` at once. `streams_max`: open event streams, of which one token may have `streams_per_token`.
    `dashboard_url`: under which people reach this supervisor; "" = messages to them have no links.
    `docs_public`: the description of the API is shown without a token."""

    host: str = "127.0.0.1"
    port: int = 8787
    insecure_loopback: bool = False
    allowed_hosts: tuple[str, ...] = ()
    rate_per_s: int = 100
    rate_burst: int = 200
    streams_max: int = 500
    streams_per_token: int = 100
    dashboard_url: str = ""
    docs_public: bool = False


def check(s: AccessSettings) -> None:
    """Raises SettingsRefused."""
    if s.insecure_loopback and not is_loopback(s.host):
        raise SettingsRefused(
            f"host = {s.host} is not a loopback address, and insecure_loopback = true asks nobody who he is: whoever "
            "reaches that address could start commands here. Take insecure_loopback out (`spot` finds its token by "
            "itself, other computers get one by `spot token create`), or listen on 127.0.0.1",
            {"host": s.host},
        )
    check_own_url("dashboard_url", s.dashboard_url)
    if not PLAIN_URL.fullmatch(s.dashboard_url):
        raise SettingsRefused(
            "dashboard_url: it stands in messages, so at most 200 letters, digits and . : / [ ] ~ % _ - may be in it",
            {"name": "dashboard_url"},
        )


def run_page(s: AccessSettings) -> str:
    """Where the page of a run lies, before its id; "" = nobody has told."""
    return f"{s.dashboard_url.rstrip('/')}/ui/runs/" if s.dashboard_url else ""


def warnings(s: AccessSettings) -> tuple[str, ...]:
    return (NO_TOKENS,) if s.insecure_loopback else ()


def own_names(s: AccessSettings) -> frozenset[str]:
    """Names for the header Host, beside those of loopback."""
    found = set(s.allowed_hosts)
    if s.host not in ANYWHERE and not is_loopback(s.host):
        found.add(_in_a_url(s.host))
    return frozenset(found)


def _in_a_url(host: str) -> str:
    try:
        return f"[{host}]" if ipaddress.ip_address(host).version == 6 else host
    except ValueError:
        return host.lower()
