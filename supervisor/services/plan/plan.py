"""The plan of a submit: what it would do, found out by the judgement of a real one, and nothing of it done.

No row, no key, no object and no machine is made. A body that a submit would refuse is refused alike, in the same order.
What only others can tell (the cloud's checks, capacity, a registry, the baton) is asked side by side and within
seconds; what does not answer says so in its line and holds up nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.domain.access.callers import Caller
from supervisor.domain.attempt import Try
from supervisor.domain.errors import CodeNotFound
from supervisor.domain.findings import Finding
from supervisor.domain.machines.placement import Offer, ZoneRecord
from supervisor.domain.run import Run
from supervisor.domain.status import ACTIVE
from supervisor.domain.world import World
from supervisor.lifecycle.offers.choosing import queue
from supervisor.lifecycle.phases.placing import next_try
from supervisor.ports.objectstore import ObjectMissing
from supervisor.ports.platform import PlanQuestion
from supervisor.ports.provider import NotSupported, ProviderUnavailable
from supervisor.ports.store import RunFilter
from supervisor.services.parts import Parts
from supervisor.services.plan.plan_view import UNNAMED, Readings, plan_json
from supervisor.services.runs.changing import refuse_more
from supervisor.services.runs.keys import check_key
from supervisor.services.runs.nearness import REQUIRE
from supervisor.services.runs.policy import SecretUnreadable, Spec, policy_from
from supervisor.services.runs.resume import Look, Wish, judged, look
from supervisor.services.runs.spec_secrets import hidden
from supervisor.services.runs.submit import SubmitRequest, new_run, prepared, refuse_stranger, with_old
from supervisor.services.together import Answer, ask_together
from supervisor.services.views.run_view import Json

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
    """`run` as it would be stored, `spec` the one that would count then."""

    would: str
    run: Run
    spec: Spec
    differs: tuple[str, ...] = ()


def plan(
    parts: Parts, asking: Asking, request: SubmitRequest, caller: Caller, code_follows: bool = False
) -> Json:
    """Raises what a submit raises, but for the errors of a key that was used before: no key is looked up.
    `code_follows`: the code bundle is stored only with the submit itself, so that it is not missed now."""
    until = time.monotonic() + asking.within_s
    check_key(request.key)
    request = prepared(parts, request)
    if isinstance(request.refusal, SecretUnreadable):
        request = replace(request, refusal=None)  # a line of the plan says so, beside what else is wrong
    if code_follows and isinstance(request.refusal, CodeNotFound):
        request = replace(request, refusal=None)
    else:
        code_follows = False
    if request.spec.get("same_region") == REQUIRE:
        _learn_places(parts, request, until - time.monotonic())
    now = parts.clock.now()
    foretold = foretell(parts, request, caller, now)
    run = foretold.run
    own = parts.providers.get(run.provider)  # None: a live run of machines that this supervisor no longer has
    offers = {} if own is None else {run.provider: own.offers()}
    world = World(knobs=parts.knobs, offers=offers, zones=parts.store.zones(run.cell))
    order = queue(run, world, now)
    left_s = max(LEAST_S, until - time.monotonic())
    answers = ask_together(_questions(parts, asking, foretold, order), left_s)
    launch = _launch(asking, foretold, order, world, answers.get("image"), now)
    readings = Readings(answers, launch, _sources(parts), parts.gpu, parts.traits(run.provider), code_follows)
    return plan_json(
        foretold.would, run, foretold.spec, differs=foretold.differs, order=order, readings=readings, now=now
    )


def foretell(parts: Parts, request: SubmitRequest, caller: Caller, now: float) -> Foretold:
    """What a submit of this request would do now. Writes nothing; raises what `submit` raises."""
    seen = look(parts, request.run_id) if request.run_id is not None else Look(None, None)
    if seen.run is None:
        request = with_old(parts, request, seen)
        # In a submit with a key the code is judged first, in one without it the policy: here as there.
        if request.key is not None and request.refusal is not None:
            raise request.refusal
        policy = policy_from(request.spec, parts, now)
        if request.refusal is not None:
            raise request.refusal
        _refuse_one_more(parts, caller.owner, caller)
        run = new_run(parts, request, request.run_id or UNNAMED, policy, caller.owner, now)
        return Foretold(CREATE, run, request.spec)
    refuse_stranger(seen.run, caller)
    old = parts.store.spec(seen.run.key)
    wish = Wish(request.spec, request.replace_spec, request.rerun, caller, request.refusal)
    resumed, event = judged(parts, seen.run, old, wish, seen, now)
    would = UNCHANGED if event is None else RERUN if request.rerun else RESUME
    if event is not None:
        _refuse_one_more(parts, seen.run.owner, caller)
    return Foretold(would, resumed.run, resumed.spec, resumed.differs)


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
    found: dict[str, Callable[[], object]] = {
        "checks": asking.checks,
        "advice": lambda: parts.platform.advise(_question(parts, foretold, offers)),
        "chances": lambda: parts.platform.chances(offers),
    }
    if image:
        found["image"] = lambda: provider.pin(image)
    if secrets:
        found["secrets"] = lambda: provider.check_secrets(set(secrets.values()))
    return found


def _question(parts: Parts, foretold: Foretold, offers: tuple[Offer, ...]) -> PlanQuestion:
    kept = foretold.spec.get("checkpoints", {}).get("keep_last", batons.KEEP.last)
    size = checkpoint_bytes(parts, foretold)
    return PlanQuestion(offers, foretold.run.policy.image, size, kept)


def checkpoint_bytes(parts: Parts, foretold: Foretold) -> int | None:
    """Of the checkpoint that the run would go on from; else what its spec expects; None = nobody knows. Raises
    StoreUnavailable."""
    expected = foretold.spec.get("expect_checkpoint_gb")
    known = None if expected is None else int(expected * GB)
    if foretold.would in (CREATE, RERUN):
        return known
    try:
        baton = batons.decode(parts.objects.get(runfiles.baton(foretold.run.run_id))[0])
    except (ObjectMissing, ValueError):
        return known
    pointer = baton.checkpoint
    return known if pointer is None else sum(file.size for file in pointer.files)


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
    if image is not None and image.good and image.value and not run.image_digest:
        run = replace(run, image_digest=str(image.value))
    first = next_try(run, order[0][0], world, now)
    try:
        return Answer(asking.preview(run, first, hidden(foretold.spec)))
    except Exception as error:  # noqa: BLE001 - told in the plan, which holds without it
        return Answer(error=error)


def _sources(parts: Parts) -> dict[tuple[str, str], tuple[str, str]]:
    """(shape, region) -> (source, day) of its price; nothing where the platform tells none."""
    try:
        return {(one.shape, one.region): (one.source, one.dated) for one in parts.platform.prices()}
    except (NotSupported, ProviderUnavailable):
        return {}
