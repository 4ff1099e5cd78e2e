"""An image of a folder: one way after the other, until one leads to an image in the registry.

A way that fails says why, in a line or two, and the next one is tried; only a Dockerfile that fails ends it, because
the same Dockerfile would fail again. Before the next way it is made sure that the last one has not built after all.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from supervisor.images import reasons
from supervisor.images.afterwards import Afterwards
from supervisor.images.context import Context, chosen, lay_out
from supervisor.images.google_service import Google, ServiceError
from supervisor.images.request import (
    DOCKER,
    GLOBAL,
    WAY_NAMES,
    AllWaysFailed,
    BuildRequest,
    Built,
    Failure,
    Interrupted,
    Outcome,
    Reason,
    Say,
    WayFailed,
)
from supervisor.images.ways import WAYS, Job

PUSHED = "pushed"  # the kind of a reason: built and pushed, but nobody tells the digest
_FINAL = frozenset({reasons.SOURCE, PUSHED})
_FIRST = (PUSHED, reasons.SOURCE, reasons.PERMISSION, reasons.IDENTITY)


def build(request: BuildRequest, say: Say, line: Say, context: Context | None = None) -> Built:
    """`request` as `checked` gave it; `context`: what was chosen and shown already. `say`: what a person should know;
    `line`: the output of other programs. Raises AllWaysFailed, ImageBuildRefused, and Interrupted for Ctrl-C."""
    google = Google(request)
    afterwards = Afterwards(request, google, say)
    failures: list[Failure] = []
    with tempfile.TemporaryDirectory(prefix="spot-build-") as room:
        work = Path(room)
        lay_out(context or chosen(request.folder), work / "source")
        job = Job(request, work / "source", work, google, afterwards, say, line)
        for number, way in enumerate(request.ways, start=1):
            say(f"Way {number} of {len(request.ways)}: {WAY_NAMES[way]}")
            try:
                outcome = _tried(job, way)
            except WayFailed as failed:
                failures.append(Failure(way, failed.reason))
                say(f"  did not work: {failed.reason.told}")
                if failed.reason.kind in _FINAL:
                    break
            except KeyboardInterrupt:
                raise Interrupted(_left(request, way, afterwards)) from None
            else:
                return Built(
                    request.image, outcome.digest, way, outcome.build, outcome.recovered, tuple(failures)
                )
    raise AllWaysFailed(_verdict(failures), tuple(failures))


def _tried(job: Job, way: str) -> Outcome:
    """WayFailed when it is sure, as far as it can be known, that this way has built nothing."""
    try:
        outcome = WAYS[way](job)
    except WayFailed as failed:
        found = _recovered(job, way, failed) if failed.began else None
        if found is None:
            raise
        job.say("  the answer was lost, but the image is in the registry")
        outcome = found
    if outcome.digest:
        return outcome
    digest = job.afterwards.digest_of(outcome.build)
    if not digest:
        text = f"{job.request.image} was built and pushed, but its digest cannot be read from the registry."
        raise WayFailed(Reason(text, f"Look at {job.request.marked} there.", PUSHED), build=outcome.build)
    return Outcome(digest, outcome.build, outcome.recovered)


def _recovered(job: Job, way: str, failed: WayFailed) -> Outcome | None:
    """None = nothing was built. WayFailed where Cloud Build has a better reason than the one that is known."""
    if way == DOCKER:
        return job.afterwards.in_registry()
    try:
        return job.afterwards.recover(failed.build)
    except WayFailed:
        if failed.reason.kind == reasons.PERMISSION:  # names who lacks what, which the build itself does not
            return None
        raise


def _verdict(failures: list[Failure]) -> str:
    """The reason that matters most stands first: one that any way would meet again."""
    first = leading(tuple(failures))
    begin = "" if first.kind == PUSHED else "No image was built. "
    return f"{begin}{first.told}"


def leading(failures: tuple[Failure, ...]) -> Reason:
    """What to mend first."""
    order = {kind: number for number, kind in enumerate(_FIRST)}
    return min((failure.reason for failure in failures), key=lambda one: order.get(one.kind, len(order)))


def _left(request: BuildRequest, way: str, afterwards: Afterwards) -> str:
    """After Ctrl-C: what still runs, and how to end it; "" = nothing. The programs here have been ended already."""
    if way == DOCKER:
        return ""
    where = f"--project={request.project} --region={request.region or GLOBAL}"
    try:
        build = afterwards.running()
    except ServiceError:
        listed = f'gcloud builds list --ongoing --filter="tags={request.mark}" {where}'
        return f"Whether a build still runs at Cloud Build cannot be read now. To see it: {listed}"
    if not build:
        return ""
    command = f"gcloud builds cancel {build} {where}"
    return f"Build {build} still runs at Cloud Build. To end it: {command}"
