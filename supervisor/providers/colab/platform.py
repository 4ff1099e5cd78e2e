"""What a user can ask about sessions of Colab, beside the machines themselves: a preview of a launch, and prices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from supervisor.domain.findings import Finding
from supervisor.domain.machines import MachineRef, Offer, OfferKey
from supervisor.ports.platform import Account, ConsolePart, DataPlace, Login, PlanQuestion, PlatformEvent, ShapePrice
from supervisor.ports.provider import LaunchRequest, MachineMissing, NotSupported
from supervisor.providers.colab.cell import NOTEBOOKS
from supervisor.providers.colab.provider import ColabProvider
from supervisor.providers.colab.settings import CLIENT, HARDWARE, ColabSettings


class ColabPlatform:
    """Platform of ports/platform.py. What a cell prints stays in the notebook: a session has no console here."""

    log_service = ""

    def __init__(self, provider: ColabProvider, s: ColabSettings) -> None:
        self._provider, self._settings = provider, s

    def account(self) -> Account:
        return Account(self._provider.name, console_url=NOTEBOOKS)

    def account_so_far(self) -> Account:
        return self.account()

    def preview(self, request: LaunchRequest) -> Mapping[str, object]:
        by_client = request.placement.zone == CLIENT
        return {
            "kind": "session",
            "way": request.placement.zone,
            **(
                {"argv": [self._settings.colab_client, "new", "-s", request.name, *HARDWARE[request.placement.shape]]}
                if by_client
                else {}
            ),
            "job": dict(self._provider.job(request)),
            "secrets": dict(request.secrets),
        }

    def login(self, ref: MachineRef) -> Login:
        """A session of the client has a console; the other one is in the notebook of its person."""
        if ref.zone == CLIENT:
            return Login(f"{self._settings.colab_client} console -s {ref.name}  # way {ref.zone}")
        return Login(f"# way {ref.zone}: open the notebook that ran its cell, at {NOTEBOOKS}")

    def advise(self, question: PlanQuestion) -> tuple[Finding, ...]:
        return ()

    def chances(self, offers: Sequence[Offer]) -> Mapping[OfferKey, float]:
        raise NotSupported("Colab gives no estimate of its capacity")

    def data_places(self, regions: Sequence[str], image: str = "", ask: bool = False) -> tuple[DataPlace, ...]:
        return ()

    def prices(self) -> tuple[ShapePrice, ...]:
        offers = {(offer.placement.shape, offer.placement.spot): offer for offer in self._provider.offers()}
        shapes = dict.fromkeys((shape, offer.placement.region) for (shape, _), offer in offers.items())
        return tuple(
            ShapePrice(
                shape, region, offers[shape, True].price_usd_per_h, offers[shape, False].price_usd_per_h, "settings"
            )
            for shape, region in shapes
        )

    def refresh_prices(self) -> tuple[ShapePrice, ...]:
        raise NotSupported("Colab publishes compute units, not prices: set colab_prices")

    def history(self, refs: Sequence[MachineRef], since: float) -> tuple[PlatformEvent, ...]:
        return ()

    def console_after(self, ref: MachineRef, start: int, max_bytes: int = 65536) -> ConsolePart:
        if self._provider.find(ref) is None:
            raise MachineMissing(f"there is no session {ref.name}")
        return ConsolePart(b"", max(0, start), max(0, start))

    def console_archive(self, ref: MachineRef, since: float, max_lines: int) -> bytes:
        raise NotSupported("what a cell prints stays in its notebook")
