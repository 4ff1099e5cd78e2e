"""What the platform does in a scenario: it preempts machines, has no capacity, responds late or not at all."""

from __future__ import annotations

from collections.abc import Callable

from supervisor.contract.identifiers import machine_name
from supervisor.domain.causes import Cause
from supervisor.domain.machines import Machine, MachineRef, MachineState, Quota
from supervisor.domain.policies import Knobs
from supervisor.ports.provider import ImageHidden, ImageMissing, LaunchRejected, NoCapacity, ProviderUnavailable
from tests.scenarios.script import Line, ScenarioError, choose, seconds
from tests.scenarios.stage import Stage


def cloud(stage: Stage, line: Line) -> None:
    """cloud VERB ...: see CLOUD"""
    choose(CLOUD, line.word(0, "a verb of the cloud"))(stage, line)


def _name(stage: Stage, line: Line) -> str:
    """NAME or NAME@attempt: the machine of this run's newest attempt, or of that attempt."""
    run_id, _, attempt = line.word(1, "a run id").partition("@")
    return stage.agent(run_id, int(attempt) if attempt else None).request.name


def _preempt(stage: Stage, line: Line) -> None:
    name = _name(stage, line)
    machine = stage.provider.machine_now(name)
    if machine is None:
        raise ScenarioError(f"machine {name} is gone")
    stage.provider.preempt(MachineRef("local", machine.zone, name), seconds(line.values().get("notice", "0s")))
    for agent in stage.agents:
        agent.due = min(agent.due, stage.clock.monotonic() + 0.2)


def _end(cause: Cause | None) -> Callable[[Stage, Line], None]:
    return lambda stage, line: stage.provider.end(_name(stage, line), cause)


def _zones(stage: Stage, line: Line) -> list[str]:
    return list(line.words[1:]) or list(stage.settings.zones)


def _stockout(stage: Stage, line: Line) -> None:
    """cloud stockout [ZONE ...] [market=spot|flex-start]: no machine there, or none of this kind, until there is
    capacity again"""
    if "market" in line.values():
        _without(stage, line).update(_zones(stage, line))
        return
    stage.provider.stockout(_zones(stage, line), None)


def _without(stage: Stage, line: Line) -> set[str]:
    kinds = {"spot": stage.provider.without_spot, "flex-start": stage.provider.without_flex}
    return kinds[line.values()["market"]]


def _capacity(stage: Stage, line: Line) -> None:
    """cloud capacity [ZONE ...] [market=spot|flex-start]"""
    if "market" in line.values():
        _without(stage, line).difference_update(_zones(stage, line))
        return
    stage.provider.stockout(_zones(stage, line), 0.0)
    stage.provider.without_spot.difference_update(_zones(stage, line))
    stage.provider.without_flex.difference_update(_zones(stage, line))
    stage.provider.quota.clear()
    stage.provider.quota_of.clear()


def _quota(stage: Stage, line: Line) -> None:
    """cloud quota [ZONE ...] [scope=zone|region|project] [most=N]: no machine, or at most so many in each zone"""
    most = line.values().get("most")
    if most is None:
        stage.provider.quota.update(_zones(stage, line))
    else:
        stage.provider.quota_of.update(dict.fromkeys(_zones(stage, line), int(most)))
    stage.provider.quota_scope = line.values().get("scope", "zone")


def _hours(stage: Stage, line: Line) -> None:
    """cloud hours left=0s|unknown [resets=6h]: of the hours that the platform lends each week"""
    values, now = line.values(), stage.clock.now()
    left_h = None if values["left"] == "unknown" else seconds(values["left"]) / 3600.0
    resets_at = now + seconds(values["resets"]) if "resets" in values else None
    shapes = {offer.placement.shape for offer in stage.provider.offered}
    stage.provider.hours = dict.fromkeys(shapes, Quota("GPU hours", now, left_h, resets_at, 30.0))


def _image(stage: Stage, line: Line) -> None:
    """cloud image REF is=sha256:...|missing|hidden|down: the response of the registry from now on"""
    ref, response = line.word(1, "an image"), line.values()["is"]
    errors = {
        "missing": ImageMissing(f"manifest of {ref} unknown"),
        "hidden": ImageHidden(f"403 for {ref}"),
        "down": ProviderUnavailable("503"),
    }
    stage.provider.pins[ref] = errors.get(response, f"{ref.rpartition(':')[0]}@{response}")


def _unreachable(stage: Stage, line: Line) -> None:
    stage.provider.down = not line.words[1:]
    stage.provider.unreachable.update(line.words[1:])


def _readable(stage: Stage, _: Line) -> None:
    stage.provider.down = False
    stage.provider.unreachable.clear()


def _lose_response(stage: Stage, line: Line) -> None:
    """The next create makes its machine and its response is lost; `none=yes`: it makes no machine; `times=N`."""
    values = line.values()
    comes_up = values.get("none", "no") == "no"
    stage.provider.next_launch(ProviderUnavailable("timed out"), comes_up, int(values.get("times", "1")))


def _lie(stage: Stage, _: Line) -> None:
    """The next create responds with a definite refusal, and its machine comes up nevertheless."""
    stage.provider.next_launch(NoCapacity("ZONE_RESOURCE_POOL_EXHAUSTED"), comes_up=True)


def _reject(stage: Stage, line: Line) -> None:
    stage.provider.next_launch(LaunchRejected("PERMISSION_DENIED: compute.instances.create"))


def _immortal(stage: Stage, line: Line) -> None:
    stage.provider.immortal.add(_name(stage, line))


def _mortal(stage: Stage, _: Line) -> None:
    stage.provider.immortal.clear()


def _add(stage: Stage, line: Line) -> None:
    """cloud add NAME count=N of=ours|others age=TIME: machines that none of our rows names"""
    values = line.values()
    ours = values.get("of", "others") == "ours"
    owner = stage.rows.supervisor_id if ours else "another-supervisor"
    created_at = stage.provider._clock.now() - seconds(values.get("age", "1h"))
    for number in range(int(values.get("count", "1"))):
        name = f"{line.word(1, 'a name')}-{number}"
        stage.provider.add(
            Machine(f"id:{name}", name, "a", MachineState.UP, owner, "lost", "1.1.1", created_at=created_at)
        )


def _revive(stage: Stage, line: Line) -> None:
    """cloud revive NAME ATTEMPT: the machine that was requested for this attempt comes up now, late."""
    request = stage.agent(line.word(1, "a run id"), int(line.word(2, "an attempt"))).request
    stage.provider.launch(request)


def _remove(stage: Stage, line: Line) -> None:
    """cloud remove NAME by=WHO: a person deletes the machine; no listing contains it any more"""
    detail = f"deleted by {line.values()['by']}"
    stage.provider.remove(_name(stage, line), Cause.MACHINE_DELETED, detail)


def _requested_name(stage: Stage, line: Line) -> str:
    """The name in this run's newest request, whether the machine exists or not."""
    run_id = line.word(1, "a run id")
    return next(request.name for request in reversed(stage.provider.launches) if request.run_id == run_id)


def _take_name(stage: Stage, line: Line) -> None:
    """cloud take-name NAME: a foreign machine has the name of this run's first machine"""
    own = stage.rows.supervisor_id
    name = machine_name(Knobs(own).machine_prefix, own, line.word(1, "a run id"), 1, 1)
    stage.provider.add(Machine("id:taken", name, "a", MachineState.UP, "another-supervisor", "x", "1.1.1"))


def _needs(stage: Stage, line: Line) -> None:
    """cloud needs TEXT: a new machine that is asked for begins only when a person has done this; without a text none
    does"""
    stage.provider.needs = line.words[1] if line.words[1:] else ""


def _room(stage: Stage, line: Line) -> None:
    """cloud capacity-takes TIME [ZONE ...]: so long a machine that is requested from now on is only asked for"""
    took_s = seconds(line.word(1, "a time"))
    if line.words[2:]:
        stage.provider.rooms.update(dict.fromkeys(line.words[2:], took_s))
    else:
        stage.provider.room_s = took_s


def _late(stage: Stage, line: Line) -> None:
    """cloud late NAME TRY: the request of this try brings its machine now, long after its call"""
    run_id, number = line.word(1, "a run id"), line.word(2, "the number of a try")
    stage.provider.silent.discard(number)
    mine = (request for request in stage.provider.launches if request.run_id == run_id)
    stage.provider.launch(next(request for request in mine if request.launch_id.endswith(f".{number}")))


def _console(stage: Stage, line: Line) -> None:
    stage.provider.write_console(_name(stage, line), line.word(2, "a text").encode())


CLOUD = {
    "preempt": _preempt,
    "kill": lambda stage, line: stage.provider.lose(_name(stage, line)),
    "capacity-takes": _room,
    "late": _late,
    "silent": lambda stage, line: stage.provider.silent.add(line.word(1, "the number of a try")),
    "forgets": lambda stage, line: stage.provider.lose(_requested_name(stage, line)),
    "image": _image,
    "take-name": _take_name,
    "remove": _remove,
    "delete": lambda stage, line: stage.provider.end(_name(stage, line), Cause.MACHINE_DELETED, "deleted by hand"),
    "ends": _end(None),
    "host-error": _end(Cause.HOST_ERROR),
    "reboot": _end(Cause.HOST_REBOOTED),
    "expire": _end(Cause.EXPIRED),
    "stockout": _stockout,
    "capacity": _capacity,
    "quota": _quota,
    "hours": _hours,
    "limit": lambda stage, line: stage.provider.capacity.update(
        {line.word(1, "a zone"): int(line.word(2, "how many"))}
    ),
    "unreachable": _unreachable,
    "readable": _readable,
    "lose-response": _lose_response,
    "reject": _reject,
    "lies": _lie,
    "hide": lambda stage, line: stage.provider.hidden.add(_name(stage, line)),
    "show": lambda stage, line: stage.provider.hidden.clear(),
    "immortal": _immortal,
    "mortal": _mortal,
    "add": _add,
    "revive": _revive,
    "console": _console,
    "needs": _needs,
    "boot": lambda stage, line: setattr(stage.provider, "boot_s", seconds(line.word(1, "a time"))),
    "release-takes": lambda stage, line: setattr(stage.provider, "release_delay_s", seconds(line.word(1, "a time"))),
}
