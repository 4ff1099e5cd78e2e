"""Access to the API: the listening address, the allowed host names, and whether a token is required.

The API starts commands for its callers. It requires tokens, unless the settings trust the computer itself; then it
listens only where no other computer can connect.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field

from supervisor.domain.errors import SettingsRefused
from supervisor.settings.credentials import check_file
from supervisor.settings.values import check_own_url, is_loopback

ANYWHERE = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound
PLAIN_URL = re.compile(r"[\w.:/\[\]~%-]{0,200}", re.ASCII)
NO_TOKENS = (
    "insecure_loopback is on: no token is required. Every program and every user of this computer can start commands "
    "through this supervisor."
)


@dataclass(frozen=True, kw_only=True)
class AccessSettings:
    """`insecure_loopback`: no token is required. `admin_token`: one with all rights, or file:/PATH; "" = the data
    folder gets its own. `allowed_hosts`: further host names of requests, besides this computer's; a numeric `host` is
    included. `rate_per_s`: requests of one token, 0 = no limit; `rate_burst` at once. `streams_max`: open event
    streams, of which one token may have `streams_per_token`. `dashboard_url`: the address of this supervisor for
    people; "" = messages have no links. `docs_public`: the description of the API needs no token. `exec_for_others`:
    admins may run commands on machines of other owners (`spot exec`)."""

    host: str = "127.0.0.1"
    port: int = 8787
    insecure_loopback: bool = False
    admin_token: str = field(default="", repr=False)
    allowed_hosts: tuple[str, ...] = ()
    rate_per_s: int = 100
    rate_burst: int = 200
    streams_max: int = 500
    streams_per_token: int = 100
    dashboard_url: str = ""
    docs_public: bool = False
    exec_for_others: bool = False


def check(s: AccessSettings) -> None:
    """Raises SettingsRefused."""
    if s.insecure_loopback and not is_loopback(s.host):
        raise SettingsRefused(
            f"host = {s.host} is not a loopback address, and insecure_loopback = true requires no token: any client of "
            "that address could start commands here. Remove insecure_loopback (`spot` finds its token by "
            "itself, other computers get one from `spot token create`), or listen on 127.0.0.1",
            {"host": s.host},
        )
    check_file("admin_token", s.admin_token)
    check_own_url("dashboard_url", s.dashboard_url)
    if not PLAIN_URL.fullmatch(s.dashboard_url):
        raise SettingsRefused(
            "dashboard_url: it appears in messages, so it may have at most 200 letters, digits and . : / [ ] ~ % _ -",
            {"name": "dashboard_url"},
        )


def run_page(s: AccessSettings) -> str:
    """The address of a run's page, without its id; "" = not set."""
    return f"{s.dashboard_url.rstrip('/')}/ui/runs/" if s.dashboard_url else ""


def warnings(s: AccessSettings) -> tuple[str, ...]:
    return (NO_TOKENS,) if s.insecure_loopback else ()


def own_names(s: AccessSettings) -> frozenset[str]:
    """Allowed values of the header Host, besides loopback names."""
    own = () if s.host in ANYWHERE or is_loopback(s.host) else (_in_a_url(s.host),)
    return frozenset((*s.allowed_hosts, *own))


def _in_a_url(host: str) -> str:
    try:
        return f"[{host}]" if ipaddress.ip_address(host).version == 6 else host
    except ValueError:
        return host.lower()
