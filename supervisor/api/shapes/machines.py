"""Machines that there are now, the release of those that serve nobody, and the GPUs of the supervisor's own computer;
machines that are offered: their prices, and what was learned of zones.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from supervisor.api.shapes.answers import GPU, Answer
from supervisor.api.shapes.bodies import NoParameters
from supervisor.api.shapes.run_spec import Strict


class GpuBackBody(Strict):
    """`gpu`: the UUID, as GET /v1/gpus tells it."""

    gpu: Annotated[str, Field(min_length=1, max_length=100)]


class SetAside(Answer):
    """`why`: what the driver said of this GPU; `machine` and `run_id`: where that was seen."""

    why: str
    machine: str
    run_id: str
    since: datetime


class GpuShown(Answer):
    """`ours`: a machine of this supervisor has it. `state`: the same in words, which follow "GPU 0 is"."""

    uuid: str
    index: int | None = Field(description="null: the driver does not show it now")
    name: str | None = Field(description="null: not known")
    holder: str | None = Field(description="who has it, in words; null: nobody")
    ours: bool
    set_aside: SetAside | None = Field(description="null: runs may have it when nobody else does")
    state: str


class GpuList(Answer):
    gpus: list[GpuShown]


class GpuBack(Answer):
    gpu: str


class MachineParameters(NoParameters):
    all: Annotated[bool, Field(description="also machines that are not this supervisor's")] = False


class CollectBody(Strict):
    """`dry_run`: tell what would be released, and release nothing. It must be said either way."""

    dry_run: bool


class Account(Answer):
    """Whose machines these are. `name`, `number`: of the account, null = not told; `noun`: what that is called there,
    such as project. `tool`: how the platform's own program is told it. `compare`: what to compare where a person sees
    other machines there. Null: nothing to say."""

    provider: str
    name: str | None
    number: str | None
    console_url: str | None
    noun: str | None
    tool: str | None
    compare: str | None


class SeenMachine(Answer):
    """`use`: serves, retiring, kept, orphan (ours, and it serves nobody), elsewhere or foreign; `why` says it in words.
    `usd_per_h`: what it costs now, null = unknown. `shape`, `spot`, `created_at`: null = not told. `serves`: the run
    that needs it now. `attempt`: of that run, null where no run that is not over claims the machine."""

    machine: str
    machine_id: str
    provider: str
    zone: str
    state: str
    detail: str
    shape: str | None
    gpu: str | None = Field(description=GPU)
    spot: bool | None
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


class MachineSums(Answer):
    """Of ours: `unpriced` are left out of `usd_per_h`."""

    ours: int
    foreign: int
    usd_per_h: float
    unpriced: int


class ExpectedRun(Answer):
    """A run that is not over, or whose machines are not all gone. `usd_per_h`: null = a price is unknown. `kept`:
    somebody still needs a machine of it."""

    run_id: str
    status: str
    usd_per_h: float | None
    machines: list[str]
    kept: bool


class MissingMachine(Answer):
    """A run thinks that it has it, and its zone was read without it."""

    run_id: str
    machine: str
    zone: str


class MachineList(Answer):
    """`unread_zones`: nothing is known of the machines there."""

    account: Account
    machines: list[SeenMachine]
    summary: MachineSums
    unread_zones: list[str]
    runs: list[ExpectedRun]
    missing: list[MissingMachine]


class Collected(Answer):
    """`released`: asked for and accepted; with `dry_run` what would be. `left`: of ours, not released now. `serving`:
    how many are in use."""

    dry_run: bool
    account: Account
    released: list[SeenMachine]
    left: list[SeenMachine]
    foreign: int
    serving: int
    usd_per_h: float
    unpriced: int
    unread_zones: list[str]


class ZoneShown(Answer):
    """One offer of the provider: a shape in a zone, spot or on-demand. `machines`: those that your runs have there now
    (for an admin: all runs). `failures`: refused requests in a row, with the `cause` and `detail` of the last one; a
    machine that was had ends the row."""

    provider: str
    region: str
    zone: str
    shape: str
    gpu: str | None = Field(description=GPU)
    spot: bool
    price_usd_per_h: float | None = Field(description="null: unknown")
    state: str = Field(
        description="good, unknown (nothing was learned), cooling (nobody asks before cool_until) or refused (the last "
        "request was, and its pause is over); clients must accept other words"
    )
    machines: int
    failures: int
    cause: str | None
    detail: str | None
    cool_until: datetime | None = Field(description="null: may be asked now")
    preemptions: int = Field(description="machines that were taken away within window_s, 8 at most")
    last_stock_out_at: datetime | None
    last_preemption_at: datetime | None


class ZoneList(Answer):
    zones: list[ZoneShown]
    window_s: float


WHOLE_MACHINE = "Of the whole machine: its type, cards, boot disk and external address. Null: unknown, never 0."


class RefreshBody(Strict):
    """Nothing needs to be said."""


class Price(Answer):
    """`dated`: the day of its oldest part; null: it has none, such as a price of the settings. `old`: above
    `old_after_days`. `source`: null where nothing is known."""

    shape: str
    region: str
    spot_usd_per_h: float | None = Field(description=WHOLE_MACHINE)
    on_demand_usd_per_h: float | None = Field(description=WHOLE_MACHINE)
    saved_percent: float | None
    source: str | None
    dated: str | None
    age_days: int | None
    old: bool


class PriceChange(Answer):
    """`market`: spot or on_demand. Null: not known."""

    shape: str
    region: str
    market: str
    from_usd_per_h: float | None
    to_usd_per_h: float | None


class PriceList(Answer):
    provider: str
    prices: list[Price]
    old_after_days: int
    setting: str | None = Field(description="by which a person says prices; null: there is none")


class RefreshedPrices(PriceList):
    changed: list[PriceChange]


class ProviderPlace(Answer):
    """A zone with the shapes that may be asked for there, in the order of preference."""

    region: str
    zone: str
    shapes: list[str]


class ProviderShown(Answer):
    """One provider. `name`: in the settings, in specs and placements. `meter`: what stops the bill. `irreplaceable`:
    machines cannot be had back once released, so a person approves each release."""

    name: str
    kind: str = Field(description="as the settings name it; clients must accept words that they do not know")
    title: str
    meter: str
    images: bool = Field(description="commands run in a container image; false: on the machine as it is")
    stores: dict[str, str] = Field(description="scheme of an object store -> how machines reach it")
    secrets: str = Field(description="references of secrets that its machines can read, in words")
    irreplaceable: bool
    shares_computer: bool = Field(description="machines are processes of the supervisor's own computer")
    log_service: str | None = Field(description="keeps consoles of machines that are gone; null: there is none")
    places: list[ProviderPlace]
    listing_age_s: float | None = Field(
        description="of the last complete listing of its machines; null: none yet, or another supervisor leads"
    )
    listing_read: bool | None = Field(description="the last listings could be read; null: another supervisor leads")
    breaker: str | None = Field(
        description="open: many machines looked dead at once, so nothing is ended on inference; or closed; null: "
        "another supervisor leads"
    )


class ProviderList(Answer):
    providers: list[ProviderShown] = Field(description="the first one is that of a run that names none")
