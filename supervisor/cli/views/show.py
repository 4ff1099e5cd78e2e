"""The sections of `spot show RUN`, and the lines of `spot why RUN`. Pure: from the API's JSON to lines of text.

- the run now: its machine's figures, image, machines, last beat, code, files;
- `--spec`: the spec as a file that `spot submit` takes;
- `--evidence`: why an attempt ended and what proves it. Nothing that an agent wrote is trusted (wording/attempt.py);
- `--facts`: what a paper needs of an attempt, then all attempts, then where they differ.

An unknown value is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from supervisor.cli.client import Json
from supervisor.cli.output import Table, clock, paragraph, safe
from supervisor.domain.figures import mean, share_pct
from supervisor.domain.status import TERMINAL
from supervisor.domain.texts import HIDDEN
from supervisor.wording import why
from supervisor.wording.attempt import (
    NONE,
    Row,
    evidence_details,
    evidence_readings,
    evidence_rows,
    fact_rows,
    fact_text,
    listed,
    thread_stacks,
)
from supervisor.wording.figures import DASH, count, duration, gib_text, only_on_host_text, plural

MIB = 2**20
# NVML's clock event reasons that cost speed: hardware slowdown, software and hardware thermal, power brake.
SLOWED = 0x8 | 0x20 | 0x40 | 0x80
MACHINES_SHOWN = 5
HASH_CHARS = 12
WHY_INDENT, WHY_LABEL = "  ", 10
BRIEF_LINES, BRIEF_STACK, STACK_LINES = 5, 12, 200


def telemetry_lines(run: Json) -> list[str]:
    """`GPU 93 %, 20.1 of 22.5 GiB, 71 °C · memory 12 of 30 GiB · checkpoints disk 80 GiB free, 96 % of inodes free`,
    and a second line of troubles: a lost GPU, a driver error, processes killed for memory."""
    telemetry = run.get("telemetry") or {}
    gpus = telemetry.get("gpus") or []
    parts = [_gpus(gpus), _memory(telemetry), *_disks(telemetry.get("disks") or {})]
    lines = [" · ".join(filter(None, parts)), "; ".join(_troubles(gpus, telemetry.get("cgroup") or {}))]
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


def _figures(gpus: Sequence[Json], name: str) -> list[float]:
    return [gpu[name] for gpu in gpus if gpu.get(name) is not None]


def _of(used: float, total: float) -> str:
    return f"{gib_text(used)} of {gib_text(total)} GiB"


def _memory(telemetry: Json) -> str:
    cgroup, tree = telemetry.get("cgroup") or {}, telemetry.get("tree") or {}
    used, limit = cgroup.get("memory_bytes"), cgroup.get("memory_max_bytes")
    if used is None:
        used = tree.get("rss_bytes")
    if used is None:
        return ""
    return "memory " + (gib_text(used) + " GiB" if limit is None else _of(used, limit))


def _disks(disks: Mapping[str, Json | None]) -> list[str]:
    parts = []
    for role, disk in disks.items():
        if disk is None or disk.get("free_bytes") is None:
            continue
        text = f"{role} disk {gib_text(disk['free_bytes'])} GiB free"
        inodes = share_pct(disk.get("free_inodes"), disk.get("total_inodes"))
        parts.append(text if inodes is None else f"{text}, {inodes:.0f} % of inodes free")
    return parts


def _troubles(gpus: Sequence[Json], cgroup: Json) -> list[str]:
    troubles = []
    for number, gpu in enumerate(gpus):
        if gpu.get("lost"):
            troubles.append(f"GPU {number} is lost")
        if gpu.get("last_xid") is not None:
            troubles.append(f"GPU {number}: Xid {gpu['last_xid']:.0f}")
        if gpu.get("ecc_uncorrected"):
            troubles.append(f"GPU {number}: {plural(int(gpu['ecc_uncorrected']), 'uncorrected memory error')}")
        if int(gpu.get("clock_reasons") or 0) & SLOWED:
            troubles.append(f"GPU {number} is slowed down by heat or power")
    if cgroup.get("oom_kills"):
        troubles.append(f"the kernel killed {int(cgroup['oom_kills'])} of its processes for lack of memory")
    return troubles


def drill_lines(run: Json) -> list[str]:
    """`drill: survives a 30 s notice: yes (p95 12 s)`."""
    return [f"drill: {safe(run['drill']['text'])}"] if run.get("drill") else []


def session_lines(run: Json) -> list[str]:
    """`sessions: Needs 3 more sessions of up to 9 h on …`."""
    return [f"sessions: {safe(run['sessions']['text'])}"] if run.get("sessions") else []


def forecast_lines(forecast: Json | None) -> list[str]:
    """`forecast: about $12 (9 to 17), done Sat 14:00 UTC (12:30 to 18:10); …`; nothing where there is none."""
    return [f"forecast: {safe(forecast['text'])}"] if forecast and forecast["futures"] else []


def image_lines(run: Json) -> list[str]:
    """`image train:1 = sha256:…, the same in every attempt`."""
    image = run.get("image")
    if not image:
        return []
    name, digest = safe(image["name"]), image.get("digest")
    if not digest:
        pending, over = run["status"] == "pending", run["status"] in TERMINAL
        why = " yet" if pending else "" if over else ": if the tag moves, the next attempt runs another image"
        return [f"image {name}, not pinned{why}"]
    scope = "read again for each attempt" if image.get("follow_tag") else "the same in every attempt"
    same = "" if digest == image["name"] else f" = {safe(digest.rpartition('@')[2])}"
    return [f"image {name}{same}, {scope}"]


def machine_lines(attempts: Sequence[Json]) -> list[str]:
    """`machines: 1 spot-…-a1-t1 (g2-standard-8) in us-east1-c, gone 02:14:02 · 2 …`: the newest, by attempt. The shape
    stands here where the table of attempts names the GPU instead."""
    named = [attempt for attempt in attempts if attempt.get("machine")]
    if not named:
        return []
    left_out = len(named) - MACHINES_SHOWN
    parts = [f"{plural(left_out, 'earlier one')} in instances/"] if left_out > 0 else []
    return ["machines: " + " · ".join([*parts, *map(_machine, named[-MACHINES_SHOWN:])])]


def _machine(attempt: Json) -> str:
    place = attempt.get("placement") or {}
    zone, shape = safe(place.get("zone") or "?"), f" ({safe(place['shape'])})" if place.get("gpu") else ""
    if attempt.get("gone_at"):
        end = f", gone {clock(attempt['gone_at'])}"
    else:
        end = ", not confirmed gone yet" if attempt.get("ended_at") else ""
    return f"{attempt['number']} {safe(attempt['machine'])}{shape} in {zone}{end}"


def account_lines(run: Json) -> list[str]:
    """The cloud account of the machines, by name and number, and how a cloud's own tools show the same machines: they
    show those of the account that they used last."""
    account = run.get("account") or {}
    if not account.get("console_url"):
        return []
    noun = f"{safe(account['noun'])} " if account.get("noun") else ""
    number = f" (number {safe(account['number'])})" if account.get("number") else ""
    tool = f" · {safe(account['tool'])}" if account.get("tool") else ""
    return [f"in {noun}{safe(account['name'])}{number}: {safe(account['console_url'])}{tool}"]


def code_lines(attempts: Iterable[Json]) -> list[str]:
    """`code 1f2e3d4c5b6a (attempts 1, 2), 9a8b… (attempt 3)`; nothing where no attempt had a bundle."""
    numbers: dict[str, list[int]] = {}
    for attempt in attempts:
        if attempt.get("code"):
            numbers.setdefault(attempt["code"], []).append(attempt["number"])
    parts = [
        f"{safe(code[:HASH_CHARS])} (attempt{'s' if len(its) > 1 else ''} {_ranges(its)})"
        for code, its in numbers.items()
    ]
    return ["code " + ", ".join(parts)] if parts else []


def _ranges(numbers: Sequence[int]) -> str:
    """`1, 2, 5 to 200`."""
    rows: list[list[int]] = []
    for number in numbers:
        if rows and number == rows[-1][-1] + 1:
            rows[-1].append(number)
        else:
            rows.append([number])
    texts = [", ".join(map(str, row)) if len(row) < 3 else f"{row[0]} to {row[-1]}" for row in rows]
    return ", ".join(texts)


def beat_lines(run: Json) -> list[str]:
    """`last beat 8 s ago, phase training, step 12,300 of 50,000, checkpoint 12,000`; nothing without a live attempt."""
    beat, progress = run.get("beat"), run.get("progress") or {}
    if not beat:
        return []
    parts = [f"last beat {duration(beat.get('age_s'))} ago", f"phase {safe(beat.get('phase') or '?')}"]
    if progress.get("step") is not None:
        total = f" of {count(progress['total'])}" if progress.get("total") else ""
        guessed = progress.get("guessed")
        step = f"step {'≈ ' if guessed else ''}{count(progress['step'])}{total}"
        parts.append(f"{step} (read from the log)" if guessed else step)
    if run.get("checkpoint_step") is not None:
        parts.append(f"checkpoint {count(run['checkpoint_step'])}")
    return [", ".join(parts)]


def files_lines(run: Json) -> list[str]:
    """Where the manifest and the history of the machines are, or will be; and a checkpoint that is not there yet."""
    lines = [f"files {safe(run['files_url'])}"] if run.get("files_url") else []
    only = run.get("only_on_host")
    if only:
        text = only_on_host_text(only["checkpoint_step"], only["copied_step"], safe(only["zone"]))
        lines.append(f"checkpoint: {text}")
    return lines


def spec_text(spec: Json) -> str:
    """The spec as YAML. Hidden characters get YAML's own escapes, so that the file means the same."""
    import yaml

    def text(allow_unicode: bool) -> str:
        return str(yaml.safe_dump(spec, sort_keys=False, allow_unicode=allow_unicode, default_flow_style=False))

    return text(False) if HIDDEN.search(text(True)) else text(True)


def evidence_lines(kept: Json, brief: bool = False) -> list[str]:
    """Everything that is kept of an attempt; `brief`: the main rows and the end of its log."""
    lines = [f"Evidence of attempt {kept['attempt']}: {safe(kept.get('cause') or DASH)}", *_lines(evidence_rows(kept))]
    if not brief:
        lines += _lines(evidence_details(kept))
        lines += _lines((f"reading, {name}", reading) for name, reading in evidence_readings(kept))
    lines += _stacks(kept, BRIEF_STACK if brief else STACK_LINES)
    tail = listed(kept.get("log_tail"))[-BRIEF_LINES if brief else 0 :]
    if tail:
        lines += [f"  last {plural(len(tail), 'line')} of the log", *(f"    {safe(line)}" for line in tail)]
    return lines


def _lines(rows: Iterable[Row], width: int = 17) -> list[str]:
    return [f"  {label:<{width}} {safe(text)}" for label, text in rows]


def _stacks(kept: Json, limit: int) -> list[str]:
    """The stacks of a stalled training, with their own indent."""
    lines = []
    for title, stack in thread_stacks(kept):
        lines.append(f"  {safe(title)}")
        lines += ["    " + " " * (len(line) - len(line.lstrip())) + safe(line.strip()) for line in stack]
    if len(lines) > limit:
        lines = [*lines[:limit], f"    … {plural(len(lines) - limit, 'more line')}: spot show RUN --evidence"]
    return lines


def why_lines(diagnosis: Json) -> list[str]:
    """The headline and its rows. The name of the rule follows the last row of advice, where it fits."""
    verdict = diagnosis.get("verdict") or {}
    shown = paragraph(safe(diagnosis["text"]))
    for label, text in why.rows(diagnosis, clock):
        shown += paragraph(f"{WHY_INDENT}{label:<{WHY_LABEL}}{safe(text)}", " " * (len(WHY_INDENT) + WHY_LABEL))
    tag = safe(why.rule_text(verdict))
    return [*shown, *([f"{WHY_INDENT}{tag}"] if tag else [])]


def facts_lines(response: Json) -> list[str]:
    """Of the response to GET /v1/runs/{id}/facts."""
    attempts: Sequence[Json] = response["attempts"]
    described = [attempt for attempt in attempts if attempt.get("facts") is not None]
    lines = ["No facts are known yet: an attempt records them when its command starts."]
    if described:
        lines = [f"Facts of attempt {described[-1]['attempt']}", *_lines(fact_rows(described[-1]["facts"]), 9)]
    if attempts:
        lines += ["", *FACTS.lines(attempts)]
    if len(described) > 1:
        differing = [line for row in response["differs"] for line in _difference(row)]
        lines += ["", "Attempts that differ"] + (differing or ["none: all attempts ran on the same facts"])
    return lines


def _fact(name: str, length: int | None = None) -> Callable[[Json], str]:
    """A cell with the first `length` characters of a fact."""

    def cell(attempt: Json) -> str:
        facts = attempt.get("facts") or {}
        return safe((fact_text(facts[name]) or NONE)[:length]) if name in facts else DASH

    return cell


FACTS = Table(
    "attempt",
    {
        "#": lambda attempt: str(attempt["attempt"]),
        "ENDED BY": lambda attempt: safe(attempt.get("cause") or DASH),
        "CODE": _fact("code", HASH_CHARS),
        "PYTHON": _fact("python"),
        "TORCH": _fact("torch"),
        "DRIVER": _fact("driver"),
        "GPUS": _fact("gpus"),
        "PACKAGES": _fact("packages_sha256", HASH_CHARS),
    },
)


def _difference(row: Json) -> list[str]:
    head = f"attempt {row['attempt']} (against {row['against']})  {safe(row['fact'])}"
    packages = row.get("packages")
    if packages is None:
        return [f"{head}: {safe(row['was'] or NONE)} → {safe(row['is'] or NONE)}"]
    lines = [f"{head}:"]
    lines += [f"    {safe(change['was'])} → {safe(change['is'])}" for change in packages["changed"]]
    lines += [f"    + {safe(line)}" for line in packages["added"]]
    lines += [f"    - {safe(line)}" for line in packages["removed"]]
    if packages["left_out"]:
        lines.append(f"    and {plural(packages['left_out'], 'more package')}")
    return lines
