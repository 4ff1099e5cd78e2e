"""How an attempt's own machine reports its end: the last beat becomes evidence, and its verdict becomes an End.

A beat contains the command's exit, why the agent or the start-up script left, or a preemption notice that was seen
inside the machine. What such an end means is in the table of rules (lifecycle/diagnosis); a healthy run is never
diagnosed.
"""

from __future__ import annotations

from supervisor.contract import heartbeat
from supervisor.contract.heartbeat import Beat
from supervisor.contract.signs import decode
from supervisor.domain.attempt import Pulse
from supervisor.domain.causes import Cause
from supervisor.domain.diagnosis.verdict import Verdict
from supervisor.domain.observation import Observation, World
from supervisor.domain.run import Run
from supervisor.lifecycle.diagnosis.diagnose import diagnose
from supervisor.lifecycle.diagnosis.reading import of_beat
from supervisor.lifecycle.ending import machines
from supervisor.lifecycle.ending.ending import End

# What the rules make of an end acts through its cause and the table of costs; the verdict itself is kept for people.
_ADVISED = (Cause.HOST_OOM,)  # causes whose sentence contains the first advice


def end_in(run: Run, beat: Beat, obs: Observation, world: World, before: Pulse | None = None) -> End | None:
    """The End that this beat reports; None while the training goes on, at exit 0, and where the agent left because of
    a stop. `before`: the pulse of earlier beats."""
    if reports_end(beat):
        verdict = diagnose(of_beat(run, beat, obs, before))
        cause = verdict.cause or Cause.UNKNOWN
        repaired = decode(beat.signs).repaired
        return End(cause, text_of(verdict), machines.readings(obs), exit=beat.exit, verdict=verdict, repaired=repaired)
    if beat.notice_s is None:
        return None
    ahead = f"{beat.notice_s:.0f} s ahead" if beat.notice_s >= 0.5 else "at the last moment"
    evidence = f"the machine received its preemption notice {ahead}"
    return End(Cause.PREEMPTED, evidence, machines.readings(obs), overlap_s=world.knobs.notice_overlap_s)


def stall_of(run: Run, beat: Beat, obs: Observation, reason: str) -> End:
    """The End of a training that makes no progress; `reason`: how the supervisor judged that."""
    verdict = diagnose(of_beat(run, beat, obs, run.pulse, stalled=reason))
    cause = verdict.cause or Cause.STALLED  # an error of a card may have come first
    return End(cause, text_of(verdict), machines.readings(obs), verdict=verdict)


def reports_end(beat: Beat) -> bool:
    """The training is over and did not finish.

    A stop ends the run; that is no failure. Neither is exit 0, nor a failure after the last step."""
    if beat.left == heartbeat.STOPPED:
        return False
    return beat.left is not None or (beat.exit is not None and not beat.exit.work_done)


def text_of(verdict: Verdict) -> str:
    """The evidence in words, as the row, the events and the pages show it. An end by the machine's memory contains its
    first advice: it is the one that people answer with a smaller batch, which does not help."""
    if verdict.cause not in _ADVISED or not verdict.remedies:
        return verdict.sentence
    return f"{verdict.sentence}; {verdict.remedies[0].text}"
