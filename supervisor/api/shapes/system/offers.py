"""The prices of the machines that are offered, and what a refresh has changed.

The shape of what was learned of zones.
"""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from supervisor.api.shapes.answers import GPU, Answer
from supervisor.api.shapes.run_spec import Strict


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


WHOLE = "Of the whole machine: its type, cards, boot disk and external address. Null: unknown, never 0."


class RefreshBody(Strict):
    """Nothing needs to be said."""


class Price(Answer):
    """`dated`: the day of its oldest part; null: it has none, such as a price of the settings. `old`: above
    `old_after_days`. `source`: null where nothing is known."""

    shape: str
    region: str
    spot_usd_per_h: float | None = Field(description=WHOLE)
    on_demand_usd_per_h: float | None = Field(description=WHOLE)
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


class RefreshedPrices(PriceList):
    changed: list[PriceChange]
