"""What a person can do to a run now: by its status, as the API would judge it. The API has the last word."""

from __future__ import annotations

from typing import Any, NamedTuple

from supervisor.domain.status import TERMINAL


class Action(NamedTuple):
    name: str  # its page below that of the run
    text: str
    tone: str = ""  # primary: what is asked of the person now; danger: it cannot be undone


class Did(NamedTuple):
    """A sentence and its tone."""

    tone: str
    text: str


# The notice after a change, by the word in the address: never text from there.
DID = {
    "stop": Did(
        "wait", "The stop is on record. Its checkpoint is saved first, then its machine is released."
    ),
    "resume": Did("good", "Resumed: it goes on from its newest checkpoint."),
    "rerun": Did("good", "It starts over from nothing."),
    "approve": Did("good", "Approved: the machine is released."),
    "loss": Did("wait", "The results are given up, and the machine is released."),
    "change": Did("good", "Changed. It counts from now on."),
    "same": Did("still", "Nothing was changed: these values counted already."),
    "purge": Did("wait", "Its files are deleted."),
}


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
    if status not in TERMINAL:
        found.append(Action("change", "Change limits"))
    if may_purge(run):
        found.append(Action("purge", "Purge files", "danger"))
    return found


def duty_of(run: dict[str, Any]) -> Did:
    """Whether somebody must act, in one sentence."""
    status = run["status"]
    if may_approve(run):
        return Did(
            "person", "You must act: approve the teardown." if status != "finishing" else "You must act."
        )
    if status not in TERMINAL:
        return Did("person", "You must act.") if run["needs_person"] else Did("", "You need to do nothing.")
    if status == "completed":
        return Did("", "Done; nothing is left to do.")
    if status == "stopped":
        return Did("", "It stays so until somebody resumes it.")
    return Did("bad", "It does not go on by itself: somebody has to look.")


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
