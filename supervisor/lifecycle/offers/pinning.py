"""Which content a run's image names: looked up once, before the first machine is requested, for all its attempts.

A tag may move between two attempts. All attempts run what it named at first, unless the run follows the tag. An image
that does not exist fails the run before anything is rented. Where the supervisor has no access to the registry, the
machines get the tag, and the history says so.
"""

from __future__ import annotations

from dataclasses import replace

from supervisor.domain.actions import PinImage
from supervisor.domain.causes import Cause
from supervisor.domain.events import Event, EventKind
from supervisor.domain.observation import Observation, Pinned, Seen
from supervisor.domain.run import Run
from supervisor.lifecycle.decision import Decision, failed, held, new_event
from supervisor.wording.figures import clip

RETRY_S = 30.0
HOLD = "the image cannot be looked up in its registry"  # rows hold it: a later version recognizes it there


def pinned(run: Run, obs: Observation, now: float) -> tuple[Run, tuple[Event, ...], Decision | None]:
    """(the run with its image pinned, the events, None), or with the decision that comes first."""
    purpose = _purpose(run)
    if not run.policy.image:
        unpinned = run.image.digest == "" == run.image.pinned_for
        return run if unpinned else replace(run, image=replace(run.image, digest="", pinned_for="")), (), None
    if run.image.pinned_for == purpose:
        return run, (), None
    answer = obs.pin.value if isinstance(obs.pin, Seen) and obs.pin.value.pinned_for == purpose else None
    lookup = Decision(run, actions=(PinImage(purpose, run.policy.image),))
    if answer is None:
        return run, (), lookup
    if answer.problem == "unavailable":
        return run, (), _wait(run, answer, now) or lookup
    if answer.problem == "missing" and not _has_pin(run):
        detail = f"the image does not exist: {answer.detail}"
        text = f"Failed: {Cause.IMAGE_ERROR}. {detail}. Nothing was rented for it."
        return run, (), failed(run, Cause.IMAGE_ERROR, detail, now, text)
    return *_with_pin(run, answer, purpose), None


def _purpose(run: Run) -> str:
    """What the lookup is for: the image, and where its tag is followed, the next attempt."""
    image = run.policy.image
    return f"{image} for attempt {run.counters.attempts + 1}" if run.policy.follow_tag else image


def _has_pin(run: Run) -> bool:
    """An earlier attempt of this run got this image by its content."""
    return run.image.digest != "" and run.image.pinned_for.split(" ")[0] == run.policy.image


def _wait(run: Run, answer: Pinned, now: float) -> Decision | None:
    """None = it is time for another lookup. A time ahead of now was written before the wall clock was set back."""
    left_s = answer.at + RETRY_S - now
    if not 0 < left_s <= RETRY_S:
        return None
    return held(run, f"{HOLD}: {answer.detail}", now, left_s)


def _with_pin(run: Run, answer: Pinned, purpose: str) -> tuple[Run, tuple[Event, ...]]:
    image = clip(run.policy.image, 120)
    before = run.image.digest if _has_pin(run) else ""
    digest = before if answer.problem == "missing" else answer.digest  # the tag is gone; its content may remain
    hold = "" if run.hold.startswith(HOLD) else run.hold
    after = replace(run, image=replace(run.image, digest=digest, pinned_for=purpose), hold=hold)
    if answer.problem == "missing":
        text = f"The image {image} does not exist any more: its earlier content is used. {answer.detail}"
    elif answer.problem == "hidden":
        text = f"The image {image} could not be pinned, so its tag is used: {answer.detail}"
    elif digest in ("", before):
        return after, ()
    elif before:
        text = f"The tag of {image} has moved: from {_short(before)} to {_short(digest)}."
    else:
        text = f"The image {image} is pinned to {_short(digest)}."
    return after, (new_event(EventKind.IMAGE_PINNED, text, image=run.policy.image, digest=digest or None),)


def _short(digest: str) -> str:
    return digest.rpartition("@")[2][:19]
