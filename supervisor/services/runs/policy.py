"""From the submitted spec to the policy that decisions read: defaults are filled in, contradictions are refused.

A spec is the validated body of a submit as plain JSON values, without fields that equal their default
(api/shapes/run_spec.py declares every field with its bounds). This file holds the checks that need several fields, the
settings, or the offers. A refusal names the field and the known values, never the value that was sent.

Every check runs before anything is stored and uses what is known already: no submit waits for the cloud. Unknown is not
"yes": then the submit is refused with the reason, and the client may retry.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from difflib import get_close_matches
from itertools import chain
from typing import Any

from supervisor.domain import policies
from supervisor.domain.bases import BaseStatus, family_of, newest
from supervisor.domain.errors import BaseNotFound, BaseNotReady, InvalidRequest, SpotError, UnknownPrice
from supervisor.domain.machines import Offer
from supervisor.domain.policies import FOR_DEADLINE, FOR_SPOT, KeepRule, Limits, Policy, ResultRule
from supervisor.lifecycle.offers.ladder import bounds
from supervisor.lifecycle.phases.racing import never_races
from supervisor.ports.provider import ProviderUnavailable
from supervisor.ports.traits import Traits
from supervisor.services.parts import Parts, refuse_far
from supervisor.services.runs.spec_secrets import check_kinds, check_secrets, shared_names
from supervisor.wording.figures import age_text

REQUIRE = "require"  # of same_region
RELAUNCH = "relaunch"  # of on_reboot
KEEPS = "machine"  # of keep
KEEP_S = 3600.0  # how long a machine is kept if `keep` is set and keep_s is not
ESCALATE_WINDOW_S = 21_600.0
NEXT_BEFORE_DEADLINE = "next_provider_before_deadline_s"

Spec = Mapping[str, Any]


def providers_of(spec: Spec, parts: Parts) -> tuple[str, ...]:
    """The providers that the run may use, in their order."""
    return tuple(spec.get("providers") or (spec.get("provider") or parts.own_provider,))


def settled(spec: Spec, parts: Parts) -> Spec:
    """The spec as it is stored. Two specs with the same meaning become equal: a list of one provider becomes that
    provider, the supervisor's own provider is left out, its default image is filled in."""
    given = with_base(spec, parts)
    if len(given.get("providers", ())) == 1 and not given.get("provider"):
        [given["provider"]] = given.pop("providers")
    if given.get("provider") == parts.own_provider and "providers" not in given:
        del given["provider"]
    if parts.defaults.image and "image" not in given:
        names = [name for name in providers_of(given, parts) if name in parts.providers]
        if any(parts.providers[name].traits.images for name in names):
            given["image"] = parts.defaults.image
    return given


def policy_from(spec: Spec, parts: Parts, now: float) -> Policy:
    """The policy of a new generation. `spec`: as it is stored; its base is not looked at again. Every provider of the
    spec must be able to run it, so that no later move fails. Raises InvalidRequest, SecretInSpec, InvalidTimeouts,
    UnknownPrice, DataElsewhere, Unavailable."""
    names = providers_of(spec, parts)
    if spec.get("provider") and spec.get("providers"):
        text = "The spec names provider and providers. Keep one of them: providers is the ordered list."
        raise InvalidRequest(text, {}, [("#/spec/provider", "is given together with providers")])
    for position, name in enumerate(names):
        traits = parts.traits(name)
        check_secrets(spec, traits.secrets)
        if name not in parts.providers:
            pointer = f"#/spec/providers/{position}" if "providers" in spec else "#/spec/provider"
            raise _unknown(pointer, name, sorted(parts.providers), "provider")
        check_kinds(spec, name, traits.secrets)
        _check_job(spec, traits)
    _check_reboot(spec, parts, names)
    _check_keep(spec, parts, names)
    policy = _filled(spec, parts)
    no_race = never_races(policy, [name for name in names if not parts.traits(name).races])
    if no_race:
        raise InvalidRequest(f"{no_race}. Nothing was stored.", {}, [("#/spec/race", "has no effect here")])
    if policy.max_parallel is not None and not policy.group:
        text = "max_parallel limits the runs of a group, and the spec names no group. Nothing was stored."
        raise InvalidRequest(text, {}, [("#/spec/max_parallel", "needs a group")])
    _check_deadline(policy.limits, now)
    _check_escalation(spec.get("escalate", {}), policy)
    gpu_timeout_s = max(parts.defaults.gpu_timeout_s.get(name, 0.0) for name in names)
    policies.check_stall(policy.stall, parts.knobs.beat_store_s, gpu_timeout_s)
    offers = {name: parts.providers[name].offers() for name in names}
    _check_names(policy, tuple(chain.from_iterable(offers.values())))
    _check_flex_start(policy, tuple(chain.from_iterable(offers.values())))
    for name in names:
        usable = usable_offers(policy, offers[name], bounds(policy, name, offers))
        if not usable:
            raise _no_offer(policy, name)
        if policy.limits.budget_usd is not None:
            _check_prices(usable, parts.traits(name).price_setting)
        if spec.get("same_region") == REQUIRE:
            refuse_far(parts.platform_of(name), usable, policy.image)
    return policy


def with_base(spec: Spec, parts: Parts) -> dict[str, Any]:
    """With the version of its base, so that every attempt begins with the same content: a family gets its newest one
    that is ready. And with the image that was prepared. Raises BaseNotFound, BaseNotReady, InvalidRequest."""
    name, given = str(spec.get("base") or ""), dict(spec)
    if not name:
        return given
    of_family = parts.store.bases.family(family_of(name))
    base = newest(of_family, name)
    if base is None and not of_family:
        text = f"There is no base {name}. `spot base ls` lists them, `spot base create` makes one. Nothing was stored."
        raise BaseNotFound(text, {"base": name})
    if base is None or base.status != BaseStatus.READY:
        latest = base or max(of_family, key=lambda each: each.id)
        why = f": {latest.detail}" if latest.detail else ""
        text = f"The base {latest.name} is {latest.status}{why}. Nothing was stored. Retry when it is ready."
        raise BaseNotReady(text, {"base": latest.name, "status": str(latest.status)})
    given["base"] = base.name
    if base.has_image and base.provider in providers_of(spec, parts):
        image = given.setdefault("image", base.container)
        if image != base.container:
            text = f"{base.name} was prepared in {base.container}, so the spec must name no other image."
            raise InvalidRequest(text, {"base": base.name}, [("#/spec/image", "differs from that of the base")])
    return given


def _check_reboot(spec: Spec, parts: Parts, names: Sequence[str]) -> None:
    if spec.get("on_reboot") != RELAUNCH:
        return
    if not any(parts.traits(name).relaunches for name in names):
        text = f"Machines of {', '.join(names)} cannot start an agent again by themselves. Nothing was stored."
        raise InvalidRequest(text, {}, [("#/spec/on_reboot", "is possible on hosts by SSH only")])
    if spec.get("secrets"):
        text = "A host keeps no secrets, so it cannot start a run with secrets again. Nothing was stored."
        raise InvalidRequest(text, {}, [("#/spec/on_reboot", "is not possible together with secrets")])


class SecretUnreadable(InvalidRequest):
    """A secret of this computer cannot be read, so no machine can start."""


def secret_refusal(spec: Spec, parts: Parts) -> SpotError | None:
    """Why a run of this spec cannot start here: a secret that cannot be read. None: it can, or the machines read it."""
    secrets = spec.get("secrets")
    if not secrets:
        return None
    names = (name for name in providers_of(spec, parts) if name in parts.providers)
    provider = next((name for name in names if parts.traits(name).shares_computer), None)
    if provider is None:
        return None
    kinds = parts.traits(provider).secrets
    local = {name: reference for name, reference in secrets.items() if kinds.read(reference)}
    try:
        reasons = parts.providers[provider].check_secrets(set(local.values())) if local else {}
    except ProviderUnavailable:  # the launch checks it again
        return None
    refusals = [(f"#/spec/secrets/{name}", why) for name, reference in local.items() if (why := reasons[reference])]
    if not refusals:
        return None
    text = "; ".join(f"secret {pointer.rpartition('/')[2]}: {why}" for pointer, why in refusals)
    return SecretUnreadable(f"{text}. Nothing was stored.", {}, refusals)


def warnings_of(spec: Spec, *of_providers: Traits) -> tuple[str, ...]:
    """Accepted fields that are perhaps a mistake, one sentence each."""
    sentences: dict[str, None] = {}
    if spec.get("optimize") == FOR_DEADLINE and spec.get("spot", True) and not spec.get("allow_on_demand", False):
        sentences["optimize: deadline has no effect without allow_on_demand: true: no on-demand machine is used."] = (
            None
        )
    for traits in of_providers:
        place = "this computer" if traits.shares_computer else "the machine"
        if "image" in spec and not traits.images:
            image = f"image is ignored by the {traits.kind} provider: the command runs on {place} as it is."
            sentences[image] = None
        if traits.shares_computer:
            sentences |= dict.fromkeys(shared_names(spec))
    return tuple(sentences)


def _filled(spec: Spec, parts: Parts) -> Policy:
    defaults, escalate = parts.defaults, spec.get("escalate", {})
    limits, stall = dict(spec.get("limits", {})), spec.get("stall", {})
    if "deadline" in limits:
        limits["deadline"] = datetime.fromisoformat(limits["deadline"]).timestamp()
    keeps = "keep" in (spec.get("on_success"), spec.get("on_failure"))
    return Policy(
        providers=tuple(spec.get("providers", ())),
        zones=tuple(spec.get("zones", ())),
        shapes=tuple(spec.get("shapes", ())),
        spot=spec.get("spot", True),
        allow_on_demand=spec.get("allow_on_demand", False),
        allow_flex_start=spec.get("allow_flex_start", False),
        optimize=spec.get("optimize", ""),
        results=tuple(_result(rule) for rule in spec.get("results", ())),
        expect_runtime_s=spec.get("expect_runtime_s"),
        expect_checkpoint_gb=spec.get("expect_checkpoint_gb"),
        expect_checkpoint_every_s=spec.get("expect_checkpoint_every_s"),
        needs=policies.Needs(**spec.get("needs", {})),
        limits=replace(defaults.limits, **limits),
        stall=replace(defaults.stall, **stall),
        stop_grace_s=spec.get("stop_grace_s", defaults.stop_grace_s),
        on_success=spec.get("on_success", "release"),
        on_failure=spec.get("on_failure", "release"),
        keep_s=spec.get("keep_s", KEEP_S if keeps else 0.0),
        code=spec.get("code"),
        image=spec.get("image", ""),
        base=spec.get("base", ""),
        follow_tag=spec.get("image_follow_tag", False),
        escalate_after=escalate.get("after", 0),
        escalate_window_s=escalate.get("within_s", ESCALATE_WINDOW_S),
        escalate_to=escalate.get("to", "on_demand"),
        on_demand_before_deadline_s=escalate.get("on_demand_before_deadline_s"),
        next_provider_before_deadline_s=escalate.get("next_provider_before_deadline_s"),
        pay=escalate.get("pay", policies.PAY_FOR_DEADLINE),
        require_pull=spec.get("require_pull", False),
        group=spec.get("group", ""),
        after=tuple(spec.get("after", ())),
        on_resume_ignored=spec.get("on_resume_ignored", policies.STOP),
        **{name: spec[name] for name in ("priority", "min_run_s", "max_parallel", "on_slow", "race") if name in spec},
        keep=_keep_rule(spec),
        drill=_drill(spec.get("drill", {})),
        watch=tuple(policies.MetricRule(name, **wants) for name, wants in spec.get("watch", {}).items()),
    )


def _keep_rule(spec: Spec) -> KeepRule:
    names = {"wait_s": "keep_wait_s", "fallback": "keep_fallback", "for_s": "keep_for_s"}
    given = {field: spec[name] for field, name in names.items() if name in spec}
    return KeepRule(machine=spec.get("keep") == KEEPS, **given)


def _check_keep(spec: Spec, parts: Parts, names: Sequence[str]) -> None:
    """Every machine of the run can be started again, and nothing else keeps it."""
    if spec.get("keep") != KEEPS:
        unused = [name for name in ("keep_wait_s", "keep_fallback", "keep_for_s") if name in spec]
        if unused:
            text = f"{', '.join(unused)} has no effect without keep: machine. Nothing was stored."
            raise InvalidRequest(text, {}, [(f"#/spec/{name}", "has no effect without keep") for name in unused])
        return
    unable = [name for name in names if not parts.traits(name).keeps]
    if unable:
        text = f"Machines of {', '.join(unable)} cannot be switched off and started again with their disks, so keep: "
        text += "machine is not possible there. The run goes on from its checkpoint on a new machine. Nothing was "
        raise InvalidRequest(text + "stored.", {}, [("#/spec/keep", f"is not possible on {', '.join(unable)}")])
    others = [name for name in ("on_success", "on_failure") if spec.get(name, "release") != "release"]
    others += ["require_pull"] if spec.get("require_pull") else []
    if others:
        text = f"keep: machine switches the machine off, and {', '.join(others)} keeps it running. Leave one out. "
        refusals = [(f"#/spec/{name}", "is not possible together with keep: machine") for name in others]
        raise InvalidRequest(text + "Nothing was stored.", {}, refusals)


def _result(rule: Mapping[str, Any]) -> ResultRule:
    return ResultRule(rule["path"], rule.get("min_count", 1), rule.get("verify", ""))


def _drill(drill: Mapping[str, Any]) -> policies.DrillPolicy:
    every = drill.get("every") or ""
    units_s = {"m": 60.0, "h": 3600.0, "d": 86_400.0}
    every_s = int(every[:-1]) * units_s[every[-1]] if every else None
    return policies.DrillPolicy(drill.get("at_start", False), every_s)


def _check_deadline(limits: Limits, now: float) -> None:
    if limits.deadline is not None and limits.deadline <= now:
        passed_s = round(now - limits.deadline)
        text = f"limits.deadline passed {age_text(passed_s)} ago, so the run would end at once. Give a later deadline."
        raise InvalidRequest(text, {"passed_s": passed_s}, [("#/spec/limits/deadline", "is in the past")])


def _check_job(spec: Spec, traits: Traits) -> None:
    """What the machines of this provider need. The job, without its command, is one value of a machine's metadata."""
    if traits.images and not spec.get("image"):
        text = (
            f"The command runs in a container image on {traits.title}, and the spec names none. Put `image` into the "
            "spec (spot submit --image REGISTRY/NAME:TAG), or set default_image in the supervisor's settings."
        )
        raise InvalidRequest(text, {}, [("#/spec/image", "is required")])
    if not traits.network and spec.get("stage"):
        text = f"The machines of {traits.title} have no network here, so they download no `stage`."
        raise InvalidRequest(text, {}, [("#/spec/stage", "needs a network")])
    plain = json.dumps({name: value for name, value in spec.items() if name != "command"}).encode()
    size = len(base64.b64encode(gzip.compress(plain, 6)))
    if traits.job_max_bytes is not None and size > traits.job_max_bytes:
        text = (
            f"env, results and the other fields besides the command take {size} bytes when compressed, and a machine's "
            f"metadata can hold {traits.job_max_bytes}. Put large values into the code bundle or the image."
        )
        raise InvalidRequest(text, {"bytes": size, "max_bytes": traits.job_max_bytes}, [("#/spec", "is too large")])


def _check_escalation(escalate: Mapping[str, Any], policy: Policy) -> None:
    """A field that can never have an effect is a mistake."""
    refusals: list[tuple[str, str]] = []
    if "after" not in escalate:
        unused, why = [name for name in ("within_s", "to") if name in escalate], "has no effect without escalate.after"
        refusals += [(f"#/spec/escalate/{name}", why) for name in unused]
    elif policy.escalate_to == "next_shape" and len(policy.shapes) < 2:
        refusals.append(("#/spec/shapes", "names fewer than two shapes, so there is no next shape"))
    next_provider = policy.escalate_to == "next_provider" or escalate.keys() & {NEXT_BEFORE_DEADLINE, "pay"}
    if next_provider and len(policy.providers) < 2:
        refusals.append(("#/spec/providers", "names fewer than two providers, so there is no next provider"))
    if policy.limits.deadline is None:
        names = [name for name in ("on_demand_before_deadline_s", NEXT_BEFORE_DEADLINE) if name in escalate]
        refusals += [(f"#/spec/escalate/{name}", "needs limits.deadline") for name in names]
    if escalate.keys() - {NEXT_BEFORE_DEADLINE, "pay"} and not policy.spot:  # the deadline alone needs no preemption
        refusals.append(("#/spec/escalate", "has no effect with spot: false"))
    if refusals:
        text = "; ".join(f"{pointer.removeprefix('#/spec/').replace('/', '.')} {why}" for pointer, why in refusals)
        raise InvalidRequest(f"{text}. Nothing was stored.", {}, refusals)


def _check_names(policy: Policy, offers: Sequence[Offer]) -> None:
    for field, names, known_names in (
        ("zones", policy.zones, [*dict.fromkeys(offer.placement.zone for offer in offers)]),
        ("shapes", policy.shapes, [*dict.fromkeys(offer.placement.shape for offer in offers)]),
    ):
        for position, name in enumerate(names):
            if name not in known_names:
                raise _unknown(f"#/spec/{field}/{position}", name, known_names, field[:-1])


def usable_offers(policy: Policy, offers: Sequence[Offer], bound: tuple[Sequence[str], Sequence[str]]) -> list[Offer]:
    """The offers of one provider that the run may use at some time. `bound`: its zones (empty = all) and shapes."""
    zones, shapes = bound
    escalates = policy.escalate_after > 0 and policy.escalate_to == "on_demand"
    before_deadline = policy.on_demand_before_deadline_s is not None
    on_demand = not policy.spot or policy.allow_on_demand or escalates or before_deadline
    return [
        offer
        for offer in offers
        if (not zones or offer.placement.zone in zones)
        and offer.placement.shape in shapes
        and (policy.allow_flex_start if offer.placement.flex else policy.spot if offer.placement.spot else on_demand)
    ]


def _no_offer(policy: Policy, provider: str) -> InvalidRequest:
    market = _market(policy.spot)
    subject = f"The provider {provider}" if policy.providers else "The provider"
    text = f"{subject} offers no {market} machine for these zones and shapes. Name others, or allow_on_demand."
    return InvalidRequest(text, {"market": market}, [("#/spec/shapes", "no such offer")])


def _check_prices(offers: Sequence[Offer], setting: str) -> None:
    """A budget needs the price of every offer. `setting`: sets prices, "" = none does. Raises UnknownPrice."""
    for offer in offers:
        if offer.price_usd_per_h is None:
            place, market = offer.placement, offer.placement.market
            raise UnknownPrice(
                f"limits.budget_usd cannot be kept: the {market} price of {place.shape} in {place.zone} is unknown. "
                f"Refresh the price (spot prices refresh) or set it ({setting or 'in the settings'}), leave that zone "
                "or shape out, or submit without a budget.",
                {"zone": place.zone, "shape": place.shape, "market": market},
                [("#/spec/limits/budget_usd", "needs a known price for every placement")],
            )


def _check_flex_start(policy: Policy, offers: Sequence[Offer]) -> None:
    """A field that can never have an effect is a mistake. `offers`: of all its providers that it may use."""
    if not policy.allow_flex_start:
        return
    why = ""
    if not policy.spot or policy.optimize == FOR_SPOT:
        why = "has no effect where the run requests nothing but " + ("spot" if policy.spot else "on-demand")
    elif policy.keep.machine:
        why = "is not possible together with keep: machine"
    elif policy.allow_on_demand and (policy.limits.deadline is None or policy.optimize == FOR_DEADLINE):
        why = "has no effect where on-demand follows spot at once: leave allow_on_demand out, or set limits.deadline"
    elif not any(offer.placement.flex for offer in offers):
        why = "needs a shape that one of its providers has as flex-start"
    if why:
        text = f"allow_flex_start {why}. Nothing was stored."
        raise InvalidRequest(text, {}, [("#/spec/allow_flex_start", why)])


def _market(spot: bool) -> str:
    return "spot" if spot else "on-demand"


def _unknown(pointer: str, name: str, names: Sequence[str], what: str) -> InvalidRequest:
    near = get_close_matches(name, names, n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]}?" if near else "."
    text = f"{pointer[2:].replace('/', '.')} is not a known {what}{hint} Known: {', '.join(names) or 'none'}."
    return InvalidRequest(text, {"known": list(names)}, [(pointer, f"unknown {what}")])
