"""The last gate: the results are verified, and the machine goes only when nobody needs it any more.

Two things may keep it: a person who wants to agree (`on_success: ask`, or a provider whose machines cannot be had
back), and results that nobody has pulled yet (`require_pull`). Where both are asked for, both must come. Neither
lasts for ever: after `ask_limit_s` the machine is released, because the results lie verified in the store.
"""

from __future__ import annotations

from dataclasses import replace

from supervisor.domain.events import Event, EventKind
from supervisor.domain.machines.machine import MachineState
from supervisor.domain.observation import Observation, Seen
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.domain.world import World
from supervisor.lifecycle.decision import Decision, moved, tell


def hold_or_complete(run: Run, verified: Event, world: World, now: float) -> Decision:
    """`run` has its outcome and no live attempt: completed (or partial) at once, where nothing keeps its machine."""
    if not run.retiring or not (_must_ask(run, world) or run.awaits_pull):
        return _complete(run, (verified,), now)
    note = "awaiting a pull of the results" if run.awaits_pull else "awaiting approval"
    held = tuple(replace(item, until=now + world.knobs.ask_limit_s, note=note) for item in run.retiring)
    return Decision(
        moved(replace(run, retiring=held), Status.AWAITING_TEARDOWN, now), (verified,), again=True
    )


def await_teardown(run: Run, obs: Observation, world: World, now: float) -> Decision:
    """Results are verified; only the release waits. A stop changes nothing here."""
    events: tuple[Event, ...] = ()
    if run.stop is not None:
        run = replace(run, stop=None)
        events = (
            tell(
                EventKind.STOP_IGNORED, "Stop changes nothing: the work is done and only the release waits."
            ),
        )
    if not run.retiring:
        return _complete(
            run, (*events, tell(EventKind.MACHINE_RELEASED, "The machine ended by itself.")), now
        )
    pull_is_enough = run.policy.require_pull and not _must_ask(run, world)
    agreed = run.approval is not None or pull_is_enough
    if (agreed and not run.awaits_pull) or now >= run.status_since + world.knobs.ask_limit_s:
        return _complete(_freed(run, now), events, now)
    ended = (
        isinstance(obs.retiring[0], Seen) and obs.retiring[0].value.state == MachineState.ENDED
        if obs.retiring
        else False
    )
    if ended:
        return _complete(run, events, now)
    return Decision(run, events, check_after=run.status_since + world.knobs.ask_limit_s)


def _freed(run: Run, now: float) -> Run:
    """A machine that is kept for a person all the same (`on_success: keep`) stays for the rest of its time."""
    until = max(now, run.kept_until or now)
    note = "approved" if run.approval is not None else "not needed any more"
    return replace(run, retiring=tuple(replace(item, until=until, note=note) for item in run.retiring))


def _complete(run: Run, events: tuple[Event, ...], now: float) -> Decision:
    partial = run.outcome is not None and bool(run.outcome.missing)
    status, kind = (Status.PARTIAL, EventKind.PARTIAL) if partial else (Status.COMPLETED, EventKind.COMPLETED)
    text = f"Partial: {run.detail}." if partial else "Completed; results verified."
    return Decision(moved(run, status, now), (*events, tell(kind, text)), again=True)


def _must_ask(run: Run, world: World) -> bool:
    return run.policy.on_success == "ask" or run.provider in world.irreplaceable
