"""The prices of the machines that are offered, and what a refresh has changed."""

from __future__ import annotations

from pydantic import Field

from supervisor.api.shapes.answers import Answer
from supervisor.api.shapes.run_spec import Strict

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
