"""The doctor's checks of hosts by SSH: one line for each host, with what is wrong on it and how to fix it.

A check makes the folder of machines and copies the agent where they are missing, as the first listing would.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from supervisor.domain.findings import FAIL, OK, WARN, Check, Finding
from supervisor.domain.machines import How, Meter
from supervisor.ports.provider import Meters, ProviderUnavailable
from supervisor.providers.ssh.traits import TRAITS
from supervisor.remote.connections import NotConnected
from supervisor.remote.hosts import PROBE_S, Answer, Host
from supervisor.wording.figures import size_text

CLOCK_S = 60.0  # a larger difference makes beats look old
FREE_BYTES, INODES_SHARE = 10 * 2**30, 0.9


def host_checks(hosts: Sequence[Host], meters: Meters | None = None) -> list[Check]:
    hint = "try it by hand: ssh -o BatchMode=yes HOST true"
    bills = {} if meters is None else meters.by_zone
    return [Check(host.alias, partial(_host, host, bills.get(host.alias)), TRAITS.group, FAIL, hint) for host in hosts]


def _host(host: Host, meter: Meter | None) -> Sequence[Finding]:
    try:
        answer = host.call("probe", {}, PROBE_S)
    except (NotConnected, ProviderUnavailable) as error:
        fix = f"try it by hand: ssh -o BatchMode=yes {host.alias} true"
        return [Finding(host.alias, FAIL, "it cannot be used", str(error), fix, TRAITS.group)]
    python, free = answer["python"], size_text(int(answer["disk_free_bytes"]))
    fact = f"Python {python}, {answer['cores']} cores, {free} free"
    if meter is not None:
        by = "a person" if meter.how is How.ASK else f"a {meter.how}"
        fact += f"; billed until {by} ends it ({meter.verb})"
    cause, fix = _trouble(answer, time.time())
    return [Finding(host.alias, WARN if cause else OK, fact, cause, fix, TRAITS.group)]


def _trouble(answer: Answer, now: float) -> tuple[str, str]:
    """(cause, fix) of the gravest; empty = there is none."""
    behind_s = now - float(answer["at"])
    if abs(behind_s) > CLOCK_S:
        return f"its clock differs by {abs(behind_s):.0f} s from ours", "set its clock: timedatectl set-ntp true"
    if answer["inodes"] and 1 - answer["inodes_free"] / answer["inodes"] > INODES_SHARE:
        return "almost all inodes of its disk are used", "remove many small files, such as caches of packages: df -i"
    if int(answer["disk_free_bytes"]) < FREE_BYTES:
        return "its disk is almost full", "make space on it: df -h"
    return "", ""
