"""Evidence in its normal form, from a beat with its row, from a stored document, or from loose files.

`of_beat` reads what may decide an end: the beat, the row, the platform's record. `of_document` reads what only explains
it, in version 1 and 2. `of_files` reads a log and facts that a person wrote down; it accepts many spellings and ignores
what it does not know. All three are total: evidence is untrusted, and another shape is no evidence.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from supervisor.contract import beat_telemetry, heartbeat
from supervisor.contract.beat_telemetry import Disk
from supervisor.contract.heartbeat import MAX_TEXT, Beat, Exit
from supervisor.contract.logs.beginning import beginning
from supervisor.contract.logs.matcher import patterns_of, scan
from supervisor.contract.signs import CAUSE, SLOW, Hang, Signs, decode
from supervisor.contract.thread_places import PLACES, place_of
from supervisor.domain.attempt import Pulse
from supervisor.domain.causes import SAME_FAILURE, Cause
from supervisor.domain.diagnosis.evidence import Evidence, Source
from supervisor.domain.machines import MachineState
from supervisor.domain.observation import Observation, Seen
from supervisor.domain.run import Run
from supervisor.lifecycle.diagnosis.collecting import (
    EARLIER_BEAT,
    LAST_BEAT,
    LIST_ITEMS,
    TEXT_CHARS,
    Collected,
    add_disk,
    add_exit,
    add_signs,
    add_telemetry,
    plain,
)
from supervisor.lifecycle.diagnosis.loose import collect
from supervisor.lifecycle.diagnosis.signs import UP
from supervisor.wording.attempt import packages_text

Json = Mapping[str, Any]
TAIL_BYTES = 65_536
EDITED_SHOWN = 3
DOCUMENT_LOG = 8_000_000  # of a log beside a document
_NO_SIGNS = Signs()
_WINDOWS = {"mount.data", *(name for names in SLOW.values() for name in names)}


# --- a beat -----------------------------------------------------------------------------------------------------------


def of_beat(run: Run | None, beat: Beat, obs: Observation, pulse: Pulse | None, stalled: str = "") -> Evidence:
    """What may decide. `pulse`: of the beats before this one; it counts if it is of the same launch. `stalled`: why the
    supervisor gives the training up as stalled; "" = it does not."""
    into = Collected()
    before = pulse if pulse is not None and pulse.launch_id in ("", beat.launch_id) else None
    signs = decode(beat.signs)
    add_exit(into, beat.exit)
    into.add("left", beat.left, Source.AGENT, beat.up_s)
    if beat.left is not None:
        into.add("left.message", beat.message, Source.AGENT, beat.up_s)
    into.add("notice.left_s", beat.notice_s, Source.AGENT, beat.up_s)
    known_xids = add_signs(into, signs)
    for where, text in ((EARLIER_BEAT, before.telemetry if before is not None else ""), (LAST_BEAT, beat.telemetry)):
        add_telemetry(into, beat_telemetry.decode(text), where, known_xids)
    _add_steps(into, run, beat, before)
    if stalled:
        into.add("own.end", Cause.STALLED.value, Source.OWN, where=stalled)
    machine = obs.machine.value if isinstance(obs.machine, Seen) else None
    if machine is not None and machine.record is not None:
        where = "" if machine.state in (MachineState.ENDING, MachineState.ENDED) else UP
        into.add("record.cause", machine.record.cause.value, Source.PROVIDER, machine.record.at, where)
        into.add("record.detail", machine.record.detail, Source.PROVIDER, machine.record.at)
    return with_words(into, beat.exit, signs)


def of_end(cause: Cause, detail: str, metric: str = "") -> Evidence:
    """Of an end that the supervisor knows by itself: from the platform's record, from silence, from a limit. `metric`:
    what stays not finite, where that ended the run."""
    into = Collected()
    into.add("metric.lasting", metric, Source.AGENT)
    into.add("own.end", cause.value, Source.OWN, where=detail[:TEXT_CHARS])
    return into.evidence()


def with_words(into: Collected, end: Exit | None, signs: Signs) -> Evidence:
    """The evidence with the words with which the command ended. An agent that sends no signs has only its last telling
    line."""
    if signs.began:
        into.add("error.pattern", signs.began, Source.LOG)
    elif not signs.error and not signs.hits and end is not None:
        for pattern in patterns_of(end.last_line):
            if pattern.role == CAUSE:
                into.add("error.pattern", pattern.id, Source.LOG)
    return into.evidence(signs.hits, end, signs.error)


def _add_steps(into: Collected, run: Run | None, beat: Beat, before: Pulse | None) -> None:
    step = beat.step if beat.step is not None else before.step if before is not None else None
    into.add("step.last", step, Source.AGENT)
    into.add("step.total", beat.total, Source.AGENT)
    into.add("step.checkpoint", beat.checkpoint_step, Source.AGENT)
    attempt = run.attempt if run is not None else None
    if attempt is None or attempt.launch_id != beat.launch_id:
        return
    into.add("step.from", attempt.step_from, Source.AGENT)
    if attempt.agent_at is None:
        return
    if beat.up_s is not None:
        into.add("exit.at", attempt.agent_at + beat.up_s, Source.OWN, attempt.agent_at + beat.up_s)
    if before is None or before.up_s is None:
        return
    # Never later than the last step was: a new one came after the beat before, whose time the agent's clock shows.
    is_new = beat.step is not None and beat.step != before.step
    seen_at = None if before.progress_at is None else before.progress_at - attempt.agent_at
    step_at = before.up_s if is_new else None if seen_at is None else min(seen_at, before.up_s)
    into.add("step.at", step_at, Source.AGENT, step_at)


# --- a document -------------------------------------------------------------------------------------------------------


def of_document(document: Json, differs: Sequence[Json] = (), is_repeated: bool = False) -> Evidence:
    """What explains: the stored evidence of an attempt, version 1 or 2. Of version 1 the last lines of the log are
    searched for words, because its agent kept no hits. `differs`: where its facts differ from those of the attempt
    before (lifecycle/evidence/facts.py). `is_repeated`: its failure was the same as the last one."""
    into = Collected()
    _add_differences(into, differs)
    into.add("repeat.same", True if is_repeated else None, Source.OWN, where=SAME_FAILURE)
    agent, beat = part(document, "agent"), part(document, "beat")
    end = _exit_in(part(document, "exit")) or _exit_in(part(agent, "exit"))
    add_exit(into, end)
    into.add("left", agent.get("left"), Source.AGENT)
    if agent.get("left"):
        into.add("left.message", beat.get("message"), Source.AGENT)
    if end is None or end.oom_kills is None:
        into.add("oom.kills", agent.get("oom_kills"), Source.AGENT, where="memory.events")
    signs = _document_signs(agent, document.get("cause") == Cause.STALLED)
    known_xids = add_signs(into, signs)
    _add_start(into, agent)
    for where, telemetry in ((EARLIER_BEAT, beat.get("telemetry")), (LAST_BEAT, agent.get("telemetry"))):
        add_telemetry(into, beat_telemetry.parse(telemetry), where, known_xids)
    for role, disk in part(agent, "disks").items():
        if isinstance(disk, dict):
            add_disk(into, Disk(**{name: number_in(disk, name) for name in Disk._fields}), role)
    boot = part(agent, "boot")
    into.add("boot.id_start", boot.get("at_start"), Source.AGENT)
    into.add("boot.id_now", boot.get("now"), Source.AGENT)
    for name, key in (("step.last", "step_last"), ("step.checkpoint", "step_kept")):
        into.add(name, document.get(key), Source.OWN)
    into.add("step.total", beat.get("total"), Source.AGENT)
    _add_end(into, document)
    records = document.get("records")
    for record in records if isinstance(records, list) else ():
        if isinstance(record, dict):
            at = number_in(record, "at")
            into.add("record.cause", record.get("cause"), Source.PROVIDER, at)
            into.add("record.detail", record.get("detail"), Source.PROVIDER, at)
    for line in lines_in(document.get("serial")):
        into.add("serial.line", line, Source.PROVIDER, where="serial")
    log = "\n".join(lines_in(document.get("log_tail")))
    return with_log(into, end, log.encode("utf-8", "replace"), signs)


def with_log(into: Collected, end: Exit | None, log: bytes, signs: Signs = _NO_SIGNS) -> Evidence:
    """The evidence with the words of a log, where the agent has kept none itself."""
    if signs.hits or signs.error or not log:
        return with_words(into, end, signs)
    matcher = scan(log)
    began, error = beginning(matcher, 0, end.code if end is not None else None)
    return with_words(into, end, signs._replace(hits=tuple(matcher.hits()), began=began, error=error))


def _document_signs(agent: Json, is_stalled: bool) -> Signs:
    """What the last beat carried, with what only the agent's part has (version 2)."""
    signs = decode(json.dumps(agent["signs"])) if isinstance(agent.get("signs"), dict) else _NO_SIGNS
    oom, xids = part(agent, "oom"), rows_in(agent, "xids", 3)
    rose_up_s, shared = number_in(oom, "rose_up_s"), oom.get("shared")
    return signs._replace(
        hang=signs.hang or (_hang_in(part(agent, "stall")) if is_stalled else None),
        oom_rose_up_s=rose_up_s if signs.oom_rose_up_s is None else signs.oom_rose_up_s,
        oom_shared=shared if isinstance(shared, bool) else signs.oom_shared,
        xids=tuple((int(card), int(code), at) for card, code, at in xids) or signs.xids,
        held=signs.held or tuple((int(row[0]), row[1]) for row in rows_in(agent, "cards_before", 3) if row[1]),
    )


def _hang_in(stall: Json) -> Hang | None:
    """Where a stalled training stood, by the dump of its threads. An older agent says nothing of motion; what a newer
    one saw move may have waited there for a moment only."""
    threads, place = stall.get("threads"), stall.get("place")
    dumps = [dump for dump in threads if isinstance(dump, dict)] if isinstance(threads, list) else []
    if not dumps or stall.get("moves"):
        return None
    still_s = number_in(stall, "without_progress_s") or 0.0
    return Hang(place if place in PLACES else place_of(dumps), still_s, count_in(stall, "step"))


def _add_start(into: Collected, agent: Json) -> None:
    """Facts of the start, what the kernel's counter was then, and figures of several minutes."""
    for name, figure in part(agent, "windows").items():
        if name in _WINDOWS and not into.has(name):
            into.add(name, figure, Source.AGENT)
    oom, start = part(agent, "oom"), part(agent, "start")
    into.add("oom.before", number_in(oom, "before"), Source.AGENT, where="memory.events")
    into.add("oom.after", number_in(oom, "after"), Source.AGENT, where="memory.events")
    for row in rows_in(agent, "cards_before", 3):
        into.add("card.total", row[2], Source.AGENT, where=f"card {row[0]:.0f}")
    edited = lines_in(agent.get("code_edited"))
    if edited:
        into.add("code.changed", True, Source.AGENT, where=", ".join(edited[:EDITED_SHOWN])[:TEXT_CHARS])
    names = {"env.conda": "conda_prefix", "env.venv": "virtual_env", "env.python": "command_python"}
    for name, key in {**names, "card.opened": "cards_opened", "driver.version": "driver"}.items():
        into.add(name, start.get(key), Source.AGENT)


def _add_differences(into: Collected, differs: Sequence[Json]) -> None:
    """Packages of another image say nothing: they are expected to differ."""
    rows = {str(row["fact"]): row for row in differs}
    for fact, row in rows.items():
        change = f"{row['was'] or 'none'} → {row['is'] or 'none'}"
        if fact == "packages" and "image_digest" not in rows:
            into.add("facts.changed", fact, Source.OWN, where=packages_text(row["packages"]))
        elif fact.startswith("seed "):
            into.add("facts.changed", f"{fact}: {change}", Source.OWN)
        elif fact == "image_digest" and None not in (row["was"], row["is"]):
            into.add("image.moved", True, Source.OWN, where=change)


def _add_end(into: Collected, document: Json) -> None:
    """How the supervisor recorded the end; its own acts are evidence like the others."""
    cause, detail = document.get("cause"), document.get("detail")
    if isinstance(cause, str):
        into.add("own.end", cause, Source.OWN, where=detail[:TEXT_CHARS] if isinstance(detail, str) else "")


def _exit_in(data: Json) -> Exit | None:
    """An Exit as its fields lie in JSON; None where there is no code and no signal."""
    code, number = count_in(data, "code"), count_in(data, "signal")
    if code is None and number is None:
        return None
    line, disk = data.get("last_line"), data.get("disk_full")
    return Exit(
        code,
        number,
        data.get("sent_by_us") is True,
        number_in(data, "ran_s") or 0.0,
        plain(line[:MAX_TEXT]) if isinstance(line, str) else "",
        data.get("retry_named") is True,
        count_in(data, "oom_kills"),
        plain(disk[:MAX_TEXT]) if isinstance(disk, str) else "",
        data.get("after_work") is True,
        data.get("in_setup") is True,
    )


def part(document: Json, name: str) -> dict[str, Any]:
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def number_in(document: Json, name: str) -> float | None:
    return beat_telemetry.figure(document.get(name))


def count_in(document: Json, name: str) -> int | None:
    value = document.get(name)
    return value if heartbeat.is_count(value) else None


def rows_in(document: Json, name: str, length: int) -> list[tuple[float, ...]]:
    """Rows of so many numbers, in a list of such rows."""
    value = document.get(name)
    rows = [row for row in value[:LIST_ITEMS] if isinstance(row, list)] if isinstance(value, list) else []
    numbers = [tuple(beat_telemetry.figure(item) for item in row) for row in rows if len(row) == length]
    return [tuple(item for item in row if item is not None) for row in numbers if None not in row]


def lines_in(value: object) -> list[str]:
    return [line for line in value if isinstance(line, str)] if isinstance(value, list) else []


# --- files ------------------------------------------------------------------------------------------------------------


def of_files(log: bytes, facts: Mapping[str, Any] | None = None) -> Evidence:
    """Of a log and loose facts: a stored document, or names and figures (docs/evidence.md has the list)."""
    data = dict(facts or {})
    if isinstance(data.get("readings"), dict):
        lines = log[-DOCUMENT_LOG:].decode("utf-8", "replace").splitlines()
        return of_document({**data, "log_tail": lines} if lines else data)
    into = Collected()
    end = collect(data, into)
    if end is None and log and not any(into.has(name) for name in _STANDS_FOR_EXIT):
        end = _assumed_exit(into, log)
    return with_log(into, _with_last_line(end, log), log)


# With one of these, a missing exit is no reason to assume that the command failed.
_STANDS_FOR_EXIT = ("left", "platform.state", "record.cause", "hang.place", "own.stop", "own.kill", "serial.phase")


def _assumed_exit(into: Collected, log: bytes) -> Exit | None:
    """Of a log without any fact: that the command failed, if it ends with an error."""
    if not beginning(scan(log))[1]:
        return None
    into.unread["exit"] = "not given: the log ends with an error"
    return Exit(1, None, False)


def _with_last_line(end: Exit | None, log: bytes) -> Exit | None:
    """With the last line of the log, where the facts have none."""
    if end is None or end.last_line:
        return end
    lines = [line for line in log[-TAIL_BYTES:].decode("utf-8", "replace").splitlines() if line.strip()]
    return end._replace(last_line=lines[-1].strip()[:MAX_TEXT]) if lines else end
