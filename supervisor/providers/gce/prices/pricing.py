"""The prices that this supervisor uses, and how they are refreshed.

A refresh is all or nothing: a read that fails or breaks off changes nothing. Fetched prices are kept in a file of the
data folder and apply to every later placement. A running attempt keeps the price that it started with.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path

from supervisor.domain.findings import OK, WARN, Finding
from supervisor.domain.machines import Offer
from supervisor.host.files import write_text
from supervisor.ports.platform import OLD_PRICE_DAYS, ShapePrice
from supervisor.ports.provider import ProviderUnavailable
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.config import GceConfig
from supervisor.providers.gce.prices.google_prices import PriceReader
from supervisor.providers.gce.prices.pricebook import SETTINGS, Pricebook, Row, read_rows, write_rows
from supervisor.providers.gce.traits import google_finding
from supervisor.telemetry import logs as telemetry

log = logging.getLogger(__name__)

FILE = "google-prices.json"
REFRESH_DAYS = 60  # older prices are refreshed at the start without a request
_finding = partial(google_finding, "prices")


class Pricing:
    """`compute`: with a deadline of a minute. `now`: epoch seconds. `folder`: where fetched prices are kept; None =
    only in this process."""

    def __init__(
        self, config: GceConfig, compute: Compute, now: Callable[[], float], folder: Path | None = None
    ) -> None:
        self._config, self._now, self._reader = config, now, PriceReader(config, compute)
        self._path = None if folder is None else folder / FILE
        self._lock = threading.Lock()
        self._unreadable = ""  # why the file of fetched prices is not used
        self._book = Pricebook(config, self._load())
        self._last: tuple[Sequence[Offer], Pricebook, tuple[Offer, ...]] | None = None

    def prices(self) -> tuple[ShapePrice, ...]:
        return tuple(self._book.prices.values())

    def priced(self, offers: Sequence[Offer]) -> tuple[Offer, ...]:
        """The offers with their current prices. Fast: every tick calls it."""
        book, last = self._book, self._last
        if last is None or last[0] is not offers or last[1] is not book:
            last = self._last = offers, book, tuple(book.priced(offer) for offer in offers)
        return last[2]

    def refresh(self) -> tuple[ShapePrice, ...]:
        """Raises ProviderUnavailable: nothing has changed then."""
        with self._lock:
            fetched = self._reader.read(self._today())
            rows = {row.key: row for row in (*self._book.fetched, *fetched)}
            kept = tuple(rows.values())
            self._save(kept)
            self._book, self._unreadable = Pricebook(self._config, kept), ""
            return self.prices()

    def refresh_old(self) -> bool:
        """At the start, in the background: refresh old or unknown prices if this account may. True = done. Not within
        REFRESH_DAYS of the last fetch, and never where Compute Engine is a stand-in but the price list is Google's."""
        if self._config.endpoint and not self._config.billing_endpoint:
            return False
        fetched_on = max((row.dated for row in self._book.fetched), default="")
        if fetched_on and (self._today() - date.fromisoformat(fetched_on)).days <= REFRESH_DAYS:
            return False
        ages = [price.age_days(self._today()) for price in self.prices() if price.source != SETTINGS]
        oldest_days = max((days for days in ages if days is not None), default=0)
        if None not in ages and oldest_days <= REFRESH_DAYS:
            return False
        extra = {telemetry.ACTION: "prices"}
        try:
            self.refresh()
        except ProviderUnavailable as error:
            extra[telemetry.ERROR] = str(error)
            log.warning("prices are up to %d days old, and the refresh failed", oldest_days, extra=extra)
            return False
        log.info("prices were up to %d days old and have been refreshed", oldest_days, extra=extra)
        return True

    def finding(self) -> Finding:
        """The doctor's line on prices."""
        return finding(self.prices(), self._today(), self._unreadable)

    # --- the file -----------------------------------------------------------------------------------------------------

    def _load(self) -> tuple[Row, ...]:
        """An unreadable file is reported and not used: the prices of the package count then."""
        if self._path is None:
            return ()
        try:
            return read_rows(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return ()
        except (OSError, ValueError, RecursionError) as error:
            self._unreadable = f"{self._path.name}: {error}"
            log.warning(
                "fetched prices are not used: their file cannot be read",
                extra={telemetry.ACTION: "prices", telemetry.ERROR: self._unreadable},
            )
            return ()

    def _save(self, rows: Sequence[Row]) -> None:
        if self._path is None:
            return
        try:
            write_text(self._path, write_rows(rows))
        except OSError as error:
            text = f"the new prices could not be written ({error}); the old prices stay"
            raise ProviderUnavailable(text) from error

    def _today(self) -> date:
        return datetime.fromtimestamp(self._now(), UTC).date()


def finding(prices: Sequence[ShapePrice], today: date, unreadable: str = "") -> Finding:
    """Unknown prices, old prices, or that all is well; prices from the settings do not age."""
    if unreadable:
        fact = f"the fetched prices cannot be read ({unreadable}), so the prices of the package are used"
        return _finding(WARN, fact, "they may be old", "spot prices refresh")
    unknown = [price for price in prices if price.spot_usd_per_h is None or price.on_demand_usd_per_h is None]
    if unknown:
        names = ", ".join(dict.fromkeys(f"{price.shape} in {price.region}" for price in unknown))
        cause = "the cost of such runs is not counted, and a budget for them is refused"
        example = f"{unknown[0].shape}=0.15/0.45 (spot/on-demand, $ per hour)"
        fix = f"spot prices refresh; or set gce_prices, such as {example}"
        return _finding(WARN, f"unknown for {names}", cause, fix)
    shapes = ", ".join(dict.fromkeys(price.shape for price in prices))
    aged = [(days, price) for price in prices if (days := price.age_days(today)) is not None]
    if not aged:
        return _finding(OK, f"known for {shapes}")
    days, oldest = max(aged, key=lambda item: item[0])
    if days > OLD_PRICE_DAYS:
        fact = f"{oldest.shape} in {oldest.region} is {days} days old"
        cause = "Google changes Spot prices up to once a day, other prices rarely"
        return _finding(WARN, fact, cause, "spot prices refresh")
    return _finding(OK, f"known for {shapes}, at most {days} days old")
