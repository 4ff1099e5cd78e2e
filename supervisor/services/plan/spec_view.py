"""What a run was submitted with, and what its newest machine is started with.

A spec is shown as it is stored, so that it can be submitted again. What looks like the value of a secret, which a spec
contains only where `allow_plain_secrets` let it in, is replaced by dots, and `withheld` says where. A launch is made
again by the preview of the plan, from the run as it is now: the launch that was really sent is kept nowhere, because it
contains the nonce.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from typing_extensions import TypedDict

from supervisor.domain.attempt import Try
from supervisor.domain.run import Run
from supervisor.ports.provider import LaunchRejected, NotSupported
from supervisor.services.parts import Parts
from supervisor.services.plan.plan_view import MADE_AT_LAUNCH
from supervisor.services.reading.profiles import ProfileShown, run_profile
from supervisor.services.reading.queries import Queries
from supervisor.services.runs.policy import Spec
from supervisor.services.runs.spec_secrets import hidden, shown_spec
from supervisor.services.views import formats
from supervisor.services.views.run_view import PlacementJson, placement_json

Preview = Callable[[Run, Try, Spec], Mapping[str, object]]


class RunSpecShown(TypedDict):
    """`spec`: as a submit takes it, without fields that equal their default. `withheld`: JSON pointers of values that
    look like a secret and are dots here. `profile`: of its machine, or of the next one that it would get; null: no
    offer fits."""

    run_id: str
    generation: int
    spec: Mapping[str, Any]
    withheld: list[str]
    profile: ProfileShown | None


class LaunchShown(TypedDict):
    """`launch`: what the newest request for a machine sends, in the platform's own words, made again from the run as it
    is now; null: `why` says why. All but `run_id` null: no machine was requested yet. `made_at_launch`: fields that
    show another value here."""

    run_id: str
    attempt: int | None
    machine: str | None
    placement: PlacementJson | None
    requested_at: formats.Time | None
    launch: Mapping[str, Any] | None
    why: str
    made_at_launch: list[str]


def nothing_sent(run: Run, try_: Try, spec: Spec) -> Mapping[str, object]:
    """A `Preview` where there is nothing to launch with."""
    raise NotSupported("nothing would be sent")


def show_spec(parts: Parts, queries: Queries, run_id: str) -> RunSpecShown:
    """Raises NotFound."""
    run = queries.find(run_id)
    stored = parts.store.spec(run.key)
    shown = shown_spec(stored)
    return {
        "run_id": run.run_id,
        "generation": run.generation,
        "spec": shown,
        "withheld": list(_differing("#", stored, shown)),
        "profile": run_profile(parts, run, parts.clock.now()),
    }


def show_launch(parts: Parts, queries: Queries, preview: Preview, run_id: str) -> LaunchShown:
    """Raises NotFound."""
    run = queries.find(run_id)
    newest = max(parts.store.tries(run.key), key=lambda try_: try_.requested_at, default=None)
    launch, why = _launch(parts, preview, run, newest)
    return {
        "run_id": run.run_id,
        "attempt": None if newest is None else newest.attempt,
        "machine": None if newest is None else newest.machine_name,
        "placement": None if newest is None else placement_json(newest.placement, parts.gpu),
        "requested_at": None if newest is None else formats.time_text(newest.requested_at),
        "launch": launch,
        "why": why,
        "made_at_launch": list(MADE_AT_LAUNCH),
    }


def _launch(parts: Parts, preview: Preview, run: Run, newest: Try | None) -> tuple[Mapping[str, Any] | None, str]:
    if newest is None:
        return None, "no machine was requested yet"
    if parts.cells.get(run.provider) != run.cell:
        return None, "its machines belong to another supervisor"
    try:
        return dict(preview(run, newest, hidden(parts.store.spec(run.key)))), ""
    except (LaunchRejected, NotSupported) as error:
        return None, str(error)


def _differing(pointer: str, stored: Any, shown: Any) -> Iterator[str]:
    """JSON pointers (RFC 6901)."""
    if isinstance(stored, dict):
        for name, value in stored.items():
            escaped = name.replace("~", "~0").replace("/", "~1")
            yield from _differing(f"{pointer}/{escaped}", value, shown[name])
    elif isinstance(stored, list):
        for number, value in enumerate(stored):
            yield from _differing(f"{pointer}/{number}", value, shown[number])
    elif stored != shown:
        yield pointer
