"""The doctor's lines about Colab: how sessions start, the client and its login, and what nobody can promise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from supervisor.domain.findings import FAIL, OK, WARN, Check, Finding
from supervisor.ports.provider import ProviderUnavailable
from supervisor.providers.colab.client import PACKAGE, SIGN_IN, Client, NotSignedIn
from supervisor.providers.colab.settings import CELL, ColabSettings
from supervisor.providers.colab.traits import TRAITS
from supervisor.remote.address import address_finding
from supervisor.wording.figures import age_text

NAME = "sessions"
HINT = "try it by hand: colab sessions"


def colab_checks(client: Client | None, s: ColabSettings, public_url: str) -> list[Check]:
    return [Check(NAME, partial(_all, client, s, public_url), TRAITS.group, FAIL, HINT)]


def _all(client: Client | None, s: ColabSettings, public_url: str) -> Sequence[Finding]:
    return list(findings(client, s, public_url))


def findings(client: Client | None, s: ColabSettings, public_url: str) -> Iterator[Finding]:
    yield address_finding(public_url, TRAITS.group)
    yield from () if client is None else _client(client, s)
    if CELL in s.colab_ways:
        yield _finding(
            "cell", OK, "a person pastes a cell for each session: spot cell RUN; its ticket lives 15 minutes"
        )
    cap = f"a session may last {age_text(s.colab_session_cap_s)}, by colab_session_cap_s"
    yield _finding("limits", OK, f"{cap}; Colab publishes no hours per week, and may give less")


def _client(client: Client, s: ColabSettings) -> Iterator[Finding]:
    try:
        version, listing = client.version(), client.sessions()
    except NotSignedIn as error:
        yield _finding("client", FAIL, "it is not signed in", str(error), SIGN_IN)
        return
    except ProviderUnavailable as error:
        yield _finding("client", FAIL, "it does not answer", str(error), f"pip install {PACKAGE}, or set colab_client")
        return
    count_text = f"{len(listing.sessions)} sessions of ours" if listing.sessions else "no session of ours"
    signed = "" if listing.complete else ", and whether it is signed in shows only with the first session"
    yield _finding("client", OK, f"{s.colab_client} {version}: {count_text}{signed}")
    refused = next((line for name in listing.sessions if (line := _refused(client, name))), "")
    if refused:
        cause = "Colab refuses to keep a session of this account alive: it ends within minutes without a running cell"
        yield _finding(
            "keep-alive",
            WARN,
            refused,
            cause,
            "update the client to 0.6 or newer, or paste the cell (colab_ways = cell)",
        )
    else:
        yield _finding(
            "keep-alive", OK, "best effort of the client, for 24 h at most; some accounts are refused (its issue 14)"
        )


def _refused(client: Client, name: str) -> str:
    """The client's own word that keep-alive was refused; "" = none, or it cannot be read."""
    try:
        said = client.keep_alive(name)
    except ProviderUnavailable:
        return ""
    return f"{name}: {said}" if "403" in said or "4xx" in said else ""


def _finding(name: str, result: str, fact: str, cause: str = "", fix: str = "") -> Finding:
    return Finding(name, result, fact, cause, fix, TRAITS.group)
