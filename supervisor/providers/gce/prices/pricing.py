"""The prices that this supervisor works with, and how they are fetched anew.

A refresh is all or nothing: a read that fails or breaks off changes nothing. What is fetched lies in a file of the data
folder, and is used from then on by everything that is placed; an attempt that lives keeps the price that it began with.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path

from supervisor.domain.findings import OK, WARN, Finding
from supervisor.domain.machines import Offer
from supervisor.ports.platform import OLD_PRICE_DAYS, ShapePrice
from supervisor.ports.provider import ProviderUnavailable
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.config import GceConfig
from supervisor.providers.gce.prices import pricebook as book_of
from supervisor.providers.gce.prices.price_reading import PriceReader
from supervisor.providers.gce.prices.pricebook import Pricebook, Row
from supervisor.telemetry import logs as telemetry

log = logging.getLogger(__name__)

FILE = "google-prices.json"
ASK_ANEW_DAYS = 60  # prices that are older are asked for at the start, without being told to


class Pricing:
    """`compute`: with the patience of a minute. `now`: epoch seconds. `folder`: where fetched prices are kept; None =
    they live as long as this process."""

    def __init__(
        self, config: GceConfig, compute: Compute, now: Callable[[], float], folder: Path | None = None
    ) -> None:
        self._config, self._now, self._reader = config, now, PriceReader(config, compute)
        self._path = None if folder is None else folder / FILE
        self._lock = threading.Lock()
        self.unreadable = ""  # why the file of fetched prices is not used
        self._book = Pricebook(config, self._load())
        self._last: tuple[Sequence[Offer], Pricebook, tuple[Offer, ...]] | None = None

    @property
    def book(self) -> Pricebook:
        return self._book

    def prices(self) -> tuple[ShapePrice, ...]:
        return self._book.all()

    def priced(self, offers: Sequence[Offer]) -> tuple[Offer, ...]:
        """The offers at the prices of now. Cheap: asked for at every look."""
        book, last = self._book, self._last
        if last is None or last[0] is not offers or last[1] is not book:
            last = self._last = offers, book, tuple(book.priced(offer) for offer in offers)
        return last[2]

    def refresh(self) -> tuple[ShapePrice, ...]:
        """Raises ProviderUnavailable: then nothing has changed."""
        with self._lock:
            fetched = self._reader.read(self._today())
            rows = {row.key: row for row in (*self._book.fetched, *fetched)}
            kept = tuple(rows.values())
            self._save(kept)
            self._book, self.unreadable = Pricebook(self._config, kept), ""
            return self._book.all()

    def refresh_old(self) -> bool:
        """At the start, in the background: what is old or unknown is asked for anew, where this account may. True =
        done. Never where Compute Engine is a stand-in and the price list is Google's own, and not so soon again."""
        if self._config.endpoint and not self._config.billing_endpoint:
            return False
        asked_on = max((row.dated for row in self._book.fetched), default="")
        if asked_on and (self._today() - date.fromisoformat(asked_on)).days <= ASK_ANEW_DAYS:
            return False
        ages = [one.age_days(self._today()) for one in self.prices() if one.source != book_of.SETTINGS]
        oldest_days = max((days for days in ages if days is not None), default=0)
        if None not in ages and oldest_days <= ASK_ANEW_DAYS:
            return False
        extra = {telemetry.ACTION: "prices"}
        try:
            self.refresh()
        except ProviderUnavailable as error:
            extra[telemetry.ERROR] = str(error)
            log.warning("prices are up to %d days old, and new ones could not be had", oldest_days, extra=extra)
            return False
        log.info("prices were up to %d days old and have been asked for anew", oldest_days, extra=extra)
        return True

    def finding(self) -> Finding:
        """The doctor's line on prices."""
        return finding(self.prices(), self._today(), self.unreadable)

    # --- the file -----------------------------------------------------------------------------------------------------

    def _load(self) -> tuple[Row, ...]:
        """A file that cannot be read is told and not used: the package's prices are."""
        if self._path is None:
            return ()
        try:
            return book_of.read_rows(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return ()
        except (OSError, ValueError, RecursionError) as error:
            self.unreadable = f"{self._path.name}: {error}"
            log.warning(
                "fetched prices are not used: their file cannot be read",
                extra={telemetry.ACTION: "prices", telemetry.ERROR: self.unreadable},
            )
            return ()

    def _save(self, rows: Sequence[Row]) -> None:
        if self._path is None:
            return
        draft = self._path.with_suffix(f".{os.getpid()}.tmp")
        try:
            draft.unlink(missing_ok=True)
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                file.write(book_of.write_rows(rows))
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, self._path)
        except OSError as error:
            draft.unlink(missing_ok=True)
            text = f"the new prices could not be written ({error}); the old ones stay"
            raise ProviderUnavailable(text) from error

    def _today(self) -> date:
        return datetime.fromtimestamp(self._now(), UTC).date()


def finding(prices: Sequence[ShapePrice], today: date, unreadable: str = "") -> Finding:
    """What is unknown, what is old, or that all is well; the settings' own prices do not age."""
    if unreadable:
        fact = f"what was fetched cannot be read ({unreadable}), so the prices of the package are used"
        return _finding(WARN, fact, "they may be old", "spot prices refresh")
    unknown = [one for one in prices if one.spot_usd_per_h is None or one.on_demand_usd_per_h is None]
    if unknown:
        names = ", ".join(dict.fromkeys(f"{one.shape} in {one.region}" for one in unknown))
        cause = "what such runs cost is not counted, and a budget for them is refused"
        example = f"{unknown[0].shape}=0.15/0.45 (spot/on-demand, $ per hour)"
        return _finding(
            WARN, f"unknown for {names}", cause, f"spot prices refresh; or set gce_prices, such as {example}"
        )
    known = ", ".join(dict.fromkeys(one.shape for one in prices))
    aged = [(days, one) for one in prices if (days := one.age_days(today)) is not None]
    if not aged:
        return _finding(OK, f"known for {known}")
    days, oldest = max(aged, key=lambda item: item[0])
    if days > OLD_PRICE_DAYS:
        fact = f"{oldest.shape} in {oldest.region} is {days} days old"
        return _finding(WARN, fact, "Google changes Spot prices up to once a day, others rarely", "spot prices refresh")
    return _finding(OK, f"known for {known}, at most {days} days old")


def _finding(result: str, fact: str, cause: str = "", fix: str = "") -> Finding:
    return Finding("prices", result, fact, cause, fix, group="google")
