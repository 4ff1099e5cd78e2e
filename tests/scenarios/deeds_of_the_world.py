"""What the world does to a scenario: the platform, the object store, the database, agents, clocks, the supervisor."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

from supervisor.domain import baton as batons
from supervisor.domain import heartbeat, runfiles
from supervisor.domain.causes import Cause
from supervisor.domain.heartbeat import Beat
from supervisor.domain.machine import Machine, MachineRef, MachineState
from supervisor.ports.provider import LaunchRejected, ProviderUnavailable
from supervisor.services.stop import stop
from tests.scenarios.deeds_of_people import ACTOR, exit_of
from tests.scenarios.script import Line, ScenarioError, seconds
from tests.scenarios.stage import Stage

# --- the platform -----------------------------------------------------------------------------------------------------


def cloud(stage: Stage, line: Line) -> None:
    """cloud DEED ...: see CLOUD"""
    _choose(CLOUD, line.word(0, "what the cloud does"))(stage, line)


def _choose(table: dict[str, Callable], name: str) -> Callable:
    if name not in table:
        raise ScenarioError(f"{name!r} is none of {', '.join(table)}")
    return table[name]


def _name(stage: Stage, line: Line) -> str:
    """NAME, or NAME#attempt: the machine of this run's newest agent, or of that attempt's."""
    run_id, _, attempt = line.word(1, "a run id").partition("#")
    return stage.agent(run_id, int(attempt) if attempt else None).request.name


def _preempt(stage: Stage, line: Line) -> None:
    name = _name(stage, line)
    machine = stage.provider.look(name)
    if machine is None:
        raise ScenarioError(f"machine {name} is gone")
    stage.provider.preempt(
        MachineRef("local", machine.zone, name), seconds(line.values().get("notice", "0s"))
    )
    for agent in stage.agents:
        agent.due = min(agent.due, stage.clock.monotonic() + 0.2)


def _end(cause: Cause | None) -> Callable[[Stage, Line], None]:
    return lambda stage, line: stage.provider.end(_name(stage, line), cause)


def _zones(stage: Stage, line: Line) -> list[str]:
    return list(line.words[1:]) or list(stage.settings.zones)


def _stockout(stage: Stage, line: Line) -> None:
    stage.provider.stockout(_zones(stage, line), None)


def _capacity(stage: Stage, line: Line) -> None:
    stage.provider.stockout(_zones(stage, line), 0.0)
    stage.provider.quota.clear()


def _quota(stage: Stage, line: Line) -> None:
    stage.provider.quota.update(_zones(stage, line))


def _unreachable(stage: Stage, line: Line) -> None:
    stage.provider.down = not line.words[1:]
    stage.provider.unreachable.update(line.words[1:])


def _readable(stage: Stage, _: Line) -> None:
    stage.provider.down = False
    stage.provider.unreachable.clear()


def _lose_answer(stage: Stage, line: Line) -> None:
    """The next create makes its machine and is not answered; `none=yes`: nor is there a machine; `times=N`."""
    values = line.values()
    comes_up = values.get("none", "no") == "no"
    stage.provider.next_launch(ProviderUnavailable("timed out"), comes_up, int(values.get("times", "1")))


def _reject(stage: Stage, line: Line) -> None:
    stage.provider.next_launch(LaunchRejected("PERMISSION_DENIED: compute.instances.create"))


def _immortal(stage: Stage, line: Line) -> None:
    stage.provider.immortal.add(_name(stage, line))


def _mortal(stage: Stage, _: Line) -> None:
    stage.provider.immortal.clear()


def _add(stage: Stage, line: Line) -> None:
    """cloud add NAME count=N of=ours|others age=TIME: machines that no row of ours knows"""
    values = line.values()
    ours = values.get("of", "others") == "ours"
    owner = stage.rows.supervisor_id if ours else "another-supervisor"
    born = stage.provider._clock.now() - seconds(values.get("age", "1h"))
    for number in range(int(values.get("count", "1"))):
        name = f"{line.word(1, 'a name')}-{number}"
        stage.provider.add(
            Machine(f"id:{name}", name, "a", MachineState.UP, owner, "lost", "1.1.1", created_at=born)
        )


def _console(stage: Stage, line: Line) -> None:
    stage.provider.write_console(_name(stage, line), line.word(2, "a text").encode())


CLOUD = {
    "preempt": _preempt,
    "kill": lambda stage, line: stage.provider.lose(_name(stage, line)),
    "delete": lambda stage, line: stage.provider.end(
        _name(stage, line), Cause.MACHINE_DELETED, "deleted by hand"
    ),
    "ends": _end(None),
    "host-error": _end(Cause.HOST_ERROR),
    "reboot": _end(Cause.HOST_REBOOTED),
    "expire": _end(Cause.EXPIRED),
    "stockout": _stockout,
    "capacity": _capacity,
    "quota": _quota,
    "unreachable": _unreachable,
    "readable": _readable,
    "lose-answer": _lose_answer,
    "reject": _reject,
    "hide": lambda stage, line: stage.provider.hidden.add(_name(stage, line)),
    "show": lambda stage, line: stage.provider.hidden.clear(),
    "immortal": _immortal,
    "mortal": _mortal,
    "add": _add,
    "console": _console,
    "boot": lambda stage, line: setattr(stage.provider, "boot_s", seconds(line.word(1, "a time"))),
    "release-takes": lambda stage, line: setattr(
        stage.provider, "release_delay_s", seconds(line.word(1, "a time"))
    ),
}

# --- the store and the database ---------------------------------------------------------------------------------------


def store(stage: Stage, line: Line) -> None:
    """store down|up [supervisor|agents]; store torn-checkpoint NAME; store lose-result NAME"""
    deed, who = line.word(0, "what the store does"), line.words[1:]
    if deed in ("down", "up"):
        if "agents" not in who:
            stage.own_door.shut = deed == "down"
        if "supervisor" not in who:
            stage.agents_door.shut = deed == "down"
    elif deed == "torn-checkpoint":
        pointer = batons.decode(stage.objects.get(runfiles.baton(who[0]))[0]).checkpoint
        stage.objects.put(pointer.prefix + pointer.files[0].name, b"torn")
    elif deed == "lose-result":
        for page in stage.objects.pages(runfiles.folder(who[0]) + "results/"):
            for info in page.objects:
                stage.objects.delete(info.key)
    else:
        raise ScenarioError(f"the store cannot {deed!r}")


def database(stage: Stage, line: Line) -> None:
    """database down|up"""
    stage.rows.away = {"down": True, "up": False}[line.word(0, "down or up")]


# --- agents and their beats -------------------------------------------------------------------------------------------


def agent(stage: Stage, line: Line) -> None:
    """agent NAME[#attempt] silent|talks|mute|dies|hung|trains|phase PHASE|notice SECONDS|exits HOW"""
    run_id, _, attempt = line.word(0, "a run id").partition("#")
    one, deed = stage.agent(run_id, int(attempt) if attempt else None), line.word(1, "what it does")
    if deed in ("silent", "talks"):
        one.silent = deed == "silent"
    elif deed == "mute":
        one.mute = True
    elif deed == "dies":
        one.dead = True
    elif deed in ("hung", "trains"):
        one.go_on(hung=deed == "hung")
    elif deed == "phase":
        one.go_on(long_phase=line.word(2, "a phase"))
    elif deed == "notice":
        one.told_notice_s = seconds(line.word(2, "a time"))
    elif deed == "exits":
        how, _ = exit_of(line.word(2, "an exit") + "@0s")
        one.plan = replace(one.plan, exits=(how, 0.0))
    else:
        raise ScenarioError(f"an agent cannot {deed!r}")
    one.due = stage.clock.monotonic()


def forge(stage: Stage, line: Line) -> None:
    """forge NAME nonce|older|absurd|late: a beat in the store that is not the holder's"""
    run_id, kind = line.word(0, "a run id"), line.word(1, "what is wrong with it")
    one = stage.agent(run_id)
    beat = replace(one.mouth.beat(), sequence=10**6, step=one.plan.steps - 1)
    if kind == "nonce":
        text = heartbeat.encode(replace(beat, nonce="guessed")).decode()
    elif kind == "older":
        text = heartbeat.encode(_of_attempt(stage, run_id, beat)).decode()
    elif kind == "absurd":
        text = json.dumps({**json.loads(heartbeat.encode(beat)), "step": 10**18})
    else:
        raise ScenarioError(f"no such forgery: {kind}")
    stage.objects.put(runfiles.beat(run_id), text.encode(), metadata={"beat": text})


def _of_attempt(stage: Stage, run_id: str, beat: Beat) -> Beat:
    first = stage.agent(run_id, 1)
    nonce = str(first.job["nonce"])
    return replace(beat, attempt=1, launch_id=first.launch_id, machine_id=first.machine_id, nonce=nonce)


# --- clocks and the supervisor ----------------------------------------------------------------------------------------


def clock(stage: Stage, line: Line) -> None:
    """clock +1h | -1h: the supervisor's wall clock is set; no time passes"""
    stage.clock.step(seconds(line.word(0, "a step").removeprefix("+")))


def supervisor(stage: Stage, line: Line) -> None:
    """supervisor restart | kill | start | dies before-next|before-create|after-create | loses-lease | takes-lease |
    race-stop NAME | looks (now, not at its next poll)"""
    deed = line.word(0, "what happens to the supervisor")
    if deed in ("restart", "kill"):
        stage.kill()
    if deed in ("restart", "start"):
        stage.start()
    elif deed == "dies":
        where = line.word(1, "where")
        if where == "before-next":
            _die_before_the_baton(stage)
        else:
            stage.provider.dies = where
    elif deed == "looks":
        stage.next_tick = stage.clock.monotonic()
        stage.run_for(0.0)
    elif deed == "loses-lease":
        stage.take_lease("somebody else")
    elif deed == "takes-lease":
        stage.supervisor.lease = stage.take_lease("supervisor again")
    elif deed == "race-stop":
        _race(stage, line.word(1, "a run id"))
    elif deed not in ("kill", "restart", "start"):
        raise ScenarioError(f"the supervisor cannot {deed!r}")


def _die_before_the_baton(stage: Stage) -> None:
    """The next actions are dropped, and nothing after them happens: the row of the try is all there is."""
    own = stage.supervisor

    def die() -> None:
        own.later.drop()
        stage.kill()

    own.later.drain = die


def _race(stage: Stage, run_id: str) -> None:
    """Somebody's stop is committed between the tick's read of the rows and its write."""
    view = stage.supervisor.tick.worldview
    original = view.world

    def racing(*args):
        view.world = original
        stop(stage.parts, run_id, ACTOR)
        return original(*args)

    view.world = racing


DEEDS = {
    "cloud": cloud,
    "store": store,
    "database": database,
    "agent": agent,
    "forge": forge,
    "clock": clock,
    "supervisor": supervisor,
}
