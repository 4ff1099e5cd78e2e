"""What beats cost in a bucket: requests per month at the paces of the settings, times their price.

Each stored beat is one write; with it the agent reads the baton and the stop marker. The supervisor writes its canary
and lists all beats at each look, 1,000 a page, and reads each run's stop marker in a rotation of its own.
Prices in US dollars per request: Google's Class A (writes, listings) and Class B (reads) operations of Standard storage
in one region, as read on 2026-09-20 from https://cloud.google.com/storage/pricing. docs/settings.md has the table.
"""

from __future__ import annotations

from dataclasses import dataclass

CLASS_A_USD = 0.005 / 1000
CLASS_B_USD = 0.0004 / 1000
MONTH_S = 30 * 86_400.0
READS_PER_BEAT = 2  # the baton and the stop marker
RUNS_PER_PAGE = 1000


@dataclass(frozen=True, slots=True)
class BeatCost:
    """Dollars per month. `looks_usd`: of the supervisor, for all its runs together."""

    beats_usd: float  # of one run that trains the whole month
    logs_usd: float  # the same, its log chunks
    looks_usd: float


def beat_cost(
    beat_store_s: float, log_chunk_s: float, poll_interval_s: float, stop_poll_s: float, live_runs: int = 1
) -> BeatCost:
    pages = max(1, -(-live_runs // RUNS_PER_PAGE))
    marker_usd = MONTH_S / stop_poll_s * CLASS_B_USD
    return BeatCost(
        beats_usd=MONTH_S / beat_store_s * (CLASS_A_USD + READS_PER_BEAT * CLASS_B_USD) + marker_usd,
        logs_usd=MONTH_S / log_chunk_s * CLASS_A_USD,
        looks_usd=MONTH_S / poll_interval_s * (1 + pages) * CLASS_A_USD,
    )
