"""G1, the access: can the supervisor reach the machine, and can the machine reach what the run needs?"""

from __future__ import annotations

from dataclasses import dataclass

from supervisor.domain.gates.verdicts import State
from supervisor.lifecycle.gates.rules import Judged, Known, Rule, Rules, judged, listed
from supervisor.wording.figures import age_text, size_text

LOGIN_MAX_S = 15.0
NOTICED_MAX_S = 60.0  # a dead connection that is noticed later blocks the reads of a whole tick
SPEED_MIN_BYTES = 1_000_000  # per second: a model of 10 GB in three hours
HOST_KNOWN, HOST_UNKNOWN, HOST_CHANGED = "known", "not known", "another one than before"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """None = not read. `host_key`: one of the HOST_ words. `login_s`: how long the login took; `login_accepted` False:
    it was refused. `keepalive_every_s` 0 = none. `durable_listed`: the profile's matrix has that path. `copies_files`:
    the login can copy files; `relays`: the supervisor moves files in its place. `port_fixed`: the port stays after a
    restart. `secrets_unreadable`, `secrets_exposed` (on shared storage, or in the spec): names. `store_refused`: of
    read, write, precondition. `mirror_needed`, `mirror` "" = none is set. `same_route`: the speed was measured on the
    route that the downloads take. `framework_gpus`: how many the framework sees."""

    host: Known[str] = None
    host_key: Known[str] = None
    login_accepted: Known[bool] = None
    login_s: Known[float] = None
    keepalive_every_s: Known[float] = None
    keepalive_tries: Known[int] = None
    responds: Known[bool] = None
    durable_path: Known[str] = None
    durable_listed: Known[bool] = None
    copies_files: Known[bool] = None
    relays: Known[bool] = None
    port_fixed: Known[bool] = None
    secrets_unreadable: Known[tuple[str, ...]] = None
    secrets_exposed: Known[tuple[str, ...]] = None
    store_refused: Known[tuple[str, ...]] = None
    mirror_needed: Known[bool] = None
    mirror: Known[str] = None
    speed_bytes: Known[int] = None
    same_route: Known[bool] = None
    framework_gpus: Known[int] = None
    gpus_requested: Known[int] = None


def _host_key(host: str, state: str) -> Judged:
    return judged(state == HOST_KNOWN, host=host, state=state)


def _key_login(accepted: bool, login_s: float) -> Judged:
    login = f"the login with a key took {age_text(login_s)}; at most {age_text(LOGIN_MAX_S)} are wanted"
    return judged(accepted and login_s <= LOGIN_MAX_S, login=login if accepted else "the login with a key was refused")


def _keepalive(every_s: float, tries: int) -> Judged:
    noticed_s = every_s * tries
    noticed = f"a dead connection is noticed after {age_text(noticed_s)} ({age_text(every_s)} x {tries})"
    good = 0 < noticed_s <= NOTICED_MAX_S
    return judged(good, State.WARN, noticed=noticed if noticed_s else "the connection has no keepalive")


def _reachable(responds: bool, path: str, listed_there: bool) -> Judged:
    return judged(
        responds and listed_there, State.WARN if responds else State.FAIL,
        responds="responds" if responds else "does not respond", path=path,
        listed="in the survival matrix" if listed_there else "not in the survival matrix",
    )  # fmt: skip


def _transfer_flavor(copies_files: bool, relays: bool, port_fixed: bool) -> Judged:
    direct = "the login copies files"
    other = "the login cannot copy files, and the supervisor relays them" if relays else "the login cannot copy files"
    return judged(
        (copies_files or relays) and port_fixed, State.WARN if copies_files or relays else State.FAIL,
        flavor=direct if copies_files else other,
        port="the port stays the same" if port_fixed else "the port may change with a restart",
    )  # fmt: skip


def _secrets(unreadable: tuple[str, ...], exposed: tuple[str, ...]) -> Judged:
    texts = [f"not readable on the machine: {listed(unreadable)}"] if unreadable else []
    texts += [f"on shared storage or in the spec: {listed(exposed)}"] if exposed else []
    good, worse = not unreadable and not exposed, State.FAIL if unreadable else State.WARN
    return judged(good, worse, secrets="; ".join(texts) or "each secret is readable by its own account alone")


def _store_access(refused: tuple[str, ...], relays: bool) -> Judged:
    if not refused:
        return judged(True, refused="the machine reads, writes and compares in the object store")
    how = f"the machine cannot do this in the object store: {listed(refused)}"
    return judged(relays, refused=f"{how}; the supervisor relays" if relays else how)


def _mirror(needed: bool, mirror: str, speed: int, same_route: bool) -> Judged:
    route = f"through the mirror {mirror}" if mirror else "a mirror is needed, and none is set" if needed else "direct"
    route += "" if same_route else ", on another route than the downloads take"
    good = (bool(mirror) or not needed) and same_route and speed >= SPEED_MIN_BYTES
    return judged(good, State.WARN, route=route, speed=size_text(speed))


def _cuda_seen(seen: int, expected: int) -> Judged:
    return judged(seen >= expected, seen=str(seen), expected=str(expected))


RULES: Rules = {
    "host_key": Rule(("host", "host_key"), _host_key),
    "key_login": Rule(("login_accepted", "login_s"), _key_login),
    "keepalive": Rule(("keepalive_every_s", "keepalive_tries"), _keepalive),
    "reachable": Rule(("responds", "durable_path", "durable_listed"), _reachable),
    "transfer_flavor": Rule(("copies_files", "relays", "port_fixed"), _transfer_flavor),
    "secrets": Rule(("secrets_unreadable", "secrets_exposed"), _secrets),
    "store_access": Rule(("store_refused", "relays"), _store_access),
    "mirror": Rule(("mirror_needed", "mirror", "speed_bytes", "same_route"), _mirror),
    "cuda_seen": Rule(("framework_gpus", "gpus_requested"), _cuda_seen),
}
