"""What a person can do to a run now: by its status, as the API would judge it. The API has the last word."""

from __future__ import annotations

from typing import Any, NamedTuple

from supervisor.dashboard.words import TERMINAL


class Action(NamedTuple):
    name: str  # its page below that of the run
    text: str
    tone: str = ""  # primary: what is asked of the person now; danger: it cannot be undone


def run_actions(run: dict[str, Any]) -> list[Action]:
    """Of a run as the API shows it; the most pressing first."""
    status = run["status"]
    found = []
    if may_approve(run):
        found.append(
            Action("approve", "Approve teardown" if status != "finishing" else "Give up results", "primary")
        )
    if may_stop(run):
        found.append(Action("stop", "Stop"))
    if may_resume(run):
        found.append(Action("resume", "Start over" if status == "completed" else "Resume"))
    found.append(Action("change", "Change limits"))
    if may_purge(run):
        found.append(Action("purge", "Purge files", "danger"))
    return found


def may_approve(run: dict[str, Any]) -> bool:
    status = run["status"]
    return status == "awaiting_teardown" or (status == "finishing" and bool(run["needs_person"]))


def may_stop(run: dict[str, Any]) -> bool:
    return run["status"] not in TERMINAL and run["status"] != "awaiting_teardown" and run["stop"] is None


def may_resume(run: dict[str, Any]) -> bool:
    return run["status"] in TERMINAL and not run["purging"]


def may_purge(run: dict[str, Any]) -> bool:
    """A purge that was cut off is finished by asking again."""
    return run["status"] in TERMINAL and (run["purging"] or run["purged_at"] is None)
