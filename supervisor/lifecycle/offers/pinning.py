"""Which content a run's image names: asked for once, before the first machine is, and the same for all its attempts.

A tag may move between two attempts; what it named at first is what they all run, unless the run follows the tag. An
image that does not exist fails the run before anything is rented; where the supervisor may not look, the machines are
given the tag, and the history says so.
"""

from __future__ import annotations

from dataclasses import replace

from supervisor.domain.actions import PinImage
from supervisor.domain.causes import Cause
from supervisor.domain.events import Event, EventKind
from supervisor.domain.observation import Observation, Pinned, Seen
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.decision import Decision, held, moved, tell
from supervisor.wording.figures import clip

RETRY_S = 30.0
HOLD = "the image cannot be looked up in its registry"

Told = tuple[Event, ...]


def pinned(run: Run, obs: Observation, now: float) -> tuple[Run, Told, Decision | None]:
    """(the run with its image pinned, what there is to tell, None), or with the decision that comes first."""
    question = _question(run)
    if not run.policy.image:
        bare = run.image.digest == "" == run.image.pinned_for
        return ((run if bare else replace(run, image=replace(run.image, digest="", pinned_for=""))), (), None)
    if run.image.pinned_for == question:
        return run, (), None
    answer = obs.pin.value if isinstance(obs.pin, Seen) and obs.pin.value.pinned_for == question else None
    if answer is None:
        return run, (), _ask(run, question)
    if answer.problem == "unavailable":
        return run, (), _wait(run, answer, now) or _ask(run, question)
    if answer.problem == "missing" and not _has_pin(run):
        return run, (), _failed(run, answer, now)
    return *_settled(run, answer, question), None


def _question(run: Run) -> str:
    """What the answer is for: the image, and where its tag is followed, the attempt that comes next."""
    image = run.policy.image
    return f"{image} for attempt {run.counters.attempts + 1}" if run.policy.follow_tag else image


def _has_pin(run: Run) -> bool:
    """An earlier attempt of this run was given this image by its content."""
    return run.image.digest != "" and run.image.pinned_for.split(" ")[0] == run.policy.image


def _ask(run: Run, question: str) -> Decision:
    return Decision(run, actions=(PinImage(question, run.policy.image),))


def _wait(run: Run, answer: Pinned, now: float) -> Decision | None:
    """None = it is time to ask again. An answer from ahead of now was heard before the wall clock was set back."""
    left_s = answer.at + RETRY_S - now
    if not 0 < left_s <= RETRY_S:
        return None
    return held(run, f"{HOLD}: {answer.detail}", now, left_s)


def _failed(run: Run, answer: Pinned, now: float) -> Decision:
    detail = f"the image does not exist: {answer.detail}"
    over = replace(run, cause=Cause.IMAGE_ERROR, detail=detail, next_at=None)
    text = f"Failed: {Cause.IMAGE_ERROR}. {detail}. Nothing was rented for it."
    event = tell(EventKind.FAILED, text, cause=Cause.IMAGE_ERROR)
    return Decision(moved(over, Status.FAILED, now), (event,), again=True)


def _settled(run: Run, answer: Pinned, question: str) -> tuple[Run, Told]:
    image = clip(run.policy.image, 120)
    hold = "" if run.hold.startswith(HOLD) else run.hold
    before = run.image.digest if _has_pin(run) else ""
    if answer.problem == "missing":  # its tag is gone, its content need not be
        text = f"The image {image} is not there any more: the content of before is used. {answer.detail}"
        after = replace(run, image=replace(run.image, pinned_for=question), hold=hold)
        return after, (tell(EventKind.IMAGE_PINNED, text, image=run.policy.image, digest=before),)
    after = replace(run, image=replace(run.image, digest=answer.digest, pinned_for=question), hold=hold)
    if answer.problem == "hidden":
        text = f"The image {image} could not be pinned, its tag is used: {answer.detail}"
    elif answer.digest in ("", before):
        return after, ()
    elif before:
        text = f"The tag of {image} has moved: from {_short(before)} to {_short(answer.digest)}."
    else:
        text = f"The image {image} is pinned to {_short(answer.digest)}."
    return after, (tell(EventKind.IMAGE_PINNED, text, image=run.policy.image, digest=answer.digest or None),)


def _short(digest: str) -> str:
    return digest.rpartition("@")[2][:19]
