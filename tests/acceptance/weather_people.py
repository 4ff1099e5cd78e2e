"""Misfortunes beside the cloud: agents that fall silent, people who stop and resume, a supervisor that dies."""

from __future__ import annotations

from supervisor.contract import runfiles
from supervisor.services.runs.actions import stop
from supervisor.services.runs.changing import change
from supervisor.services.runs.resume import ResumeRequest, resume
from tests.acceptance.weather import Weather, deed
from tests.cloud.cloud import BUCKET
from tests.fakes.callers import OPS

# --- agents ---------------------------------------------------------------------------------------------------------


@deed(2)
def agents_change(w: Weather) -> str | None:
    one = w.agent()
    if one is None:
        return None
    how = w.chance.choice(("silent", "mute", "dead", "hung", "talks", "trains"))
    if how in ("silent", "mute", "dead"):
        setattr(one, how, True)
    elif how == "talks":
        one.silent = one.mute = False
    one.go_on(hung=how == "hung")
    w.struck.setdefault(one.machine_id, []).append("agent")
    return f"{one.run_id} {one.launch_id} {how}"


# --- people and the supervisor --------------------------------------------------------------------------------------


@deed()
def stop_command(w: Weather) -> str:
    run_id = w.run()
    generation = w.house.rows.find(run_id).generation
    change(w.house.parts, run_id, stop(OPS))
    w.stopped[run_id] = generation
    return run_id


@deed()
def stop_marker(w: Weather) -> str:
    run_id = w.run()
    w.house.storage.put(BUCKET, runfiles.stop_marker(run_id), b"by hand")
    return run_id


@deed(4)
def resume_command(w: Weather) -> str:
    run_id = w.run()
    before = w.house.rows.find(run_id).generation
    resume(w.house.parts, run_id, ResumeRequest(OPS))
    if w.house.rows.find(run_id).generation != before:
        w.stopped.pop(run_id, None)
    return run_id


@deed(2)
def killed(w: Weather) -> str | None:
    if w.house.supervisor is None:
        return None
    w.house.kill()
    seconds = w.chance.choice((0.0, 5.0, 60.0, 900.0))
    w.undo.append((w.now + seconds, w.house.start))
    return f"for {seconds:.0f}s"


@deed(4)
def dies_at_work(w: Weather) -> str | None:
    if w.house.supervisor is None:
        return None
    where = w.chance.choice(("actions", "launch", "release"))
    if where == "actions":
        count = w.chance.choice((0, 0, 1, 2))
        w.house.dies_after(count)
        return f"after {count} actions"
    before = w.chance.random() < 0.5
    w.house.dies_in(where, before)
    return f"in {where}, before={before}"


@deed()
def database_away(w: Weather) -> str:
    w.house.rows.down = True

    def back() -> None:
        w.house.rows.down = False

    return f"{w.a_while(back, '', longest_s=600.0):.0f}s"


@deed()
def clock_jumps(w: Weather) -> str:
    seconds = w.chance.choice((-3600.0, -30.0, 30.0, 3600.0))
    w.house.clock.step(seconds)
    return f"{seconds:+.0f}s"
