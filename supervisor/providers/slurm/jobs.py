"""Jobs as Slurm prints them: a name that says everything, the two forms of the queue, and the history of their ends.

The job's name is the intent. It carries the machine's name, supervisor, run, launch and partition, so a job whose
`sbatch` never answered is found and adopted by it, and a listing needs no file. Any other name is not ours.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from supervisor.domain.machines import MachineState
from supervisor.providers.slurm.states import STATES, state_word

SEPARATOR = ":"
PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
LAUNCH = re.compile(r"\d+\.\d+\.\d+")
NAME_CHARS = 255  # of the column in slurmdbd's tables


class Unclear(ValueError):
    """An answer of Slurm that this version cannot read, or only in part. It says nothing about any job."""


@dataclass(frozen=True, slots=True)
class JobName:
    """`zone`: the partition at the submit; an administrator may move the job."""

    machine: str
    supervisor_id: str
    run_id: str
    launch_id: str
    zone: str

    @property
    def text(self) -> str:
        """Raises ValueError where it would not be read back."""
        text = SEPARATOR.join((self.machine, self.supervisor_id, self.run_id, self.launch_id, self.zone))
        if parse_name(text) != self or len(text) > NAME_CHARS:
            raise ValueError(f"{text!r} cannot be the name of a job")
        return text


def parse_name(text: str) -> JobName | None:
    """None = not a job of any supervisor."""
    parts = text.split(SEPARATOR)
    if len(parts) != 5 or not all(map(PART.fullmatch, parts)) or not LAUNCH.fullmatch(parts[3]):
        return None
    return JobName(*parts)


@dataclass(frozen=True, slots=True)
class Job:
    """`restarts`: how often Slurm has started it again. `submitted_at`, `ended_at`: epoch seconds, None = not known; a
    requeue resets the first. `node`: that it has, "" = none yet."""

    job_id: str
    name: JobName
    state: str
    reason: str
    restarts: int
    submitted_at: float | None
    ended_at: float | None = None
    exit_code: str = ""
    node: str = ""

    @property
    def machine_id(self) -> str:
        return f"{self.job_id}.{self.restarts}"


# --- squeue -----------------------------------------------------------------------------------------------------------

# --all: also of a partition that an administrator hides or takes from our group while our jobs run in it.
QUEUE_JSON = ("squeue", "--me", "--all", "--states=all", "--json")
# Not --format: it has no field for the number of restarts.
FIELDS = ("JobID", "State", "Reason", "RestartCnt", "SubmitTime", "EndTime", "NodeList", "Name")
MARK = "\x1f"  # occurs in no field
QUEUE_TEXT = (
    "squeue", "--me", "--all", "--states=all", "--noheader",
    "--Format=" + ",".join(f"{name}:{NAME_CHARS + 1}{MARK}" for name in FIELDS),
)  # fmt: skip


def from_json(text: str) -> tuple[Job, ...]:
    """Our jobs in `squeue --json`. Raises Unclear."""
    try:
        answer = json.loads(text)
        rows = answer["jobs"]
        if answer.get("errors"):
            raise Unclear(f"squeue reports errors: {answer['errors']!r}"[:300])
        if len({str(row.get("user_id")) for row in rows}) > 1:  # 22.05 does so, and anybody can choose a job's name
            raise Unclear("squeue --json ignores --me, and prints the jobs of all users")
        return tuple(_jobs_of_json(rows))
    except Unclear:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise Unclear(f"squeue --json cannot be read: {type(error).__name__} {error}"[:300]) from None


def _jobs_of_json(rows: list[Mapping[str, Any]]) -> Iterator[Job]:
    for row in rows:
        name = parse_name(str(row.get("name") or ""))
        if name is not None:
            yield Job(
                job_id=str(int(row["job_id"])),
                name=name,
                state=(state := state_word(row["job_state"])),
                reason=str(row.get("state_reason") or ""),
                restarts=int(_number(row.get("restart_cnt")) or 0),
                submitted_at=_number(row.get("submit_time")) or None,
                ended_at=_if_over(state, _number(row.get("end_time")) or None),
                node=_node(str(row.get("nodes") or "")),
            )


def _number(value: Any) -> float | None:
    """A number, or `{"set": true, "number": 5}` of newer versions. None = not set."""
    if isinstance(value, Mapping):
        return float(value["number"]) if value.get("set") and not value.get("infinite") else None
    return None if value is None else float(value)


def from_text(text: str) -> tuple[Job, ...]:
    """Our jobs in the text form of `squeue`. Raises Unclear."""
    jobs, count = [], len(FIELDS)
    *cells, rest = [cell.strip() for cell in text.split(MARK)]  # not lines: the name of a user's job may have several
    if rest or len(cells) % count:
        raise Unclear(f"squeue has printed {len(cells)} fields, {count} are of one job; it ends with {text[-100:]!r}")
    for start in range(0, len(cells), count):
        row = dict(zip(FIELDS, cells[start : start + count], strict=True))
        name = parse_name(row["Name"])
        if name is None:
            continue
        if not (row["JobID"].isdigit() and row["State"] and row["RestartCnt"].isdigit()):
            raise Unclear(f"squeue has printed a job that cannot be read: {row}"[:300])
        restarts, submitted_at, state = int(row["RestartCnt"]), moment(row["SubmitTime"]), state_word(row["State"])
        ended_at = _if_over(state, moment(row["EndTime"]))
        node = _node(row["NodeList"])
        jobs.append(Job(row["JobID"], name, state, row["Reason"], restarts, submitted_at, ended_at, node=node))
    return tuple(jobs)


def _node(text: str) -> str:
    """A job of ours has one node. Words for "none yet" are in brackets."""
    return text if PART.fullmatch(text) else ""


def _if_over(state: str, at: float | None) -> float | None:
    """The end of a job that waits or runs is the one that its time limit sets."""
    return at if state in STATES and STATES[state].state is MachineState.ENDED else None


def moment(text: str) -> float | None:
    """Epoch seconds, from SLURM_TIME_FORMAT=%s or from ISO in this computer's time zone. None = not known."""
    if text.isdigit():
        return float(text) or None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


# --- the history ------------------------------------------------------------------------------------------------------
#
# One command reads the ends of many jobs, from whatever the cluster keeps. A requeued job has one row for each of its
# starts, in the order of their ends. The controller alone keeps only the last one, for MinJobAge seconds.

COLUMNS = "JobIDRaw,State,ExitCode,End"
PAIR = re.compile(r"(\w[\w:/]*)=(\S*)")


class Keeper(StrEnum):
    """Who keeps the ends of jobs, from the best to the last resort."""

    ACCOUNTING = "slurmdbd"
    COMPLETIONS = "the log of completed jobs"
    CONTROLLER = "the controller"


@dataclass(frozen=True, slots=True)
class JobEnd:
    """One start of a job that is over, or (where the state says so) not yet. `exit_code`: such as `0:9`, exit and
    signal."""

    state: str
    ended_at: float | None
    exit_code: str = ""


Ends = Mapping[str, Sequence[JobEnd]]  # job id -> its starts, in order


def history_command(keeper: Keeper, job_ids: Iterable[str]) -> tuple[str, ...]:
    ids = ",".join(sorted(job_ids, key=int))
    if keeper is Keeper.CONTROLLER:
        return ("scontrol", "show", "job", "--oneliner", "--all")
    if keeper is Keeper.COMPLETIONS:
        return ("sacct", "--completion", "--parsable2", f"--jobs={ids}")
    return ("sacct", "--allocations", "--duplicates", "--parsable2", f"--format={COLUMNS}", f"--jobs={ids}")


def peaks_command(job_ids: Iterable[str]) -> tuple[str, ...]:
    """With the steps of the jobs: only these have a MaxRSS. For Keeper.ACCOUNTING alone."""
    ids = ",".join(sorted(job_ids, key=int))
    return ("sacct", "--duplicates", "--parsable2", "--format=JobIDRaw,MaxRSS", f"--jobs={ids}")


def peaks(text: str) -> Mapping[str, float]:
    """Job id -> bytes of its largest step. A job whose steps have no figure is left out."""
    most: dict[str, float] = {}
    for line in text.splitlines()[1:]:
        step, _, used = line.partition("|")
        job_id, used_bytes = step.partition(".")[0], bytes_of(used)
        if job_id.isdigit() and used_bytes is not None:
            most[job_id] = max(used_bytes, most.get(job_id, 0.0))
    return most


def bytes_of(text: str) -> float | None:
    """Of a MaxRSS such as `61234K`, `59.8G` or `0`; None = there is none."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)", text.strip())
    if match is None or not float(match[1]):
        return None
    return float(match[1]) * 1024.0 ** (" KMGT".index(match[2]) if match[2] else 0)


def history(keeper: Keeper, text: str) -> Ends:
    """Raises Unclear."""
    return _from_controller(text) if keeper is Keeper.CONTROLLER else _from_table(text)


def _from_table(text: str) -> Ends:
    """With a line of headings, in any order: the columns of a log of completions are fixed."""
    lines = text.splitlines()
    heads = lines[0].split("|") if lines else []
    key = next((name for name in ("JobIDRaw", "JobID") if name in heads), "")
    if not key or "State" not in heads:
        raise Unclear(f"sacct has printed other columns: {lines[:1]}"[:300])
    ends: defaultdict[str, list[JobEnd]] = defaultdict(list)
    for line in lines[1:]:
        cells = line.split("|")
        if len(cells) < len(heads):
            raise Unclear(f"sacct has printed a line that is too short: {line[:100]!r}")
        row = dict(zip(heads, cells, strict=False))
        if row[key].isdigit():  # else a step, or an array
            ends[row[key]].append(JobEnd(state_word(row["State"]), moment(row.get("End", "")), row.get("ExitCode", "")))
    return {job_id: sorted(each, key=_by_end) for job_id, each in ends.items()}


def _by_end(end: JobEnd) -> float:
    return end.ended_at if end.ended_at is not None else float("inf")


def _from_controller(text: str) -> Ends:
    """Only the present start of each job is known, so those before it are left empty."""
    ends = {}
    for line in text.splitlines():
        row: dict[str, str] = {}
        for name, value in PAIR.findall(line):
            row.setdefault(name, value)  # a later pair may be a part of the user's words
        if "JobId" not in row:
            continue
        if not row.get("JobState") or not row.get("Restarts", "0").isdigit():
            raise Unclear(f"scontrol has printed a job that cannot be read: {line[:100]!r}")
        last = JobEnd(state_word(row["JobState"]), moment(row.get("EndTime", "")), row.get("ExitCode", ""))
        ends[row["JobId"]] = [JobEnd("", None)] * int(row.get("Restarts", "0")) + [last]
    return ends
