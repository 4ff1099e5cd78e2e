"""The plan of a submit: what it would do, found out by the judgement of a real one, and nothing of it done.

No row, no key, no object and no machine is made. A body that a submit would refuse is refused alike, in the same order.
What only others can tell (the cloud's checks, capacity, a registry, the baton) is asked side by side and within
seconds; what does not answer says so in its line and holds up nothing.

What a run was asked for, and what its machines are started with.

A spec is told as it is stored, so that it can be submitted again; what looks like the value of a secret, which a spec
holds only where `allow_plain_secrets` let it in, is left out, and `withheld` says where. A launch is made again by the
plan's preview, from the run as it stands now: what was really sent then is kept by nobody, for it holds the nonce.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.domain.attempt import Try
from supervisor.domain.callers import Caller
from supervisor.domain.errors import CodeNotFound, SpotError
from supervisor.domain.findings import Finding
from supervisor.domain.machines import Offer, ZoneRecord
from supervisor.domain.observation import World
from supervisor.domain.run import Run
from supervisor.domain.status import ACTIVE
from supervisor.lifecycle.offers.choosing import queue
from supervisor.lifecycle.phases.placing import next_try
from supervisor.ports.objectstore import ObjectMissing
from supervisor.ports.platform import PlanQuestion
from supervisor.ports.provider import LaunchRejected, NotSupported, ProviderUnavailable
from supervisor.ports.store import RunFilter
from supervisor.services.parts import Answer, Parts, ask_together
from supervisor.services.plan.plan_view import MADE_AT_LAUNCH, UNNAMED, Readings, plan_json
from supervisor.services.reading.queries import Queries
from supervisor.services.runs import code
from supervisor.services.runs.changing import Update, refuse_more
from supervisor.services.runs.keys import check_key
from supervisor.services.runs.policy import REQUIRE, SecretUnreadable, Spec, secret_refusal, settled, warnings_of
from supervisor.services.runs.resume import ResumeRequest
from supervisor.services.runs.spec_secrets import hidden, shown_spec
from supervisor.services.runs.submit import SubmitRequest, named_run, new_run
from supervisor.services.views import rfc3339
from supervisor.services.views.run_view import Json, placement_json

WITHIN_S, LEAST_S = 4.0, 0.5  # for all that others are asked; the least that is left for the last questions
GB = 10**9
CREATE, RESUME, RERUN, UNCHANGED = "create", "resume", "rerun", "unchanged"


Preview = Callable[[Run, Try, Spec], Mapping[str, object]]


def nothing_sent(run: Run, try_: Try, spec: Spec) -> Mapping[str, object]:
    """A `Preview` where there is nothing to launch with."""
    raise NotSupported("nothing would be sent")


@dataclass(frozen=True, slots=True)
class Asking:
    """`checks`: the doctor's questions to the cloud; raises nothing. `preview`: what the launch of this try would send,
    as Platform.preview; raises LaunchRejected, NotSupported."""

    checks: Callable[[], Sequence[Finding]]
    preview: Preview
    within_s: float = WITHIN_S


@dataclass(frozen=True, slots=True)
class Foretold:
    """`update`: what a submit would write."""

    would: str
    update: Update

    @property
    def run(self) -> Run:
        return self.update.run

    @property
    def spec(self) -> Spec:
        return self.update.spec or {}


def plan(parts: Parts, asking: Asking, request: SubmitRequest, caller: Caller, code_follows: bool = False) -> Json:
    """Raises what a submit raises, but for the errors of a key that was used before: no key is looked up.
    `code_follows`: the code bundle is stored only with the submit itself, so that it is not missed now."""
    until = time.monotonic() + asking.within_s
    if request.key is not None:
        check_key(request.key)
    refusal = code.refusal(parts, request.spec) or secret_refusal(request.spec, parts)
    if isinstance(refusal, SecretUnreadable):
        refusal = None  # a line of the plan says so, beside what else is wrong
    if code_follows and isinstance(refusal, CodeNotFound):
        refusal = None
    else:
        code_follows = False
    request = replace(request, spec=settled(request.spec, parts))
    if request.spec.get("same_region") == REQUIRE:
        _learn_places(parts, request, until - time.monotonic())
    now = parts.clock.now()
    foretold = foretell(parts, request, caller, now, refusal)
    run = foretold.run
    # Of a live run some may be here no more.
    names = [name for name in run.providers if name in parts.providers]
    offers = {name: parts.providers[name].offers() for name in names}
    world = World(knobs=parts.knobs, offers=offers, zones=parts.store.zones(run.cell))
    order = queue(run, world, now)
    left_s = max(LEAST_S, until - time.monotonic())
    answers = ask_together(_questions(parts, asking, foretold, order), left_s)
    launch = _launch(asking, foretold, order, world, answers.get("image"), now)
    warnings = warnings_of(foretold.spec, *parts.traits_of(run))
    readings = Readings(answers, launch, _sources(parts), parts.gpu, warnings, code_follows)
    return plan_json(
        foretold.would, run, foretold.spec, differs=foretold.update.differs, order=order, readings=readings, now=now
    )


def foretell(
    parts: Parts, request: SubmitRequest, caller: Caller, now: float, refusal: SpotError | None = None
) -> Foretold:
    """What a submit of this request would do now, its spec as it is stored. Writes nothing; raises what `submit`
    raises."""
    wanted = ResumeRequest(caller, request.spec, request.replace_spec, request.rerun, refusal)
    unnamed = request.run_id is None
    update = (new_run if unnamed else named_run)(parts, request, wanted, now)
    if update.limited is not None:
        _refuse_one_more(parts, update.run.owner, caller)
    if unnamed:
        update = replace(update, run=replace(update.run, run_id=UNNAMED))
    if update.before is None:
        return Foretold(CREATE, update)
    would = RERUN if request.rerun else RESUME
    return Foretold(would if update.changed else UNCHANGED, update)


def _refuse_one_more(parts: Parts, owner: str, caller: Caller) -> None:
    """Raises TooManyActiveRuns."""
    if caller.max_active_runs is not None:
        counts = parts.store.page(RunFilter(owner=owner), None, 1).counts
        refuse_more(sum(counts.get(status, 0) for status in ACTIVE), owner, caller)


def _learn_places(parts: Parts, request: SubmitRequest, within_s: float) -> None:
    """A submit takes what is known; here a person waits, so it may be asked for first."""
    image = str(request.spec.get("image", ""))
    ask_together({"places": lambda: parts.platform.data_places((), image, ask=True)}, within_s / 2)


def _questions(
    parts: Parts, asking: Asking, foretold: Foretold, order: Sequence[tuple[Offer, ZoneRecord | None]]
) -> dict[str, Callable[[], object]]:
    offers = tuple(offer for offer, _ in order)
    image, secrets = foretold.run.policy.image, foretold.spec.get("secrets", {})
    provider = parts.providers.get(foretold.run.provider)
    if provider is None:
        return {}
    questions: dict[str, Callable[[], object]] = {
        "checks": asking.checks,
        "advice": lambda: parts.platform.advise(_question(parts, foretold, offers)),
        "chances": lambda: parts.platform.chances(offers),
    }
    if image:
        questions["image"] = lambda: provider.pin(image)
    if secrets:
        questions["secrets"] = lambda: provider.check_secrets(set(secrets.values()))
    return questions


def _question(parts: Parts, foretold: Foretold, offers: tuple[Offer, ...]) -> PlanQuestion:
    kept = foretold.spec.get("checkpoints", {}).get("keep_last", batons.KEEP.last)
    size = checkpoint_bytes(parts, foretold)
    return PlanQuestion(offers, foretold.run.policy.image, size, kept)


def checkpoint_bytes(parts: Parts, foretold: Foretold) -> int | None:
    """Of the checkpoint that the run would go on from; else what its spec expects; None = nobody knows. Raises
    StoreUnavailable."""
    expected = foretold.spec.get("expect_checkpoint_gb")
    size_bytes = None if expected is None else int(expected * GB)
    if foretold.would in (CREATE, RERUN):
        return size_bytes
    try:
        baton = batons.decode(parts.objects.get(runfiles.baton(foretold.run.run_id))[0])
    except (ObjectMissing, ValueError):
        return size_bytes
    pointer = baton.checkpoint
    return size_bytes if pointer is None else sum(file.size for file in pointer.files)


def _launch(
    asking: Asking,
    foretold: Foretold,
    order: Sequence[tuple[Offer, ZoneRecord | None]],
    world: World,
    image: Answer | None,
    now: float,
) -> Answer | None:
    """What the first try would send; None = there is no place to try."""
    if not order:
        return None
    run = foretold.run
    if image is not None and image.good and image.value and not run.image.digest:
        run = replace(run, image=replace(run.image, digest=str(image.value)))
    first = next_try(run, order[0][0], world, now)
    try:
        return Answer(asking.preview(run, first, hidden(foretold.spec)))
    except Exception as error:  # noqa: BLE001 - told in the plan, which holds without it
        return Answer(error=error)


def _sources(parts: Parts) -> dict[tuple[str, str], tuple[str, str]]:
    """(shape, region) -> (source, day) of its price; nothing where the platform tells none."""
    try:
        return {(price.shape, price.region): (price.source, price.dated) for price in parts.platform.prices()}
    except (NotSupported, ProviderUnavailable):
        return {}


def show_spec(parts: Parts, queries: Queries, run_id: str) -> Json:
    """`withheld`: JSON pointers of values that are dots here. Raises NotFound."""
    run = queries.find(run_id)
    stored = parts.store.spec(run.key)
    shown = shown_spec(stored)
    withheld = list(_differing("#", stored, shown))
    return {"run_id": run.run_id, "generation": run.generation, "spec": shown, "withheld": withheld}


def show_launch(parts: Parts, queries: Queries, preview: Preview, run_id: str) -> Json:
    """Of the newest request for a machine. `launch` None: `why` says why there is nothing to show. Raises NotFound."""
    run = queries.find(run_id)
    newest = max(parts.store.tries(run.key), key=lambda try_: try_.requested_at, default=None)
    launch, why = _launched(parts, preview, run, newest)
    return {
        "run_id": run.run_id,
        "attempt": None if newest is None else newest.attempt,
        "machine": None if newest is None else newest.machine_name,
        "placement": None if newest is None else placement_json(newest.placement, parts.gpu),
        "requested_at": None if newest is None else rfc3339.text(newest.requested_at),
        "launch": launch,
        "why": why,
        "made_at_launch": list(MADE_AT_LAUNCH),
    }


def _launched(parts: Parts, preview: Preview, run: Run, newest: Try | None) -> tuple[Json | None, str]:
    if newest is None:
        return None, "no machine was asked for yet"
    if run.provider not in parts.providers or parts.cells[run.provider] != run.cell:
        return None, "its machines belong to another supervisor's place"
    try:
        return dict(preview(run, newest, hidden(parts.store.spec(run.key)))), ""
    except (LaunchRejected, NotSupported) as error:
        return None, str(error)


def _differing(pointer: str, stored: Any, shown: Any) -> Iterator[str]:
    if isinstance(stored, dict):
        for name, value in stored.items():
            yield from _differing(f"{pointer}/{_escaped(name)}", value, shown[name])
    elif isinstance(stored, list):
        for number, value in enumerate(stored):
            yield from _differing(f"{pointer}/{number}", value, shown[number])
    elif stored != shown:
        yield pointer


def _escaped(name: str) -> str:
    """RFC 6901."""
    return name.replace("~", "~0").replace("/", "~1")
