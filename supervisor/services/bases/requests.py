"""Bases as people ask for them: create, list, remove; and the base that a spec names.

Creating one where the provider makes images of disks writes the row and submits the run that prepares the machine. That
run is ordinary, so everything that runs have counts for it: limits, a dead-man, logs, a stop. Everywhere else a base is
ready at once, because its script is a step of each run's setup.

A base of a run repeats the preparation of that run on a machine of its own. A machine on which people have worked is
never copied: nobody knows what is on it, and it may hold secrets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from supervisor.domain.bases import Base, BaseStatus, family_of, number_of
from supervisor.domain.callers import Caller
from supervisor.domain.errors import BaseInUse, BaseNotFound, Forbidden, InvalidRequest, SpendUnbounded, SpotError
from supervisor.domain.events import Event, EventKind
from supervisor.domain.status import ACTIVE
from supervisor.ports.store import RunFilter
from supervisor.services.parts import Parts
from supervisor.services.runs.changing import find_run, refuse_unknown
from supervisor.services.runs.submit import SubmitRequest, submit
from supervisor.services.views import formats

GB = 1e9
KEEP_S = 3600.0  # the prepared machine is kept so long for its image
SETUP_S = 3600.0
PAGE = 500
# Of the run whose preparation is repeated.
_REPEATED = ("image", "env", "secrets", "code", "workdir", "provider", "providers", "zones", "shapes", "stall", "stage")


class BaseShown(TypedDict):
    """`image` null: there is none, because the provider makes none, or not yet. `usd_per_month`: of the image; null =
    the size or the price is not known."""

    name: str
    family: str
    status: str
    detail: str
    owner: str
    provider: str
    run_id: Annotated[str | None, Field(description="the run that prepared it; null: it needed none")]
    container: Annotated[str | None, Field(description="the container image in which its script ran")]
    image: str | None
    size_bytes: int | None
    usd_per_month: float | None
    created_at: formats.Time
    ready_at: formats.Time | None
    script: str


class BaseList(TypedDict):
    """The newest first."""

    bases: list[BaseShown]


@dataclass(frozen=True, slots=True)
class CreateRequest:
    """`family`: its name without a version. Either `script` or `from_run`. The others are for the machine that is
    prepared, where one is."""

    family: str
    script: str = ""
    from_run: str = ""
    image: str = ""
    provider: str = ""
    zones: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()
    secrets: Mapping[str, str] | None = None
    setup_s: float | None = None


def create(parts: Parts, request: CreateRequest, caller: Caller) -> BaseShown:
    """Raises InvalidRequest, NotFound (the run), BaseInUse (removed meanwhile), and what a submit raises."""
    if number_of(request.family):
        text = f"{request.family} is the name of a version. Name the family: {family_of(request.family)}"
        raise InvalidRequest(text, {}, [("#/name", "is the name of a version")])
    if bool(request.script) == bool(request.from_run):
        raise InvalidRequest("Give either a script or a run. Nothing was stored.", {}, [("#/script", "or from_run")])
    spec = _spec(parts, request, caller)
    provider = spec.get("provider") or next(iter(spec.get("providers") or ()), parts.own_provider)
    if provider not in parts.providers:
        raise InvalidRequest(f"There is no provider {provider}.", {}, [("#/provider", "unknown provider")])
    now, has_images = parts.clock.now(), provider in parts.images
    if has_images and caller.caps.of_money:
        text = (
            "This token has a cap, and a base is prepared on a machine that stays until its image is made: no budget "
        )
        raise SpendUnbounded(f"{text}ends that. Create it with a token without a cap. Nothing was stored.")
    status = BaseStatus.PREPARING if has_images else BaseStatus.READY
    base = Base(
        0, "", caller.owner, provider, tuple(spec["setup"]), status, now, now, ready_at=None if has_images else now
    )
    text = f"Base created by {caller.actor}" + (": a machine is being prepared." if has_images else ", and is ready.")
    base = parts.store.bases.create(request.family, base, caller.event(EventKind.BASE, text), now)
    if has_images:
        base = _submit(parts, base, {**spec, "provider": provider}, caller)
    return shown(parts, base)


def _spec(parts: Parts, request: CreateRequest, caller: Caller) -> dict[str, Any]:
    spec: dict[str, Any] = {"setup": [request.script]}
    if request.from_run:
        refuse_unknown(parts, request.from_run, caller)
        own = parts.store.spec(find_run(parts, request.from_run).key)
        setup = [*_commands_of(parts, own), *(own.get("setup") or [])]
        if not setup:
            text = f"{request.from_run} has neither a setup nor a base, so there is nothing to prepare."
            raise InvalidRequest(text, {"run_id": request.from_run}, [("#/from_run", "has no setup")])
        spec = {**{name: own[name] for name in _REPEATED if name in own}, "setup": setup}
    given = {
        "image": request.image,
        "provider": request.provider,
        "zones": list(request.zones),
        "shapes": list(request.shapes),
        "secrets": dict(request.secrets or {}),
    }
    spec |= {name: value for name, value in given.items() if value}
    if spec.get("provider"):
        spec.pop("providers", None)
    if request.setup_s is not None:
        spec["stall"] = {**spec.get("stall", {}), "setup_s": request.setup_s}
    return spec


def _commands_of(parts: Parts, spec: Mapping[str, Any]) -> Sequence[str]:
    base = parts.store.bases.find(str(spec["base"])) if spec.get("base") else None
    return () if base is None else base.commands


def _submit(parts: Parts, base: Base, spec: dict[str, Any], caller: Caller) -> Base:
    """The row comes first: a run that prepares a base always has one."""
    named = parts.store.bases.change(replace(base, run_id=f"base-{base.name}"), None, parts.clock.now())
    if named is None:
        raise BaseInUse(f"{base.name} changed meanwhile, so no machine is prepared for it.", {"base": base.name})
    setup_s = spec.get("stall", {}).get("setup_s", SETUP_S)
    spec |= {
        "command": parts.images[base.provider].clean_up,
        "on_success": "keep",
        "keep_s": KEEP_S,
        "allow_on_demand": True,
        "stall": {**spec.get("stall", {}), "setup_s": setup_s},
        "labels": {"base": named.name},
    }
    try:
        submit(parts, SubmitRequest(spec, run_id=named.run_id, prepares=named.name), caller)
    except SpotError:
        now = parts.clock.now()
        event = Event(EventKind.BASE, f"Base {named.name} was not begun: its run was refused.", caller.actor)
        parts.store.bases.change(replace(named, status=BaseStatus.DELETED, commands=(), since=now), event, now)
        raise
    return named


def list_bases(parts: Parts) -> BaseList:
    """Raises StoreDown."""
    return {"bases": [shown(parts, base) for base in parts.store.bases.all()]}


def remove(parts: Parts, name: str, caller: Caller) -> BaseShown:
    """Its image is deleted by the loop. Raises BaseNotFound, BaseInUse, Forbidden, StoreDown."""
    base = parts.store.bases.find(name)
    if base is None or base.status == BaseStatus.DELETED:
        raise _not_found(name)
    if not caller.owns(base.owner):
        raise Forbidden(f"{name} belongs to another owner. Nothing was changed.")
    user = user_of(parts, base)
    if user:
        text = f"{name} is used by {user}, which is live. Nothing was changed."
        raise BaseInUse(text, {"base": name, "run_id": user})
    now = parts.clock.now()
    if base.status == BaseStatus.DELETING:
        return shown(parts, base)
    gone = base.image is None or base.image.gone
    status = BaseStatus.DELETED if gone and base.settled else BaseStatus.DELETING
    event = caller.event(EventKind.BASE, f"Base {name} is deleted by {caller.actor}.", {"base": name})
    after = parts.store.bases.change(replace(base, status=status, since=now), event, now)
    if after is None:
        raise BaseInUse(f"{name} changed meanwhile. Nothing was done. Retry.", {"base": name})
    return shown(parts, after)


def user_of(parts: Parts, base: Base) -> str:
    """A live run that uses the base or prepares it; "" = none. Raises StoreDown."""
    before: int | None = None
    while True:
        page = parts.store.page(RunFilter(statuses=tuple(map(str, ACTIVE))), before, PAGE)
        for run in page.runs:
            if base.name in (run.policy.base, run.policy.prepares):
                return run.run_id
        before = page.next_key
        if before is None:
            return ""


def shown(parts: Parts, base: Base) -> BaseShown:
    image = base.image if base.image is not None and base.status != BaseStatus.FAILED else None
    size_bytes = image.size_bytes if image is not None else None
    images = parts.images.get(base.provider)
    price = None if images is None else images.usd_per_gb_month
    month_usd = None if price is None or size_bytes is None else round(size_bytes / GB * price, 4)
    return {
        "name": base.name,
        "family": base.family,
        "status": str(base.status),
        "detail": base.detail,
        "owner": base.owner,
        "provider": base.provider,
        "run_id": base.run_id or None,
        "container": base.container or None,
        "image": image.name if image is not None else None,
        "size_bytes": size_bytes,
        "usd_per_month": month_usd,
        "created_at": formats.time_text(base.created_at),
        "ready_at": formats.maybe_time(base.ready_at),
        "script": "\n".join(base.commands),
    }


def _not_found(name: str) -> BaseNotFound:
    return BaseNotFound(f"There is no base {name[:80]}. `spot base ls` lists them.", {"base": name[:80]})
