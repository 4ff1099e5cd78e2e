"""Change labels, limits, zones and the place in the queue of an existing run by a JSON merge patch (RFC 7396).

What is trained never changes under a run: command, code, image and machines belong to the generation, and a resume
starts the next one. The policy comes from the changed spec through the checks of a submit, so that every rule across
fields holds; only the changed fields are taken over from it. One transaction writes row, spec, labels and event; the
row version guards it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from supervisor.domain.callers import NO_CAPS, Caller, Caps
from supervisor.domain.causes import OWN_WAITS
from supervisor.domain.errors import InvalidRequest, RunEnded, VersionDiffers
from supervisor.domain.events import EventKind
from supervisor.domain.policies import Policy
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.living.limits import limit_passed
from supervisor.services.parts import Parts
from supervisor.services.runs.changing import Update, commit, find_run, kept_changing, retry_races
from supervisor.services.runs.dependencies import check_after
from supervisor.services.runs.money.caps import capped_policy, charge_of_change, check_change
from supervisor.services.runs.policy import Spec
from supervisor.services.runs.resume import differences
from supervisor.services.runs.spec_secrets import check_secrets
from supervisor.services.views import formats
from supervisor.wording.figures import age_text

LABELS, LIMITS, ZONES = "labels", "limits", "zones"
MAX_PARALLEL, AFTER, PRIORITY, MIN_RUN = "max_parallel", "after", "priority", "min_run_s"
PLACING = (
    ZONES,
    MAX_PARALLEL,
    AFTER,
    PRIORITY,
    MIN_RUN,
)  # fields without parts that decide when and where the next attempt starts
LABELS_MAX = 64

Patch = Mapping[str, Any]
Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Altered:
    """`before`, `after`: the values that differ, by name (`limits.budget_usd`, `labels.team`, `zones`); both empty =
    nothing was changed. `warnings`: immediate effects of the change, one sentence each."""

    run: Run
    before: Mapping[str, object]
    after: Mapping[str, object]
    warnings: tuple[str, ...] = ()


def alter(parts: Parts, run_id: str, patch: Patch, versions: frozenset[int] | None, caller: Caller) -> Altered:
    """`patch`: the fields as the API takes them; null restores the default and removes a label.
    `versions`: the row must have one of them; None = any. Raises NotFound, VersionDiffers, RunEnded, InvalidRequest and
    its kin, Unavailable, StoreDown."""
    prepare = partial(_prepare, parts, run_id, patch, versions=versions, caller=caller)
    update = retry_races(kept_changing(run_id, "nothing was changed"), commit, parts, prepare)
    data: Mapping[str, Any] = {} if update.event is None else update.event.data
    return Altered(update.run, data.get("before", {}), data.get("after", {}), update.warnings)


def _prepare(
    parts: Parts, run_id: str, patch: Patch, now: float, *, versions: frozenset[int] | None, caller: Caller
) -> Update:
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
        return Update(run, now)
    if old.get(AFTER) != new.get(AFTER):
        check_after(parts, run_id, new, caller, exists=True)
    payer = None if run.terminal or not _spends(old, new) else check_change(parts, run, caller)
    after = _with_policy(parts, run, old, new, now=now, caps=NO_CAPS if payer is None else payer.caps)
    values = shown(run.policy, old, old, new), shown(after.policy, new, old, new)
    if values[0] == values[1]:
        return Update(run, now)  # the requested values are the valid ones already
    names = [name for name, value in values[0].items() if value != values[1][name]]
    text = f"Changed by {caller.actor}: {', '.join(names)}."
    return Update(
        after,
        now,
        caller.changed(EventKind.CHANGED, text, *values),
        before=run,
        spec=new,
        labels=new.get(LABELS, {}),
        differs=tuple(differences(old, new)),
        warnings=warnings(run, after, now),
        charge=charge_of_change(payer, run.policy, after.policy),
    )


def merged(spec: Spec, patch: Patch) -> dict[str, Any]:
    """The spec with the patch applied, without fields that equal their default. Raises InvalidRequest."""
    merged_spec = dict(spec)
    for name in (LABELS, LIMITS):
        if name in patch:
            fields = {} if patch[name] is None else {**merged_spec.get(name, {}), **patch[name]}
            merged_spec[name] = {key: value for key, value in fields.items() if value is not None}
    for name in PLACING:
        if name in patch:
            merged_spec[name] = patch[name]
    if len(merged_spec.get(LABELS, {})) > LABELS_MAX:
        text = f"A run has at most {LABELS_MAX} labels. Nothing was changed."
        raise InvalidRequest(text, {"max": LABELS_MAX}, [("#/labels", "are too many")])
    open_fields = (LABELS, LIMITS, *PLACING)
    return {name: value for name, value in merged_spec.items() if name not in open_fields or _is_set(name, value)}


def _is_set(name: str, value: object) -> bool:
    """It differs from the default. A run with a `min_run_s` of 0 may yield at its first checkpoint."""
    return bool(value) or (name == MIN_RUN and value is not None)


def _spends(old: Spec, new: Spec) -> bool:
    """The change may change what the run costs."""
    return any(old.get(name) != new.get(name) for name in (LIMITS, ZONES))


def _with_policy(parts: Parts, run: Run, old: Spec, new: Spec, *, now: float, caps: Caps) -> Run:
    """The run with its new policy. Raises what `policy_from` raises, RunEnded."""
    labels = {name: new[name] for name in (LABELS, "allow_plain_secrets") if name in new}
    check_secrets(labels, parts.traits(run.provider).secrets)
    differs = [name for name in (LIMITS, *PLACING) if old.get(name) != new.get(name)]
    if not differs:
        return run  # only labels differ, and no decision reads labels
    if run.terminal:
        raise RunEnded(
            f"{run.run_id} is {run.status}: only its labels can be changed. Resume it with another spec and "
            "replace_spec to change the other fields.",
            {"run_id": run.run_id, "status": run.status},
            [(f"#/{name}", "can be changed in a live run only") for name in differs],
        )
    stays = "providers" not in new and run.provider in parts.providers
    placed = {**new, "provider": run.provider} if stays else new
    made = capped_policy(placed, parts, now, caps, run.money.budget_from_usd)
    policy = _policy(run.policy, made, old, new)
    if ZONES in differs and run.status == Status.WAITING:
        return replace(run, policy=policy, next_at=None)  # a new zone is tried now
    return replace(run, policy=policy)


def _policy(old: Policy, made: Policy, before: Spec, after: Spec) -> Policy:
    """Unchanged fields keep their values, even where a default of the settings has changed since."""
    was, now = before.get(LIMITS, {}), after.get(LIMITS, {})
    changed = [name for name in {**was, **now} if was.get(name) != now.get(name)]
    limits = replace(old.limits, **{name: getattr(made.limits, name) for name in changed})
    placing = {name: getattr(made, name) for name in PLACING if before.get(name) != after.get(name)}
    return replace(old, limits=limits, **placing)


def shown(policy: Policy, spec: Spec, old: Spec, new: Spec) -> Values:
    """The valid values of everything that `old` or `new` names, by name. `spec`: the one of the two that belongs to
    `policy`."""
    values: Values = {}
    for name in sorted({**old.get(LIMITS, {}), **new.get(LIMITS, {})}):
        value = getattr(policy.limits, name)
        values[f"{LIMITS}.{name}"] = formats.maybe_time(value) if name == "deadline" else value
    for name in sorted({**old.get(LABELS, {}), **new.get(LABELS, {})}):
        values[f"{LABELS}.{name}"] = spec.get(LABELS, {}).get(name)
    values[ZONES] = list(policy.zones)
    if AFTER in old or AFTER in new:
        values[AFTER] = list(policy.after)
    for name in (MAX_PARALLEL, PRIORITY, MIN_RUN):
        if name in old or name in new:
            values[name] = getattr(policy, name)
    return values


def warnings(before: Run, after: Run, now: float) -> tuple[str, ...]:
    """Immediate effects of the change."""
    if after.terminal:
        return ()
    texts: list[str] = []
    passed = limit_passed(after, now)
    if passed is not None and limit_passed(before, now) != passed:
        texts.append(f"{passed[1][0].upper()}{passed[1][1:]}: the next tick ends the run.")
    limits, counted = after.policy.limits, after.counters.counted
    if limits.max_attempts < before.policy.limits.max_attempts and counted >= limits.max_attempts:
        texts.append(f"{counted} attempts have counted already: the next attempt that counts ends the run.")
    since = after.waiting.since if after.cause not in OWN_WAITS and not after.asks else None
    if since is not None and now - since >= limits.wait_for_capacity_s:
        texts.append(f"It has waited {age_text(now - since)} already: the next tick ends the run.")
    zone = after.live_attempt.placement.zone if after.live_attempt is not None else ""
    if zone and after.policy.zones and zone not in after.policy.zones:
        texts.append(f"Its machine in {zone} stays; the zones apply to later attempts.")
    return tuple(texts)
