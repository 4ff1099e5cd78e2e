"""What else happens in a scenario: to the object store, the database, agents, clocks, the supervisor."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from supervisor.contract import baton as batons
from supervisor.contract import heartbeat, runfiles
from supervisor.contract.heartbeat import Beat
from supervisor.services.runs.actions import stop
from supervisor.services.runs.changing import change
from tests.scenarios.fault_points import SupervisorDied
from tests.scenarios.script import Line, ScenarioError, choose, seconds
from tests.scenarios.sim_agent import SimAgent
from tests.scenarios.stage import Stage
from tests.scenarios.user_verbs import ACTOR, exit_of

# --- the store and the database ---------------------------------------------------------------------------------------


def store(stage: Stage, line: Line) -> None:
    """store down|up [supervisor|agents]; stale|current: the supervisor's listings stay as they are now until
    `current`; lose-responses N: the responses of N writes are lost; full|not-full; torn-checkpoint|stray-checkpoint|
    lose-result|torn-baton|whole-baton NAME"""
    choose(STORE, line.word(0, "a verb of the store"))(stage, line)


def _block(blocked: bool) -> Callable[[Stage, Line], None]:
    def verb(stage: Stage, line: Line) -> None:
        if "agents" not in line.words:
            stage.own_access.blocked = blocked
        if "supervisor" not in line.words:
            stage.agents_access.blocked = blocked

    return verb


def _stale(stage: Stage, _: Line) -> None:
    stage.own_access.old = {runfiles.BEATS: list(stage.objects.pages(runfiles.BEATS))}


def _torn(stage: Stage, line: Line) -> None:
    pointer = batons.decode(stage.objects.get(runfiles.baton(line.word(1, "a run id")))[0]).checkpoint
    stage.objects.put(pointer.prefix + pointer.files[0].name, b"torn")


def _stray(stage: Stage, line: Line) -> None:
    stage.objects.put(runfiles.checkpoint(line.word(1, "a run id"), 999, 1) + "model.pt", b"no pointer names me")


def _torn_baton(stage: Stage, line: Line) -> None:
    key = runfiles.baton(line.word(1, "a run id"))
    stage.objects.put("aside/" + key, stage.objects.get(key)[0])
    stage.objects.put(key, b"{ torn")


def _whole_baton(stage: Stage, line: Line) -> None:
    key = runfiles.baton(line.word(1, "a run id"))
    stage.objects.put(key, stage.objects.get("aside/" + key)[0])


def _lose_result(stage: Stage, line: Line) -> None:
    for page in stage.objects.pages(runfiles.folder(line.word(1, "a run id")) + "results/"):
        for info in page.objects:
            stage.objects.delete(info.key)


STORE = {
    "down": _block(True),
    "up": _block(False),
    "stale": _stale,
    "current": lambda stage, line: setattr(stage.own_access, "old", None),
    "lose-responses": lambda stage, line: setattr(stage.objects, "lose_answers", int(line.word(1, "how many"))),
    "torn-checkpoint": _torn,
    "stray-checkpoint": _stray,
    "torn-baton": _torn_baton,
    "whole-baton": _whole_baton,
    "full": lambda stage, line: setattr(stage.objects, "full", True),
    "not-full": lambda stage, line: setattr(stage.objects, "full", False),
    "lose-result": _lose_result,
}


def database(stage: Stage, line: Line) -> None:
    """database down|up"""
    stage.rows.down = {"down": True, "up": False}[line.word(0, "down or up")]


# --- agents and their beats -------------------------------------------------------------------------------------------


def agent(stage: Stage, line: Line) -> None:
    """agent NAME[@attempt] silent|talks|mute|dies|hung|hangs PLACE|late SIGNALS|trains|phase PHASE|
    notice TIME|exits "HOW"|disk PERCENT_FREE|repairs FILES BYTES|odd METRIC KIND (of signs.ODD)|throttled SHARE.
    `hung`: an older agent, whose beats say nothing of it; `hangs`, `late`: no steps either, and its beats say where it
    waits, or what still moves (nothing: `still`); `throttled`: at this share of its pace, 1 = as planned"""
    run_id, _, attempt = line.word(0, "a run id").partition("@")
    sim = stage.agent(run_id, int(attempt) if attempt else None)
    choose(AGENT, line.word(1, "a verb of the agent"))(sim, line)
    sim.due = stage.clock.monotonic()


def _exits(sim: SimAgent, line: Line) -> None:
    how, _ = exit_of(line.word(2, "an exit") + "@0s")
    sim.plan = replace(sim.plan, exits=(how, 0.0))


AGENT = {
    "silent": lambda sim, line: setattr(sim, "silent", True),
    "talks": lambda sim, line: setattr(sim, "silent", False),
    "mute": lambda sim, line: setattr(sim, "mute", True),
    "dies": lambda sim, line: setattr(sim, "dead", True),
    "hung": lambda sim, line: sim.go_on(hung=True),
    "hangs": lambda sim, line: sim.go_on(hung=True, hangs_at=line.word(2, "a place")),
    "late": lambda sim, line: sim.go_on(hung=True, moves=tuple(line.word(2, "signals").split(","))),
    "trains": lambda sim, line: sim.go_on(),
    "phase": lambda sim, line: sim.go_on(long_phase=line.word(2, "a phase")),
    "notice": lambda sim, line: setattr(sim, "early_notice_s", seconds(line.word(2, "a time"))),
    "exits": _exits,
    "repairs": lambda sim, line: setattr(sim, "repaired", (int(line.word(2, "files")), int(line.word(3, "bytes")))),
    "odd": lambda sim, line: sim.turn_odd(line.word(2, "a metric"), line.word(3, "what is odd")),
    "throttled": lambda sim, line: sim.throttle(float(line.word(2, "a share of its pace"))),
    "disk": lambda sim, line: setattr(sim, "disk_free_pct", float(line.word(2, "a share"))),
}


def forge(stage: Stage, line: Line) -> None:
    """forge NAME nonce|older|absurd: a beat in the store that is not from the holder"""
    run_id, kind = line.word(0, "a run id"), line.word(1, "a kind of forgery")
    sim = stage.agent(run_id)
    beat = sim.sender.beat()._replace(sequence=10**6, step=sim.plan.steps - 1)
    if kind == "nonce":
        text = heartbeat.encode(beat._replace(nonce="guessed")).decode()
    elif kind == "older":
        text = heartbeat.encode(_of_attempt(stage, run_id, beat)).decode()
    elif kind == "absurd":
        text = json.dumps({**json.loads(heartbeat.encode(beat)), "step": 10**18})
    else:
        raise ScenarioError(f"no such forgery: {kind}")
    stage.objects.put(runfiles.beat(run_id), text.encode(), metadata={"beat": text})


def boot(stage: Stage, line: Line) -> None:
    """boot NAME PHASE [message=TEXT] [left=WORD] [notice=TIME] [nonce=TEXT]: the boot beat that the start-up script of
    the newest machine writes"""
    run_id, phase = line.word(0, "a run id"), line.word(1, "a phase")
    sim, values = stage.agent(run_id), line.values()
    key = runfiles.boot_beat(run_id)
    beat = Beat(
        run_id, sim.attempt, sim.launch_id, sim.machine_id, "boot", next(stage.boot_sequence), phase,
        nonce=values.get("nonce", str(sim.job["nonce"])), message=values.get("message", ""),
        left=values.get("left"), notice_s=seconds(values["notice"]) if "notice" in values else None,
    )  # fmt: skip
    text = heartbeat.encode(beat).decode()
    stage.objects.put(key, text.encode(), metadata={"beat": text})


def _of_attempt(stage: Stage, run_id: str, beat: Beat) -> Beat:
    first = stage.agent(run_id, 1)
    nonce = str(first.job["nonce"])
    return beat._replace(attempt=1, launch_id=first.launch_id, machine_id=first.machine_id, nonce=nonce)


# --- clocks and the supervisor ----------------------------------------------------------------------------------------


def clock(stage: Stage, line: Line) -> None:
    """clock +1h | -1h: set the supervisor's wall clock; no time passes"""
    stage.clock.step(seconds(line.word(0, "a step").removeprefix("+")))


def supervisor(stage: Stage, line: Line) -> None:
    """supervisor kill|start|restart; ticks: now, not at its next poll; dies before-next|before-create|after-create|
    before-try N|after-try N; loses-lease: another process leads; lease-ends: it wakes late; takes-lease;
    race-stop NAME"""
    choose(SUPERVISOR, line.word(0, "a verb of the supervisor"))(stage, line)


def _restart(stage: Stage, _: Line) -> None:
    stage.kill()
    stage.start()


def _tick_now(stage: Stage, _: Line) -> None:
    stage.next_tick = stage.clock.monotonic()
    stage.run_for(0.0)


def _lease_ends(stage: Stage, _: Line) -> None:
    own = stage.supervisor
    own.lease = replace(own.lease, deadline=stage.clock.monotonic())


def _take_lease(stage: Stage, _: Line) -> None:
    stage.supervisor.lease = stage.take_lease("supervisor again")


def _die(stage: Stage, line: Line) -> None:
    where = line.word(1, "where")
    if where == "before-next":
        _die_before_the_baton(stage)
    elif where in ("before-create", "after-create"):
        stage.provider.dies = where
    elif where in ("before-try", "after-try"):  # a race makes two calls at once
        stage.provider.dies, stage.provider.number = where, line.word(2, "the number of a try")
    else:
        raise ScenarioError(f"the supervisor cannot die {where!r}")


def meter(stage: Stage, line: Line) -> None:
    """meter [fails=TEXT] [reads=runs|ended|TEXT]: what the verb and the read of a host's bill say from now on. Another
    text of `reads` is why it cannot be read; `fails=no`: it is carried out."""
    values, meters = line.values(), stage.provider.meters
    if meters is None:
        raise ScenarioError("no zone has a meter: settings meter=command")
    if "fails" in values:
        meters.fails = "" if values["fails"] == "no" else values["fails"]
    if "reads" in values:
        meters.reads = {"runs": True, "ended": False}.get(values["reads"], values["reads"])


SUPERVISOR = {
    "kill": lambda stage, line: stage.kill(),
    "start": lambda stage, line: stage.start(),
    "restart": _restart,
    "ticks": _tick_now,
    "dies": _die,
    "loses-lease": lambda stage, line: stage.take_lease("another process"),
    "lease-ends": _lease_ends,
    "takes-lease": _take_lease,
    "race-stop": lambda stage, line: _race(stage, line.word(1, "a run id")),
}


def _die_before_the_baton(stage: Stage) -> None:
    """The next actions are dropped: only the row of the try is written."""
    own = stage.supervisor

    def die() -> None:
        raise SupervisorDied

    own.later.drain = die


def _race(stage: Stage, run_id: str) -> None:
    """A stop is committed between the tick's read of the rows and its write."""
    view = stage.supervisor.tick.worldview
    original = view.world

    def racing(*args):
        view.world = original
        change(stage.parts, run_id, stop(ACTOR))
        return original(*args)

    view.world = racing


VERBS = {
    "store": store,
    "database": database,
    "agent": agent,
    "forge": forge,
    "boot": boot,
    "clock": clock,
    "supervisor": supervisor,
    "meter": meter,
}
