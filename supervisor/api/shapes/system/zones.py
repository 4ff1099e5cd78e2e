"""The shape of what was learned of zones."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from supervisor.api.shapes.answers import GPU, Answer


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
