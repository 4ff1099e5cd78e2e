"""A platform whose every answer a test sets: what is not set is what a place without Google has to say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from supervisor.domain.findings import Finding
from supervisor.domain.machines import MachineRef, Offer, OfferKey, offer_key
from supervisor.ports.platform import Account, ConsolePart, DataPlace, Login, PlanQuestion, PlatformEvent, ShapePrice
from supervisor.ports.provider import LaunchRequest, MachineMissing, NotSupported


@dataclass
class FakePlatform:
    """`consoles` and `archives` by machine name; an Exception in `trouble` is raised by every call that may fail."""

    told: Account = field(default_factory=lambda: Account("fake-project", "123456789"))
    findings: tuple[Finding, ...] = ()
    price_list: tuple[ShapePrice, ...] = ()
    events: list[PlatformEvent] = field(default_factory=list)
    consoles: dict[str, bytes] = field(default_factory=dict)
    lost_bytes: dict[str, int] = field(default_factory=dict)
    archives: dict[str, bytes] = field(default_factory=dict)
    log_service: str = ""
    trouble: Exception | None = None
    questions: list[PlanQuestion] = field(default_factory=list)
    obtainability: dict[str, float] = field(default_factory=dict)  # by zone
    places: dict[str, str] = field(default_factory=dict)  # what lies there -> its region
    asked_places: list[bool] = field(default_factory=list)  # whether it might have been asked now

    def account(self) -> Account:
        return self.told

    def account_so_far(self) -> Account:
        return self.told

    def preview(self, request: LaunchRequest) -> Mapping[str, object]:
        return {"name": request.name, "zone": request.placement.zone, "image": request.image}

    def login(self, ref: MachineRef) -> Login:
        return Login(f"ssh {ref.zone}", f"/machines/{ref.name}")

    def advise(self, question: PlanQuestion) -> tuple[Finding, ...]:
        self.questions.append(question)
        return self.findings

    def chances(self, offers: Sequence[Offer]) -> Mapping[OfferKey, float]:
        self._maybe_fail()
        keys = [offer_key(offer.placement) for offer in offers]
        return {key: self.obtainability[key[1]] for key in keys if key[1] in self.obtainability}

    def data_places(self, regions: Sequence[str], image: str = "", ask: bool = False) -> tuple[DataPlace, ...]:
        self.asked_places.append(ask)
        self._maybe_fail()
        return tuple(
            DataPlace(what, place, tuple(region for region in regions if region == place))
            for what, place in self.places.items()
        )

    def prices(self) -> tuple[ShapePrice, ...]:
        return self.price_list

    def refresh_prices(self) -> tuple[ShapePrice, ...]:
        self._maybe_fail()
        return self.price_list

    def history(self, refs: Sequence[MachineRef], since: float) -> tuple[PlatformEvent, ...]:
        self._maybe_fail()
        names = {ref.name for ref in refs}
        return tuple(one for one in self.events if one.machine_name in names and one.at >= since)

    def console_after(self, ref: MachineRef, start: int, max_bytes: int = 65536) -> ConsolePart:
        self._maybe_fail()
        if ref.name not in self.consoles:
            raise MachineMissing(ref.name)
        whole, lost = self.consoles[ref.name], self.lost_bytes.get(ref.name, 0)
        first = max(len(whole) + start, 0) if start < 0 else start
        first = max(first, lost)
        content = _whole_characters(whole[first : first + max_bytes])
        return ConsolePart(content, first, first + len(content))

    def console_archive(self, ref: MachineRef, since: float, max_lines: int) -> bytes:
        self._maybe_fail()
        if ref.name not in self.archives:
            raise NotSupported("this platform keeps no consoles")
        return b"".join(self.archives[ref.name].splitlines(keepends=True)[-max_lines:])

    def _maybe_fail(self) -> None:
        if self.trouble is not None:
            raise self.trouble


def _whole_characters(content: bytes) -> bytes:
    for cut in range(4):
        try:
            content[: len(content) - cut].decode()
        except UnicodeDecodeError:
            continue
        return content[: len(content) - cut]
    return content
