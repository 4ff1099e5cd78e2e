"""Which machines exist now, which run each serves, and which of them are not ours.

The providers are queried at once instead of reading the loop's memory, because a user wants to know what is billed now.
Machines first, rows second, as in a tick: so a machine of ours that no row names is unused. "Could not read" is not
"absent": zones without a response are listed, and nothing is concluded about them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from supervisor.domain.errors import Unavailable
from supervisor.domain.machines import Machine, MachineListing, MachineState, Meter
from supervisor.domain.run import Run
from supervisor.lifecycle.phases.teardown import hosts_of
from supervisor.lifecycle.sweeping import Claim, Inventory, Use, Verdict, claims
from supervisor.ports.platform import Account
from supervisor.ports.provider import NotSupported, ProviderUnavailable
from supervisor.ports.store import RowUnreadable
from supervisor.services.parts import Parts
from supervisor.services.views import formats
from supervisor.services.views.formats import usd
from supervisor.services.views.run_view import GpuName
from supervisor.telemetry import logs as telemetry
from supervisor.wording.run import status_text

log = logging.getLogger(__name__)

FOREIGN_SHOWN, MISSING_SHOWN = 1000, 20
UNREADABLE = "not touched: the row of its run cannot be read"


class AccountJson(TypedDict):
    """The account of the machines. `name`, `number`: of the account, null = not known. `noun`: the platform's word for
    it, such as project. `tool`: how the platform's own program is told it. `compare`: what to compare where a person
    sees other machines there. Null: nothing to show."""

    provider: str
    name: str | None
    number: str | None
    console_url: str | None
    noun: str | None
    tool: str | None
    compare: str | None


class SeenMachineJson(TypedDict):
    """`use`: serves, retiring, kept, orphan (ours, and no run needs it), elsewhere or foreign; `why` says it in words.
    `usd_per_h`: its cost now, null = unknown. `shape`, `spot`, `market`, `created_at`: null = not reported. `serves`:
    the run that needs it now. `attempt`: of that run, null where no run that is not over claims the machine."""

    machine: str
    machine_id: str
    provider: str
    zone: str
    state: str
    detail: str
    shape: str | None
    gpu: GpuName
    spot: bool | None
    market: str | None
    usd_per_h: float | None
    created_at: str | None
    age_s: float | None
    ours: bool
    run_id: str | None
    launch_id: str | None
    attempt: int | None
    use: str
    why: str
    serves: str | None
    kept_until: str | None


class MachineSums(TypedDict):
    """Of this supervisor's machines. `unpriced`: machines that `usd_per_h` leaves out."""

    ours: int
    foreign: int
    usd_per_h: float
    unpriced: int


class ExpectedRun(TypedDict):
    """A run that is not over, or whose machines are not all gone. `usd_per_h`: null = a price is unknown. `kept`: a
    machine of it is still needed by a person."""

    run_id: str
    status: str
    usd_per_h: float | None
    machines: list[str]
    kept: bool


class MissingMachine(TypedDict):
    """A machine that a run has on record, and that the listing of its zone does not show."""

    run_id: str
    machine: str
    zone: str


class MeterShown(TypedDict):
    """A host that is billed until somebody stops it. `state`: in_use, to_approve, to_end (approved, and its end is not
    confirmed), or idle (nothing of ours runs there: whether it is billed is not known). `runs`: with a machine there.
    `since`: the oldest of these machines was there; null: there is none."""

    provider: str
    host: str
    how: Annotated[str, Field(description="who ends it: command, webhook or ask (a person)")]
    verb: str
    confirms: bool
    usd_per_h: float | None
    state: Annotated[str, Field(description="clients must accept words that they do not know")]
    text: str
    since: formats.Time | None
    runs: list[str]


class MachineList(TypedDict):
    """`unread_zones`: the machines there are not known. `meters`: hosts that are billed until somebody stops them."""

    account: AccountJson
    machines: list[SeenMachineJson]
    summary: MachineSums
    unread_zones: list[str]
    runs: list[ExpectedRun]
    missing: list[MissingMachine]
    meters: list[MeterShown]


@dataclass(frozen=True, slots=True)
class SeenMachine:
    """One machine with its run and price. `price_usd_per_h`: None = unknown. `shape`: "" = unknown. `gpu`: the GPUs of
    the shape in words, "" = none."""

    provider: str
    machine: Machine
    verdict: Verdict
    shape: str
    gpu: str
    spot: bool | None
    price_usd_per_h: float | None
    market: str | None

    @property
    def ours(self) -> bool:
        return self.verdict.use is not Use.FOREIGN


@dataclass(frozen=True, slots=True)
class Sighting:
    """The machines and runs at one time. `runs`: the runs of this supervisor's cells that are not settled. `claims`:
    the machines that these runs have or may have. `missing`: claims of obtained machines that no listing shows."""

    at: float
    machines: tuple[SeenMachine, ...]
    unread_zones: tuple[str, ...]
    runs: tuple[Run, ...]
    claims: tuple[Claim, ...]
    missing: tuple[Claim, ...]


def look(parts: Parts) -> Sighting:
    """Raises Unavailable if a listing cannot be read, StoreDown."""
    listings = {name: _listing(parts, name) for name in parts.providers}
    runs = [run for cell in dict.fromkeys(parts.cells.values()) for run in parts.store.active(cell, {})[0]]
    now = parts.clock.now()
    run_claims = claims(runs, now)
    machines: list[SeenMachine] = []
    for name, listing in listings.items():
        ledger = _Ledger(parts, name, runs, run_claims, listing.machines)
        machines += [ledger.look_up(machine, now) for machine in listing.machines]
    unread = {zone for listing in listings.values() for zone in listing.unreachable}
    unread |= {c.zone for c in run_claims if c.provider not in listings or listings[c.provider].unread(c.zone)}
    listed = {(seen.machine.run_id, seen.machine.launch_id) for seen in machines if seen.ours}
    listed |= {(seen.verdict.claim.run_id, seen.verdict.claim.launch_id) for seen in machines if seen.verdict.claim}
    missing = tuple(
        claim
        for claim in run_claims
        if claim.obtained
        and not claim.left
        and claim.zone not in unread
        and (claim.run_id, claim.launch_id) not in listed
    )
    return Sighting(now, tuple(machines), tuple(sorted(unread)), tuple(runs), run_claims, missing)


def machines_json(parts: Parts, everything: bool) -> MachineList:
    """`everything`: include machines that are not ours. Raises as `look`."""
    sight = look(parts)
    ours = [seen for seen in sight.machines if seen.ours]
    foreign = [seen for seen in sight.machines if not seen.ours]
    shown = sorted(ours, key=_order) + (sorted(foreign, key=_order)[:FOREIGN_SHOWN] if everything else [])
    prices = [usd_now(seen) for seen in ours]
    return {
        "account": account_json(parts),
        "machines": [seen_json(seen, sight.at) for seen in shown],
        "summary": {
            "ours": len(ours),
            "foreign": len(foreign),
            "usd_per_h": usd(sum(price for price in prices if price is not None)),
            "unpriced": sum(price is None for price in prices),
        },
        "unread_zones": list(sight.unread_zones),
        "runs": _runs_json(sight),
        "missing": [
            {"run_id": claim.run_id, "machine": claim.machine_name, "zone": claim.zone}
            for claim in sight.missing[:MISSING_SHOWN]
        ],
        "meters": _meters_json(parts, sight),
    }


def seen_json(seen: SeenMachine, now: float) -> SeenMachineJson:
    machine, claim = seen.machine, seen.verdict.claim
    created = machine.created_at
    return {
        "machine": machine.name,
        "machine_id": machine.machine_id,
        "provider": seen.provider,
        "zone": machine.zone,
        "state": machine.state,
        "detail": machine.detail,
        "shape": seen.shape or None,
        "gpu": seen.gpu or None,
        "spot": seen.spot,
        "market": seen.market,
        "usd_per_h": usd(usd_now(seen)),
        "created_at": formats.maybe_time(created),
        "age_s": None if created is None else round(max(0.0, now - created), 1),
        "ours": seen.ours,
        "run_id": machine.run_id or None,
        "launch_id": machine.launch_id or None,
        "attempt": None if claim is None else claim.attempt,
        "use": seen.verdict.use,
        "why": seen.verdict.why,
        "serves": machine.run_id if seen.verdict.use is Use.SERVES else None,
        "kept_until": formats.maybe_time(claim.until) if claim is not None else None,
    }


def account_json(parts: Parts) -> AccountJson:
    """The owner account of the machines; nulls where the platform did not respond."""
    try:
        return account_view(parts, parts.own_provider, parts.platform.account())
    except (ProviderUnavailable, NotSupported):
        return account_view(parts, parts.own_provider, Account(""))


def account_view(parts: Parts, provider: str, account: Account) -> AccountJson:
    traits = parts.traits(provider)
    return {
        "provider": provider,
        "name": account.name or None,
        "number": account.number or None,
        "console_url": account.console_url or None,
        "noun": traits.account_noun or None,
        "tool": traits.tool.format(name=account.name) or None,
        "compare": traits.compare.format(name=account.name or "?") or None,
    }


def usd_now(seen: SeenMachine) -> float | None:
    """What it costs per hour now: nothing while the platform still looks for capacity. None = unknown, as for a stopped
    machine, whose disk alone is billed."""
    claim = seen.verdict.claim
    if claim is not None and claim.whole and seen.machine.state in (MachineState.ASKED, MachineState.ENDED):
        return claim.price_usd_per_h
    if seen.machine.state is MachineState.ASKED:
        return 0.0
    return None if seen.machine.state is MachineState.ENDED else seen.price_usd_per_h


def _listing(parts: Parts, name: str) -> MachineListing:
    try:
        return parts.providers[name].machines()
    except ProviderUnavailable as error:
        extra = {telemetry.ACTION: "machines", telemetry.PROVIDER: name, telemetry.ERROR: str(error)}
        log.warning("machines unreadable", extra=extra)
        raise Unavailable(
            f"The machines of {name} cannot be read now, so their state is unknown. Retry; `spot doctor` shows "
            "what is wrong.",
            {"provider": name},
        ) from error


class _Ledger:
    """Prices and verdicts of one provider's machines. A machine that no unsettled run claims is looked up through the
    run in its label, once for each run."""

    def __init__(
        self, parts: Parts, provider: str, runs: Iterable[Run], run_claims: Sequence[Claim], machines: Iterable[Machine]
    ) -> None:
        self._provider, own = provider, parts.store.supervisor_id
        self._gpus = parts.providers[provider].gpus
        self._offers = {
            (offer.placement.zone, offer.placement.shape, offer.placement.spot): offer.price_usd_per_h
            for offer in parts.providers[provider].offers()
        }
        self._tries = {(run.run_id, run.try_.launch_id): run.try_ for run in runs if run.try_ is not None}
        launches = {(claim.run_id, claim.launch_id) for claim in run_claims}
        elsewhere: dict[str, str] = {}
        for run_id in {
            machine.run_id
            for machine in machines
            if machine.supervisor_id == own and (machine.run_id, machine.launch_id) not in launches
        }:
            try:
                run = parts.store.find(run_id)
            except RowUnreadable:  # could not read is not absent: the machine may serve it
                elsewhere[run_id] = UNREADABLE
                continue
            if run is None:
                continue
            if not run.settled and run.cell not in parts.cells.values():
                elsewhere[run_id] = f"its run is led elsewhere ({run.cell})"
            self._tries |= {(run_id, try_.launch_id): try_ for try_ in parts.store.tries(run.key)}
        self._inventory = Inventory(own, run_claims, elsewhere)

    def look_up(self, machine: Machine, now: float) -> SeenMachine:
        verdict = self._inventory.judge(machine, now)
        try_ = self._tries.get((machine.run_id, machine.launch_id)) if verdict.use is not Use.FOREIGN else None
        shape, spot, price = machine.shape, machine.spot, None
        market = None if spot is None else "spot" if spot else "on-demand"
        if try_ is not None:
            place, price = try_.placement, try_.price_usd_per_h
            shape, spot, market = place.shape, place.spot, place.market
        elif verdict.claim is not None:
            price = verdict.claim.price_usd_per_h
        if price is None and spot is not None:
            price = self._offers.get((machine.zone, shape, spot))
        return SeenMachine(self._provider, machine, verdict, shape, self._gpus(shape), spot, price, market)


def _order(seen: SeenMachine) -> tuple[str, str, str]:
    return (seen.machine.run_id, seen.machine.zone, seen.machine.name)


def _runs_json(sight: Sighting) -> list[ExpectedRun]:
    by_run: dict[str, list[Claim]] = {}
    for claim in sight.claims:
        by_run.setdefault(claim.run_id, []).append(claim)
    oldest_first = sorted(sight.runs, key=lambda run: (run.created_at, run.key))
    return [_run_json(run, by_run.get(run.run_id, [])) for run in oldest_first]


def _run_json(run: Run, own: list[Claim]) -> ExpectedRun:
    prices = [claim.price_usd_per_h for claim in own]  # also of a requested machine: it may exist by now
    priced = [price for price in prices if price is not None]
    return {
        "run_id": run.run_id,
        "status": run.status,
        "usd_per_h": usd(sum(priced)) if len(priced) == len(prices) else None,
        "machines": [claim.machine_name for claim in own],
        "kept": any(claim.use is Use.KEPT for claim in own),
    }


def _meters_json(parts: Parts, sight: Sighting) -> list[MeterShown]:
    """In the order of the providers and of their hosts."""
    return [
        _meter(parts, sight, name, host, meter)
        for name, provider in parts.providers.items()
        if provider.meters is not None
        for host, meter in provider.meters.by_zone.items()
    ]


def _meter(parts: Parts, sight: Sighting, provider: str, host: str, meter: Meter) -> MeterShown:
    there = [run for run in sight.runs if (provider, host) in hosts_of(run)]
    asking = next((run for run in there if run.billed is not None), None)
    attempts = [run.attempt for run in there if run.attempt is not None and run.attempt.placement.zone == host]
    prices = (offer.price_usd_per_h for offer in parts.providers[provider].offers() if offer.placement.zone == host)
    state, text = "idle", f"nothing of ours runs on {host}; whether it is billed is not known"
    if asking is not None:
        state = "to_approve" if asking.approved_end is None or asking.awaits_pull else "to_end"
        text = status_text(asking, sight.at)
    elif there:
        state, text = "in_use", f"used by {', '.join(run.run_id for run in there)}"
    return {
        "provider": provider,
        "host": host,
        "how": meter.how,
        "verb": meter.verb,
        "confirms": meter.confirms,
        "usd_per_h": usd(next(prices, None)),
        "state": state,
        "text": text,
        "since": formats.maybe_time(min((attempt.started_at for attempt in attempts), default=None)),
        "runs": [run.run_id for run in there],
    }
