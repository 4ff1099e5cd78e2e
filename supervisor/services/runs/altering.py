"""Labels, limits and zones of a run that exists already, as a JSON merge patch (RFC 7396) on its spec.

What is trained never changes under a run: command, code, image and machines are of the generation, and another
generation begins with a resume. The policy is made from the changed spec by the judgement of a submit, so that every
rule across fields holds; of what comes out only the fields that were named are taken. Row, spec, labels and event are
written in one transaction, guarded by the row version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from supervisor.domain.callers import Caller
from supervisor.domain.causes import Cause
from supervisor.domain.errors import InvalidRequest, RunEnded, VersionDiffers
from supervisor.domain.events import Event, EventKind
from supervisor.domain.policies import Policy
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.living.limits import limit_passed
from supervisor.services.parts import Parts
from supervisor.services.runs import resume
from supervisor.services.runs.changing import Judged, carried_out, find_run, kept_changing, until_settled
from supervisor.services.runs.policy import Spec, policy_from
from supervisor.services.runs.spec_secrets import check_secrets
from supervisor.services.views import rfc3339
from supervisor.wording.figures import age_text

LABELS, LIMITS, ZONES = "labels", "limits", "zones"
LABELS_MAX = 64

Patch = Mapping[str, Any]
Shown = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Altered:
    """`before`, `after`: of what differs, by name (`limits.budget_usd`, `labels.team`, `zones`); both empty = nothing
    was changed. `warnings`: what follows at once from the change, one sentence each."""

    run: Run
    before: Mapping[str, object]
    after: Mapping[str, object]
    warnings: tuple[str, ...] = ()


def alter(parts: Parts, run_id: str, patch: Patch, versions: frozenset[int] | None, caller: Caller) -> Altered:
    """`patch`: labels, limits and zones as the API takes them; null = back to the default, of a label: gone.
    `versions`: one of them the row must have; None = any. Raises NotFound, VersionDiffers, RunEnded, InvalidRequest and
    its kin, Unavailable, StoreDown."""
    judge = partial(_altered, parts, run_id, patch, versions=versions, caller=caller)
    undone = kept_changing(run_id, "nothing was changed")
    return until_settled(undone, carried_out, parts, judge, _answer)


def _altered(
    parts: Parts, run_id: str, patch: Patch, now: float, *, versions: frozenset[int] | None, caller: Caller
) -> Judged:
    run = find_run(parts, run_id)
    if versions is not None and run.version not in versions:
        raise VersionDiffers(
            f"{run_id} has changed since it was read: it has version {run.version} now. Read it again, then repeat "
            "the change with its new ETag.",
            {"run_id": run_id, "version": run.version},
        )
    old = parts.store.spec(run.key)
    new = merged(old, patch)
    if new == old:
        return Judged(run, now)
    after = _judged(parts, run, old, new, now)
    values = _different(shown(run.policy, old, old, new), shown(after.policy, new, old, new))
    if not values[0] and not values[1]:
        return Judged(run, now)  # what is asked for counted anyway
    return Judged(
        after,
        now,
        _event(*values, caller),
        before=run,
        spec=new,
        labels=new.get(LABELS, {}),
        differs=tuple(resume.differences(old, new)),
        warnings=warnings(run, after, now),
    )


def _answer(judged: Judged) -> Altered:
    data: Mapping[str, Any] = {} if judged.event is None else judged.event.data
    return Altered(judged.run, data.get("before", {}), data.get("after", {}), judged.warnings)


def merged(spec: Spec, patch: Patch) -> dict[str, Any]:
    """The spec with the patch in it, fields that equal their default left out. Raises InvalidRequest."""
    merged_spec = dict(spec)
    for name in (LABELS, LIMITS):
        if name in patch:
            given = patch[name]
            inner = {} if given is None else {**merged_spec.get(name, {}), **given}
            merged_spec[name] = {key: value for key, value in inner.items() if value is not None}
    if ZONES in patch:
        merged_spec[ZONES] = patch[ZONES] or []
    if len(merged_spec.get(LABELS, {})) > LABELS_MAX:
        text = f"A run has at most {LABELS_MAX} labels. Nothing was changed."
        raise InvalidRequest(text, {"max": LABELS_MAX}, [("#/labels", "are too many")])
    return {name: value for name, value in merged_spec.items() if name not in (LABELS, LIMITS, ZONES) or value}


def _judged(parts: Parts, run: Run, old: Spec, new: Spec, now: float) -> Run:
    """The run with its new policy. Raises what `policy_from` raises, RunEnded."""
    labels = {name: new[name] for name in (LABELS, "allow_plain_secrets") if name in new}
    check_secrets(labels, parts.traits(run.provider).secrets)
    differ = [name for name in (LIMITS, ZONES) if old.get(name) != new.get(name)]
    if not differ:
        return run  # labels alone: nothing that a decision reads
    if run.terminal:
        raise RunEnded(
            f"{run.run_id} is {run.status}: only its labels can be changed. Resume it with another spec and "
            "replace_spec to give it other limits or zones.",
            {"run_id": run.run_id, "status": run.status},
            [(f"#/{name}", "can be changed of a live run only") for name in differ],
        )
    stays = "providers" not in new and run.provider in parts.providers
    placed = {**new, "provider": run.provider} if stays else new
    policy = _policy(run.policy, policy_from(placed, parts, now), old, new)
    if ZONES in differ and run.status == Status.WAITING:
        return replace(run, policy=policy, next_at=None)  # a zone that was not asked yet is asked now
    return replace(run, policy=policy)


def _policy(old: Policy, made: Policy, before: Spec, after: Spec) -> Policy:
    """Fields that nobody named keep what they had, also where a default of the settings has changed since."""
    was, now = before.get(LIMITS, {}), after.get(LIMITS, {})
    named = [name for name in {**was, **now} if was.get(name) != now.get(name)]
    limits = replace(old.limits, **{name: getattr(made.limits, name) for name in named})
    zones = made.zones if before.get(ZONES) != after.get(ZONES) else old.zones
    return replace(old, limits=limits, zones=zones)


def _different(before: Shown, after: Shown) -> tuple[Shown, Shown]:
    names = [name for name in before if before[name] != after[name]]
    return {name: before[name] for name in names}, {name: after[name] for name in names}


def _event(before: Shown, after: Shown, caller: Caller) -> Event:
    text = f"Changed by {caller.actor}: {', '.join(before)}."
    return caller.changed(EventKind.CHANGED, text, before, after)


def shown(policy: Policy, spec: Spec, old: Spec, new: Spec) -> Shown:
    """The values that count, by name, of all that `old` or `new` names. `spec`: the one of them that goes with
    `policy`."""
    values: Shown = {}
    for name in sorted({**old.get(LIMITS, {}), **new.get(LIMITS, {})}):
        value = getattr(policy.limits, name)
        values[f"{LIMITS}.{name}"] = rfc3339.maybe(value) if name == "deadline" else value
    for name in sorted({**old.get(LABELS, {}), **new.get(LABELS, {})}):
        values[f"{LABELS}.{name}"] = spec.get(LABELS, {}).get(name)
    values[ZONES] = list(policy.zones)
    return values


def warnings(before: Run, after: Run, now: float) -> tuple[str, ...]:
    """What the change brings about at once."""
    if after.terminal:
        return ()
    texts: list[str] = []
    passed = limit_passed(after, now)
    if passed is not None and limit_passed(before, now) != passed:
        texts.append(f"{passed[1][0].upper()}{passed[1][1:]}: the run is ended at the next look.")
    limits, counters = after.policy.limits, after.counters
    if limits.max_attempts < before.policy.limits.max_attempts and counters.counted >= limits.max_attempts:
        texts.append(f"{counters.counted} attempts have counted already: the next one that does ends the run.")
    waits = after.waiting.since is not None and after.cause != Cause.QUEUED
    waited_s = now - after.waiting.since if waits and after.waiting.since is not None else 0.0
    if waits and waited_s >= limits.wait_for_capacity_s:
        texts.append(f"It has waited {age_text(waited_s)} already: the run is ended at the next look.")
    place = after.live_attempt.placement.zone if after.live_attempt is not None else ""
    if place and after.policy.zones and place not in after.policy.zones:
        texts.append(f"Its machine in {place} goes on; the zones count for later attempts.")
    return tuple(texts)
