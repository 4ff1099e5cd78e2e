"""How a run and its attempts look in columns and sentences; pure: from the API's JSON to lines of text.

How a run's machine is, in one or two lines of figures with units; pure: from the API's JSON to text.

What is not known is left out. What needs a look (a card lost, an error code of the driver, kills for memory) stands in
a line of its own.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import click

from supervisor.cli.client import Json
from supervisor.cli.finding import TERMINAL
from supervisor.cli.output import bar, clock, columns, paragraph, safe, status_mark, terminal_columns
from supervisor.domain.figures import mean, share_pct
from supervisor.wording.figures import DASH, count, duration, epoch, gib_text, money, percent, plural, spent

MIB = 2**20
# NVML's clock event reasons that cost speed: hardware slowdown, software and hardware thermal, power brake.
SLOWED = 0x8 | 0x20 | 0x40 | 0x80


def telemetry_lines(run: Json) -> list[str]:
    """`GPU 93 %, 20.1 of 22.5 GiB, 71 °C · memory 12 of 30 GiB · checkpoints disk 80 GiB free, 96 % of inodes free`."""
    telemetry = run.get("telemetry") or {}
    parts = [_gpus(telemetry.get("gpus") or []), _memory(telemetry), *_disks(telemetry.get("disks") or {})]
    lines = [" · ".join(part for part in parts if part), "; ".join(_troubles(telemetry))]
    return [line for line in lines if line]


def _gpus(gpus: Sequence[Json]) -> str:
    if not gpus:
        return ""
    name = "GPU" if len(gpus) == 1 else f"{len(gpus)} GPUs"
    use = mean(_figures(gpus, "util_pct"))
    parts = [f"{name} {use:.0f} %" if use is not None else name]
    used, total = _figures(gpus, "memory_used_mib"), _figures(gpus, "memory_total_mib")
    if used and len(used) == len(total):
        parts.append(_of(sum(used) * MIB, sum(total) * MIB))
    hottest = max(_figures(gpus, "temperature_c"), default=None)
    if hottest is not None:
        parts.append(f"{'' if len(gpus) == 1 else 'up to '}{hottest:.0f} °C")
    return ", ".join(parts)


def _memory(telemetry: Json) -> str:
    cgroup, tree = telemetry.get("cgroup") or {}, telemetry.get("tree") or {}
    used = cgroup.get("memory_bytes")
    if used is None:
        used = tree.get("rss_bytes")
    if used is None:
        return ""
    limit = cgroup.get("memory_max_bytes")
    return "memory " + (gib_text(used) + " GiB" if limit is None else _of(used, limit))


def _disks(disks: Mapping[str, Json | None]) -> list[str]:
    parts = []
    for role, disk in disks.items():
        if disk is None or disk.get("free_bytes") is None:
            continue
        room = f"{role} disk {gib_text(disk['free_bytes'])} GiB free"
        inodes = share_pct(disk.get("free_inodes"), disk.get("total_inodes"))
        parts.append(room if inodes is None else f"{room}, {inodes:.0f} % of inodes free")
    return parts


def _troubles(telemetry: Json) -> list[str]:
    troubles = []
    for number, gpu in enumerate(telemetry.get("gpus") or []):
        if gpu.get("lost"):
            troubles.append(f"GPU {number} is lost")
        if gpu.get("last_xid") is not None:
            troubles.append(f"GPU {number}: Xid {gpu['last_xid']:.0f}")
        if gpu.get("ecc_uncorrected"):
            troubles.append(f"GPU {number}: {plural(int(gpu['ecc_uncorrected']), 'uncorrected memory error')}")
        if int(gpu.get("clock_reasons") or 0) & SLOWED:
            troubles.append(f"GPU {number} is slowed down by heat or power")
    kills = (telemetry.get("cgroup") or {}).get("oom_kills")
    if kills:
        troubles.append(f"the kernel has killed {int(kills)} of its processes for want of memory")
    return troubles


def _figures(gpus: Sequence[Json], name: str) -> list[float]:
    return [gpu[name] for gpu in gpus if gpu.get(name) is not None]


def _of(used: float, total: float) -> str:
    return f"{gib_text(used)} of {gib_text(total)} GiB"


RUN_TITLES = ("RUN", "STATUS", "AGE", "PROGRESS", "BEAT", "ATT", "WHERE", "COST", "WHY", "NEXT")
SPARE = ("BEAT", "ATT", "AGE")  # columns of runs that a narrow terminal goes without, in this order
ATTEMPT_TITLES = ("#", "WHERE", "HOW LONG", "ENDED BY", "STEPS KEPT", "LOST", "COST", "EVIDENCE")
ROOMY = 100  # columns
KIND_ROOM = 19  # characters: the longest kind of ours
PHASES = ("waiting", "boot", "restore", "training", "lost")  # of phase_s of an attempt, in the line of shares


def run_row(run: Json, cells: int = 10, now: float | None = None) -> list[str]:
    """One line of `spot ls`; `cells`: length of the bar. WHY is the cause of a status that has one."""
    beat, progress = run.get("beat") or {}, run.get("progress") or {}
    action = (run.get("next_action") or {}).get("what") or DASH
    steps = progress.get("step")
    done = percent(steps, progress.get("total"))
    if run["status"] == "completed" and steps is not None:
        done = 100.0
    return [
        safe(run["run_id"]),
        status_mark(run["status"]),
        _age(run, time.time() if now is None else now),
        bar(done, cells) if done is not None or steps is None else f"step {count(steps)}",
        duration(beat.get("age_s")),
        str(run.get("attempt") or DASH),
        where(run.get("placement")),
        spent(run.get("cost")),
        safe(why(run)),
        click.style(safe(action), fg="magenta") if run.get("needs_person") else safe(action),
    ]


def why(run: Json) -> str:
    """`no capacity`, `user error`; a dash where nothing needs an explanation."""
    cause = run.get("cause")
    return DASH if not cause or run["status"] in ("running", "completed") else str(cause).replace("_", " ")


def _age(run: Json, now: float) -> str:
    """Since it was submitted."""
    created = epoch(run.get("created_at"))
    return DASH if created is None else duration(max(0.0, now - created))


def where(placement: Json | None) -> str:
    """`us-east1-d  L4`: of a placement, or of a machine. Where no GPU is known, the shape."""
    if not placement or not placement.get("zone"):
        return DASH
    mode = "  on-demand" if placement.get("spot") is False else ""
    return safe(f"{placement['zone']}  {placement.get('gpu') or placement.get('shape') or ''}".rstrip() + mode)


def summary_line(summary: Json) -> str:
    """`2 running or recovering, 1 waiting · $3.41/h now · last tick 6 s ago`."""
    counts = summary.get("counts") or {}
    working = sum(counts.get(s, 0) for s in ("launching", "running", "recovering", "finishing", "stopping"))
    waiting = counts.get("waiting", 0) + counts.get("pending", 0)
    parts = [f"{working} running or recovering, {waiting} waiting"]
    if counts.get("awaiting_teardown"):
        parts[0] += f", {counts['awaiting_teardown']} to approve"
    parts.append(f"{money(summary.get('usd_per_h'))}/h now")
    age_s = summary.get("last_tick_age_s")
    parts.append("no tick yet" if age_s is None else f"last tick {duration(age_s)} ago")
    return " · ".join(parts)


def run_lines(runs: Sequence[Json], summary: Json) -> list[str]:
    room = terminal_columns()
    # What is next matters more than a long bar.
    rows = [run_row(run, 10 if room is None or room >= ROOMY else 4) for run in runs]
    if room is not None:  # a long name must not push everything else out of sight
        limit = max(20, room // 3)
        rows = [[name if len(name) <= limit else name[: limit - 1] + "…", *rest] for name, *rest in rows]
    return [*columns(RUN_TITLES, rows, SPARE), summary_line(summary)]


def headline(run: Json) -> str:
    extra = f"generation {run['generation']}" if run.get("generation", 1) > 1 else ""
    cause = run.get("cause")
    parts = [status_mark(run["status"])] + ([safe(cause)] if cause else []) + ([extra] if extra else [])
    return click.style(safe(run["run_id"]), bold=True) + "  " + "  ".join(parts)


def image_line(run: Json) -> str:
    """`image train:1 = sha256:…, the same in every attempt`; "" where the run has none."""
    image = run.get("image")
    if not image:
        return ""
    if not image.get("digest"):
        pending, over = run["status"] == "pending", run["status"] in TERMINAL
        why = " yet" if pending else "" if over else ": a tag that moves changes what the next attempt runs"
        return f"image {safe(image['name'])}, not pinned{why}"
    always = "each attempt asks anew" if image.get("follow_tag") else "the same in every attempt"
    same = "" if image["digest"] == image["name"] else f" = {safe(image['digest'].rpartition('@')[2])}"
    return f"image {safe(image['name'])}{same}, {always}"


def attempt_row(attempt: Json, now: float) -> list[str]:
    live = attempt.get("ended_at") is None
    return [
        str(attempt["number"]),
        where(attempt.get("placement")),
        "now" if live else lasted(attempt, now),
        safe(attempt.get("cause") or DASH),
        _kept(attempt, live),
        count(attempt.get("steps_lost")),
        money(attempt.get("cost_usd")),
        safe(attempt.get("evidence") or ""),
    ]


def lasted(attempt: Json, now: float) -> str:
    """How long the machine has served, or had."""
    started, ended = epoch(attempt.get("started_at")), epoch(attempt.get("ended_at"))
    return DASH if started is None else duration((now if ended is None else ended) - started)


def _kept(attempt: Json, live: bool) -> str:
    """`0 → 8,120`; `11,900 → …` while it runs; a dash where nothing was kept."""
    first = count(attempt.get("step_from") or 0)
    if live:
        return f"{first} → …"
    return DASH if attempt.get("step_kept") is None else f"{first} → {count(attempt['step_kept'])}"


def attempt_lines(attempts: Sequence[Json], now: float | None = None) -> list[str]:
    """The table of attempts and the line of shares; nothing for a run without attempts."""
    if not attempts:
        return []
    moment = time.time() if now is None else now
    table = columns(ATTEMPT_TITLES, [attempt_row(attempt, moment) for attempt in attempts])
    shares = shares_line(attempts)
    return [*table, shares] if shares else table


def placing_lines(placing: Json | None) -> list[str]:
    """What was tried for the attempt that has no machine yet; nothing when no try has failed."""
    tries = (placing or {}).get("tries") or []
    if not placing or not tries:
        return []
    last = tries[-1]
    last_try = f"{where(last.get('placement'))}: {safe(last['cause'])} {safe(last.get('detail') or '')}".rstrip()
    return [f"attempt {placing['number']}: {plural(len(tries), 'try')} without a machine, the last in {last_try}"]


def shares_line(attempts: Sequence[Json]) -> str:
    """`waiting 3 % ▏boot 6 % ▏… effective 88 %`: where the time of all attempts went, at most 80 columns."""
    sums = {key: sum((a.get("phase_s") or {}).get(key) or 0.0 for a in attempts) for key in PHASES}
    whole = sum(sums.values())
    if whole <= 0:
        return ""
    shares = [f"{key} {100 * sums[key] / whole:.0f} %" for key in PHASES]
    return " ▏".join(shares) + f"  effective {100 * sums['training'] / whole:.0f} %"


def event_lines(event: Json) -> list[str]:
    """`14:02:11  attempt 3  attempt_ended  text`: one line, more only where a terminal is too narrow."""
    number = event.get("attempt")
    attempt = f"attempt {number}" if number else DASH
    kind = safe(event["kind"])
    if event.get("source") == "cloud":  # in the cloud's own words, without what all of them begin with
        kind = "cloud: " + kind.removeprefix("compute.instances.")
    head = f"{clock(event['at'])}  {attempt:<10}  "
    indent = " " * (len(head) + KIND_ROOM + 2)  # also below a longer kind: the texts of all events stand in one column
    return paragraph(f"{head}{kind:<{KIND_ROOM}}  {safe(event['text'])}", indent)
