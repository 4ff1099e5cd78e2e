"""When evidence is due: as soon as an attempt is over, and once more when its machine is gone, because an agent that
was told of a preemption goes on for a while and writes its own part last."""

from __future__ import annotations

from dataclasses import replace

from supervisor.domain.actions import KeepEvidence
from supervisor.domain.run import Run
from supervisor.lifecycle.decision import Decision


def with_evidence(before: Run, decision: Decision) -> Decision:
    """The decision with a KeepEvidence for each attempt that it ends and for each whose machine it sees gone."""
    due = [KeepEvidence(launch_id) for launch_id in _over(before, decision.run)]
    return replace(decision, actions=(*due, *decision.actions)) if due else decision


def _over(before: Run, after: Run) -> list[str]:
    if before is after:
        return []
    live = before.live_attempt
    goes_on = live is not None and after.live_attempt is not None and after.live_attempt.number == live.number
    ended = [] if live is None or goes_on else [live.launch_id]
    retiring = {item.launch_id for item in after.retiring}
    return [*ended, *(item.launch_id for item in before.retiring if item.launch_id not in retiring)]
