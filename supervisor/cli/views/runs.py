"""Runs, attempts and events as columns and sentences. Pure: from the API's JSON to lines of text."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial

import click

from supervisor.cli import output
from supervisor.cli.client import Json
from supervisor.cli.output import Table, bar, clock, paragraph, safe, status_mark
from supervisor.wording.attempt import end_word
from supervisor.wording.cells import METRICS_MOST, CellRow, cell_table, group_line, value_at, verdict_texts
from supervisor.wording.figures import DASH, count, duration, epoch, metric_text, money, percent, plural, spent

WIDE = 100  # columns of a terminal that has room for a long bar
KIND_WIDTH = 19  # characters of the longest kind of our events
ATTEMPTS_SHOWN = 20  # the newest, unless all are requested
PHASES = ("waiting", "boot", "restore", "training", "lost")  # of phase_s of an attempt


def _name(run: Json) -> str:
    """Cut at a terminal, so that a long name does not push the other columns out of sight."""
    width, name = output.terminal_columns(), safe(run["run_id"])
    limit = len(name) if width is None else max(20, width // 3)
    return name if len(name) <= limit else name[: limit - 1] + "…"


def _age(run: Json) -> str:
    """Since the submit."""
    created = epoch(run.get("created_at"))
    return DASH if created is None else duration(max(0.0, time.time() - created))


def progress_text(run: Json) -> str:
    """`▇▇▁▁ 50 %`, or `step 4,200` where the total is unknown. On a narrow terminal the bar is short, to leave room for
    NEXT."""
    progress, width = run.get("progress") or {}, output.terminal_columns()
    step = progress.get("step")
    done = percent(step, progress.get("total"))
    if run["status"] == "completed" and step is not None:
        done = 100.0
    about = "≈ " if progress.get("guessed") else ""
    if done is None and step is not None:
        return f"step {about}{count(step)}"
    return about + bar(done, 10 if width is None or width >= WIDE else 4)


def where(placement: Json | None) -> str:
    """`us-east1-d  L4` of a placement or a machine; where the GPU is unknown, the shape."""
    if not placement or not placement.get("zone"):
        return DASH
    market = f"  {safe(placement.get('market') or 'on-demand')}" if placement.get("spot") is False else ""
    return safe(f"{placement['zone']}  {placement.get('gpu') or placement.get('shape') or ''}".rstrip() + market)


def _why(run: Json) -> str:
    """`no capacity`, `user error`: the cause of a status that needs one."""
    cause = run.get("cause")
    return DASH if not cause or run["status"] in ("running", "completed") else safe(cause).replace("_", " ")


def _next(run: Json) -> str:
    action = safe((run.get("next_action") or {}).get("what") or DASH)
    return click.style(action, fg="magenta") if run.get("needs_person") else action


RUNS = Table(
    "run_id",
    {
        "RUN": _name,
        "STATUS": lambda run: status_mark(run["status"]),
        "AGE": _age,
        "PROGRESS": progress_text,
        "BEAT": lambda run: duration((run.get("beat") or {}).get("age_s")),
        "ATT": lambda run: str(run.get("attempt") or DASH),
        "WHERE": lambda run: where(run.get("placement")),
        "COST": lambda run: spent(run.get("cost")),
        "WHY": _why,
        "NEXT": _next,
    },
    spare=("BEAT", "ATT", "AGE"),
)


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
    """What `spot ls` shows: the table, where there are runs, and the summary."""
    return [*(RUNS.lines(runs) if runs else []), summary_line(summary)]


def cell_lines(group: str, runs: Sequence[Json], summary: Json) -> list[str]:
    """What `spot ls --group` shows: the cells of a group, and a line about the whole of it."""
    cells = cell_table(runs)
    columns: dict[str, Callable[[CellRow], str]] = {"RUN": lambda row: safe(row.run["run_id"])}
    columns |= {safe(name): partial(_value_of, number) for number, name in enumerate(cells.axes)}
    columns |= {"STATUS": lambda row: status_mark(row.run["status"]), "STEP": lambda row: row.step}
    columns |= {safe(name).upper(): partial(_metric_of, number) for number, name in enumerate(cells.metrics)}
    columns |= {"COST": lambda row: row.cost, "NOW": lambda row: safe(row.run["status_text"])}
    return [*Table("run_id", columns).lines(cells.rows), group_line(group, runs, summary.get("counts") or {})]


def _value_of(number: int, row: CellRow) -> str:
    return safe(row.values[number])


def _metric_of(number: int, row: CellRow) -> str:
    return safe(row.metrics[number])


BLOCKS = "▁▂▃▄▅▆▇█"
CURVE_CHARS = 24


def metric_lines(metrics: Sequence[Json]) -> list[str]:
    """What `spot metrics` shows: one line for each metric."""
    columns: dict[str, Callable[[Json], str]] = {
        "METRIC": lambda row: safe(row["name"]),
        "REPORTS": lambda row: count(row["reports"]),
        "LAST": lambda row: value_at(row["last"]),
        "LOWEST": lambda row: value_at(row["lowest"]),
        "HIGHEST": lambda row: value_at(row["highest"]),
        "CURVE": lambda row: curve_text(row["values"]),
    }
    return Table("name", columns, spare=("CURVE", "HIGHEST")).lines(metrics) if metrics else []


def curve_text(values: Sequence[float | str]) -> str:
    """`▇▅▃▂▁▁`: at most CURVE_CHARS means of the finite values."""
    finite = [float(value) for value in values if not isinstance(value, str)]
    chars = min(CURVE_CHARS, len(finite))
    parts = [finite[at * len(finite) // chars : (at + 1) * len(finite) // chars] for at in range(chars)]
    means = [sum(value / len(part) for value in part) for part in parts]
    low, high = min(means, default=0.0), max(means, default=0.0)
    if not low < high or math.isinf(high - low):
        return BLOCKS[0] * len(means)
    share = (len(BLOCKS) - 1) / (high - low)
    return "".join(BLOCKS[round((mean - low) * share)] for mean in means)


def metric_remarks(shown: Json, metrics: Sequence[Json]) -> list[str]:
    """What the table does not say: what could not be read, and values that are not finite."""
    name, problems = safe(shown["run_id"]), [each for each in shown["attempts"] if each["problem"]]
    remarks = [f"Attempt {each['attempt']}: {safe(each['problem'])}" for each in problems]
    remarks += [
        f"{safe(row['name'])} is not finite at step {count(row['odd_step'])} for the first time."
        for row in metrics
        if row["odd_step"] is not None
    ]
    if shown["names_left_out"]:
        remarks.append(f"Beyond the first 64, {plural(shown['names_left_out'], 'metric')} left out.")
    if not metrics and shown["metrics"]:
        remarks.append(
            f"{name} has no such metric. It has: {safe(', '.join(row['name'] for row in shown['metrics']))}."
        )
    return remarks if remarks or metrics else [f"{name} has reported no metrics yet."]


def comparison_lines(comparison: Json, names: Sequence[str]) -> list[str]:
    """What `spot compare` shows. `names`: of metrics; none = the one that decides, and a few more."""
    by = comparison["by"]
    shown = list(dict.fromkeys([*([by] if by else []), *(names or comparison["metrics"])]))
    columns: dict[str, Callable[[Json], str]] = {
        "RUN": lambda run: safe(run["run_id"]),
        "STATUS": lambda run: status_mark(run["status"]),
    }
    if by is not None:
        columns |= {f"BEST {safe(by)}": lambda run: value_at(run["best"])}
    for name in shown[: max(METRICS_MOST, len(names))]:
        columns |= {f"LAST {safe(name)}": partial(_last_of, name)}
    lines = Table("run_id", columns).lines(comparison["runs"])
    if comparison["differs"]:
        values: dict[str, Callable[[Json], str]] = {"DIFFERS": lambda row: safe(row["name"])}
        values |= {safe(run["run_id"]): partial(_value_at, at) for at, run in enumerate(comparison["runs"])}
        lines += ["", *Table("name", values).lines(comparison["differs"])]
    verdicts = verdict_texts(comparison)
    return [*lines, *([""] if verdicts else []), *map(safe, verdicts)]


def _last_of(name: str, run: Json) -> str:
    last = next((row["last"] for row in run["metrics"] if row["name"] == name), None)
    return DASH if last is None else metric_text(last["value"])


def _value_at(number: int, row: Json) -> str:
    value = row["values"][number]
    return DASH if value is None else safe(value)


def headline(run: Json) -> str:
    """`digits-7  ✗ failed  user_error  generation 2`."""
    parts = [click.style(safe(run["run_id"]), bold=True), status_mark(run["status"])]
    if run.get("cause"):
        parts.append(safe(run["cause"]))
    if run.get("generation", 1) > 1:
        parts.append(f"generation {run['generation']}")
    return "  ".join(parts)


def lasted(attempt: Json) -> str:
    """How long the attempt's machine has served, or served."""
    started, ended = epoch(attempt.get("started_at")), epoch(attempt.get("ended_at"))
    return DASH if started is None else duration((time.time() if ended is None else ended) - started)


def _steps(attempt: Json) -> str:
    """`0 → 8,120`; `11,900 → …` of a live attempt; a dash where nothing was kept."""
    first = count(attempt.get("step_from") or 0)
    if attempt.get("ended_at") is None:
        return f"{first} → …"
    return DASH if attempt.get("step_kept") is None else f"{first} → {count(attempt['step_kept'])}"


ATTEMPTS = Table(
    "number",
    {
        "#": lambda attempt: str(attempt["number"]),
        "WHERE": lambda attempt: where(attempt.get("placement")),
        "HOW LONG": lambda attempt: "now" if attempt.get("ended_at") is None else lasted(attempt),
        "ENDED BY": lambda attempt: safe(end_word(attempt.get("cause") or DASH, attempt.get("evidence") or "")),
        "STEPS KEPT": _steps,
        "LOST": lambda attempt: count(attempt.get("steps_lost")),
        "COST": lambda attempt: money(attempt.get("cost_usd")),
        "EVIDENCE": lambda attempt: safe(attempt.get("evidence") or ""),
    },
)


def attempt_lines(attempts: Sequence[Json], every: bool = False) -> list[str]:
    """The table of the newest attempts, or of all, and the line of shares; nothing for a run without attempts."""
    shown = attempts if every else attempts[-ATTEMPTS_SHOWN:]
    older = len(attempts) - len(shown)
    shares = shares_line(attempts)
    return [
        *([f"{plural(older, 'older attempt')} not shown: spot show RUN --attempts"] if older else []),
        *(ATTEMPTS.lines(shown) if shown else []),
        *([shares] if shares else []),
    ]


def shares_line(attempts: Sequence[Json]) -> str:
    """`waiting 3 % ▏boot 6 % ▏… effective 88 %`: the shares of the time of all attempts, at most 80 columns."""
    sums = {key: sum((a.get("phase_s") or {}).get(key) or 0.0 for a in attempts) for key in PHASES}
    whole = sum(sums.values())
    if whole <= 0:
        return ""
    shares = [f"{key} {100 * sums[key] / whole:.0f} %" for key in PHASES]
    return " ▏".join(shares) + f"  effective {100 * sums['training'] / whole:.0f} %"


def placing_lines(placing: Json | None) -> list[str]:
    """The failed tries of the attempt that has no machine yet; nothing without a failed try."""
    tries = (placing or {}).get("tries") or []
    if not placing or not tries:
        return []
    last = tries[-1]
    reason = f"{where(last.get('placement'))}: {safe(last['cause'])} {safe(last.get('detail') or '')}".rstrip()
    return [f"attempt {placing['number']}: {plural(len(tries), 'try')} without a machine, the last in {reason}"]


def event_lines(event: Json) -> list[str]:
    """`14:02:11  attempt 3  attempt_ended  text`: one line, more only on a narrow terminal."""
    attempt = f"attempt {event['attempt']}" if event.get("attempt") else DASH
    kind = safe(event["kind"])
    if event.get("source") == "cloud":
        kind = "cloud: " + kind.removeprefix("compute.instances.")
    head = f"{clock(event['at'])}  {attempt:<10}  "
    indent = " " * (len(head) + KIND_WIDTH + 2)  # also after a longer kind: all texts begin in one column
    return paragraph(f"{head}{kind:<{KIND_WIDTH}}  {safe(event['text'])}", indent)
