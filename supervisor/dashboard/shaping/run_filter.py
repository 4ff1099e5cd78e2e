"""Which runs a page is about: the filters of the API's list, as they stand in the address of the page.

Every view has an address, and every link here is one: the same filter with one thing changed, from its first page on.
What the API does not know stays in, so that the API says so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from supervisor.domain.status import TERMINAL, Status

Pairs = tuple[tuple[str, str], ...]
FILTERS = ("status", "label", "zone", "owner", "created_after", "q", "run_id")
LIVE = tuple(str(status) for status in Status if status not in TERMINAL)
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_MIDNIGHT = "T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Wanted:
    """`pairs`: the parameters of the address, in their order, without empty ones."""

    pairs: Pairs = ()

    def one(self, name: str) -> str:
        """The empty text = not given."""
        return next((value for given, value in self.pairs if given == name), "")

    def all(self, name: str) -> list[str]:
        return [value for given, value in self.pairs if given == name]

    @property
    def filters(self) -> Pairs:
        return tuple(pair for pair in self.pairs if pair[0] in FILTERS)

    @property
    def day(self) -> str:
        """`created_after` where it is the begin of a day, as a date field has it."""
        told = self.one("created_after")
        return told.removesuffix(_MIDNIGHT) if told.endswith(_MIDNIGHT) else ""

    def address(self, path: str = "/ui/runs", **changes: str | Sequence[str]) -> str:
        """Of its first page, with these parameters in the place of those of the same name; "" and () = without."""
        kept = [pair for pair in self.pairs if pair[0] not in changes and pair[0] != "cursor"]
        for name, value in changes.items():
            kept += [(name, one) for one in ([value] if isinstance(value, str) else value) if one]
        return path + (f"?{urlencode(kept)}" if kept else "")


def wanted_of(given: Sequence[tuple[str, str]]) -> Wanted:
    """As a form sends it: fields that were left empty say nothing, a day means its begin."""
    return Wanted(
        tuple(
            (name, value + _MIDNIGHT if name == "created_after" and _DAY.fullmatch(value) else value)
            for name, value in given
            if value != ""
        )
    )


def counted(counts: dict[str, int], statuses: Sequence[str]) -> int:
    """How many runs of these statuses; of every one where none is named."""
    return sum(counts.values()) if not statuses else sum(counts.get(status, 0) for status in set(statuses))


def stoppable(counts: dict[str, int], statuses: Sequence[str]) -> int:
    """Of the runs that match, those to which a stop means something; the API judges each by itself."""
    meant = [status for status in LIVE if status not in ("stopping", "awaiting_teardown")]
    return _of(counts, statuses, meant)


def resumable(counts: dict[str, int], statuses: Sequence[str]) -> int:
    return _of(counts, statuses, [status for status in TERMINAL if status != "completed"])


def _of(counts: dict[str, int], statuses: Sequence[str], meant: Sequence[str]) -> int:
    return sum(counts.get(status, 0) for status in meant if not statuses or status in statuses)
