"""The orders of a run (contract/runfiles.py): what people want of it while it lives. One object, compare-and-set.

Nothing of them is in the database or in a tick, except the event that tells who wanted what. The agent learns of a
change by the response to its next beat, and beats come faster for a while.

A command is signed for one launch, so no other machine runs it. Whoever creates its result decides what becomes of it:
the agent that starts it, or this supervisor where no agent took it in time. So it runs once at most.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from typing_extensions import TypedDict

from supervisor.contract import runfiles
from supervisor.contract.runfiles import Orders
from supervisor.domain.callers import Caller, Scope
from supervisor.domain.errors import (
    CommandNotFound,
    CommandRefused,
    Forbidden,
    InvalidRequest,
    NotSupportedHere,
    RunEnded,
    Unavailable,
)
from supervisor.domain.events import EventKind
from supervisor.domain.profile import Reach
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.domain.texts import looks_secret
from supervisor.ports.objectstore import ABSENT, ObjectMissing, ObjectStore, PreconditionFailed
from supervisor.services.parts import Parts
from supervisor.services.runs.changing import RACES_MAX, find_run
from supervisor.telemetry.redaction import DOTS, hidden
from supervisor.wording.figures import clip

EXEC, COLLECT = "exec", "collect"  # run a command; collect the files of the code that the machine has changed
WAITING, RUNNING, DONE, REFUSED, LOST = "waiting", "running", "done", "refused", "lost"  # of a command
START_WITHIN_S = 120.0
LATE_S = 60.0  # after the time limit of a command, for its last words
KEPT_S = 900.0  # in the orders: longer than any command may take until its last words
OPEN_MAX, RESULTS_MAX = 10, 50
RESULT_BYTES = 1_000_000
ORDERS_BYTES = 8_000_000  # far more than the longest commands and deltas that we write
WORDS_CHARS = 32_768
SHOWN_CHARS = 300
Step = Callable[[Orders], Orders]
Command = Mapping[str, Any]


class CommandShown(TypedDict):
    """`state`: waiting, running, done, refused (`text` says why) or lost: its machine ended before its result was
    known. `exit_code` null: it was not started, or a signal ended it. `output`: the beginning of what it printed,
    without secrets of the run; `dropped_bytes`: what was printed after that. `folder`: where it ran. `files`: how many
    were collected; null: it collects none."""

    run_id: str
    command_id: str
    kind: str
    state: str
    text: str
    exit_code: int | None
    signal: int | None
    timed_out: bool
    ran_s: float | None
    output: str
    dropped_bytes: int
    folder: str
    files: int | None


@dataclass(frozen=True, slots=True)
class CommandRequest:
    """`words`: for EXEC. `folder`: where it runs, "" = where the run's command does. `paths`: for COLLECT; none =
    all."""

    kind: str
    words: tuple[str, ...] = ()
    folder: str = ""
    timeout_s: float = 60.0
    paths: tuple[str, ...] = ()


def read_orders(objects: ObjectStore, run_id: str) -> tuple[Orders, str]:
    """(empty ones where there are none, their generation). Raises StoreUnavailable, Unavailable (torn, or too long).
    The content may be newer than the generation: then the next write finds out."""
    key = runfiles.orders(run_id)
    try:
        generation = objects.stat(key).generation
        raw = b"".join(objects.read(key, 0, ORDERS_BYTES + 1))
        if len(raw) > ORDERS_BYTES:
            raise ValueError("longer than we ever write them")
        return _checked(runfiles.decode_orders(raw), run_id), generation
    except ObjectMissing:
        return Orders(), ABSENT
    except ValueError:
        text = f"The orders of {run_id} in the object store cannot be parsed. Delete {runfiles.orders(run_id)} there."
        raise Unavailable(text, {"run_id": run_id}) from None


def _checked(orders: Orders, run_id: str) -> Orders:
    """A training can write the objects of its run, so this one too. Raises ValueError where we did not write it: its
    deltas are read and deleted, and its rows are shown."""
    deltas = orders.synced.deltas if orders.synced is not None else ()
    if not all(delta.key.startswith(runfiles.synced(run_id)) for delta in deltas):
        raise ValueError("a delta of something else")
    for row in orders.commands:
        texts, figures = (row.get("id"), row.get("kind"), row.get("launch_id")), (row.get("at"), row.get("timeout_s"))
        if not all(isinstance(text, str) for text in texts) or not all(isinstance(at, int | float) for at in figures):
            raise ValueError("not a command")
    return orders


def change_orders(objects: ObjectStore, run_id: str, step: Step) -> Orders:
    """`step` gets the present orders, again after each race. Raises what `step` and `read_orders` raise."""
    for _ in range(RACES_MAX):
        orders, generation = read_orders(objects, run_id)
        after = step(orders)
        if after == orders:
            return orders
        after = after._replace(number=orders.number + 1)
        try:
            objects.put(runfiles.orders(run_id), runfiles.encode_orders(after), generation)
        except PreconditionFailed:
            continue
        return after
    raise Unavailable(f"The orders of {run_id} kept changing; nothing was done. Retry.", {"run_id": run_id})


def refuse_unreachable(parts: Parts, run: Run) -> None:
    """Raises RunEnded; NotSupportedHere where the run's machines cannot reach our object store."""
    if run.terminal:
        text = f"{run.run_id} is {run.status}: it has no machine, and gets none before a resume."
        raise RunEnded(text, {"run_id": run.run_id, "status": run.status})
    for name in run.providers:
        provider = parts.providers.get(name)
        reach = None if provider is None else provider.profile().store_reach.value
        if reach in (Reach.RELAY, Reach.OUTPUT):
            text = f"The machines of {run.run_id} on {name} cannot reach the object store, which carries this."
            text += f" `spot attach {run.run_id}` opens a shell there." if reach is Reach.RELAY else ""
            raise NotSupportedHere(text, {"run_id": run.run_id, "provider": name})


# --- commands ---------------------------------------------------------------------------------------------------------


def command(
    parts: Parts, run_id: str, request: CommandRequest, caller: Caller, exec_for_others: bool = False
) -> tuple[CommandShown, Orders]:
    """Order a command on the machine of a running run. Raises NotFound, RunEnded, CommandRefused, Forbidden,
    NotSupportedHere, StoreUnavailable, Unavailable, StoreDown."""
    run, now = find_run(parts, run_id), parts.clock.now()
    if request.kind == EXEC:
        refuse_exec(run, caller, exec_for_others)
    refuse_unreachable(parts, run)
    if sum(map(len, request.words)) > WORDS_CHARS:
        raise InvalidRequest(f"The command has more than {WORDS_CHARS:,} characters.", {"max": WORDS_CHARS})
    launch_id, digest = _launch(parts, run)
    row: dict[str, Any] = {
        "id": secrets.token_hex(8), "kind": request.kind, "launch_id": launch_id, "words": list(request.words),
        "folder": request.folder, "timeout_s": request.timeout_s, "paths": list(request.paths), "at": now,
        "by": caller.actor,
    }  # fmt: skip
    row["mac"] = runfiles.signature(row, digest)

    def step(orders: Orders) -> Orders:
        kept = tuple(each for each in orders.commands if now - float(each["at"]) < KEPT_S)
        if len(kept) >= OPEN_MAX:
            text = f"{run_id} got {len(kept)} commands within {KEPT_S / 60:.0f} min, the most that are kept. Wait."
            raise CommandRefused(text, {"run_id": run_id})
        return orders._replace(commands=(*kept, row))

    step(read_orders(parts.objects, run_id)[0])  # a refusal is no event
    if request.kind == EXEC:
        text = audited(request.words)
        data = {"command_id": row["id"], "command": text, "folder": request.folder, "attempt": _number(run)}
        event = caller.event(EventKind.COMMAND_SENT, f"Command sent by {caller.actor}: {clip(text, 200)}.", data)
        parts.store.add_events(run.key, [event], now)
    orders = change_orders(parts.objects, run_id, step)
    _prune(parts.objects, run_id)
    return _shown(run_id, row, {}), orders


def refuse_exec(run: Run, caller: Caller, exec_for_others: bool) -> None:
    """Raises Forbidden: even an admin runs no commands on the machines of other people, unless the settings say so."""
    if not caller.may(Scope.EXEC) or (caller.owner != run.owner and not (caller.admin and exec_for_others)):
        text = f"{run.run_id} belongs to {run.owner}. Commands on its machine are for tokens of that owner with the "
        text += f"scope {Scope.EXEC} (setting exec_for_others: for admins too)."
        raise Forbidden(text, {"run_id": run.run_id, "owner": run.owner})


def _launch(parts: Parts, run: Run) -> tuple[str, str]:
    """(launch id, hash of its nonce) of the machine that runs the command. Raises CommandRefused."""
    attempt = run.live_attempt
    digest = None if attempt is None else parts.store.nonce_hash(run.run_id, attempt.launch_id)
    if run.status != Status.RUNNING or attempt is None or not digest:
        text = f"{run.run_id} is {run.status}: its command runs on no machine now, so nothing can run beside it."
        raise CommandRefused(text, {"run_id": run.run_id, "status": run.status})
    return attempt.launch_id, digest


def _number(run: Run) -> int | None:
    return None if run.attempt is None else run.attempt.number


def audited(words: Sequence[str]) -> str:
    """The command for the history: without secrets, also those that follow an option with such a name."""
    shown, is_secret = [], False
    for word in words:
        shown.append(DOTS if is_secret else word)
        is_secret = word.startswith("-") and "=" not in word and looks_secret(word.replace("-", "_"))
    return hidden(" ".join(shown))[:SHOWN_CHARS]


def show_command(
    parts: Parts, run_id: str, command_id: str, caller: Caller, exec_for_others: bool = False
) -> tuple[CommandShown, Orders]:
    """What became of it. One that no machine took in time is taken back. Raises NotFound, CommandNotFound, Forbidden,
    StoreUnavailable, Unavailable."""
    run = find_run(parts, run_id)
    orders = read_orders(parts.objects, run_id)[0]
    row = next((each for each in orders.commands if each["id"] == command_id), None)
    result = _result(parts.objects, run_id, command_id)
    if row is None and result is None:
        raise CommandNotFound(f"{run_id} has no such command (any more).", {"run_id": run_id})
    if (row or result or {}).get("kind") == EXEC:
        refuse_exec(run, caller, exec_for_others)
    now = parts.clock.now()
    if row is not None and result is None and now - float(row["at"]) > START_WITHIN_S:
        result = _take_back(parts.objects, run_id, row)
    if result is not None and result.get("state") == RUNNING and not _may_run(run, row, now):
        result = {**result, "state": LOST, "text": "its machine ended, or is cut off, before its result was known"}
    return _shown(run_id, row or {"id": command_id, "kind": (result or {}).get("kind")}, result or {}), orders


def _may_run(run: Run, row: Command | None, now: float) -> bool:
    """False also where it has left the orders: its time was over long before."""
    if row is None or run.live_attempt is None or run.live_attempt.launch_id != row["launch_id"]:
        return False
    return now <= float(row["at"]) + START_WITHIN_S + float(row["timeout_s"]) + LATE_S


def command_files(parts: Parts, run_id: str, command_id: str) -> tuple[int, Iterator[bytes]]:
    """(size, content) of the archive of a COLLECT. Raises NotFound, CommandNotFound, StoreUnavailable."""
    find_run(parts, run_id)
    key = runfiles.command_files(run_id, command_id)
    try:
        size = parts.objects.stat(key).size
    except ObjectMissing:
        raise CommandNotFound(f"{run_id} has no such files (any more).", {"run_id": run_id}) from None
    return size, parts.objects.read(key, 0, size)


def _take_back(objects: ObjectStore, run_id: str, row: Command) -> dict[str, Any] | None:
    text = f"no machine took it within {START_WITHIN_S:.0f} s"
    withdrawn = {"state": REFUSED, "kind": row["kind"], "text": text}
    try:
        objects.put(runfiles.command_result(run_id, str(row["id"])), json.dumps(withdrawn).encode(), ABSENT)
        return withdrawn
    except PreconditionFailed:
        return _result(objects, run_id, str(row["id"]))  # its machine took it just now


def _result(objects: ObjectStore, run_id: str, command_id: str) -> dict[str, Any] | None:
    """None: there is none yet. A machine writes it, so it may be anything: what is no result is shown as lost."""
    try:
        raw = b"".join(objects.read(runfiles.command_result(run_id, command_id), 0, RESULT_BYTES + 1))
    except ObjectMissing:
        return None
    with suppress(ValueError, RecursionError):
        result = json.loads(raw) if len(raw) <= RESULT_BYTES else None
        if isinstance(result, dict):
            return result
    return {"state": LOST, "text": "its result cannot be parsed"}


def _shown(run_id: str, row: Command, result: Command) -> CommandShown:
    def number(name: str) -> int | None:
        value = result.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**53 else None

    def text(name: str, most: int) -> str:
        return str(result.get(name) or "").encode("utf-8", "replace").decode()[:most]

    ran_s, state = result.get("ran_s"), result.get("state", WAITING)
    return {
        "run_id": run_id,
        "command_id": str(row["id"]),
        "kind": EXEC if row["kind"] == EXEC else COLLECT,
        "state": state if state in (WAITING, RUNNING, DONE, REFUSED) else LOST,
        "text": text("text", SHOWN_CHARS),
        "exit_code": number("exit_code"),
        "signal": number("signal"),
        "timed_out": result.get("timed_out") is True,
        "ran_s": float(ran_s) if isinstance(ran_s, int | float) and 0 <= ran_s < 1e9 else None,
        "output": text("output", RESULT_BYTES),
        "dropped_bytes": number("dropped") or 0,
        "folder": text("folder", 4096),
        "files": number("files"),
    }


def _prune(objects: ObjectStore, run_id: str) -> None:
    """The oldest results and archives, where there are many."""
    prefix = runfiles.command_result(run_id, "").removesuffix(".json")
    infos = sorted((info for page in objects.pages(prefix) for info in page.objects), key=lambda info: info.updated)
    for info in infos[:-RESULTS_MAX]:
        objects.delete(info.key)
