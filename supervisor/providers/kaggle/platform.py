"""What a user can ask about sessions of notebooks, beside the machines themselves: logs, a preview, the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from supervisor.domain.findings import Finding
from supervisor.domain.machines import MachineRef, Offer, OfferKey
from supervisor.machinefolder.platform import whole_characters
from supervisor.ports.platform import Account, ConsolePart, DataPlace, Login, PlanQuestion, PlatformEvent, ShapePrice
from supervisor.ports.provider import LaunchRequest, MachineMissing, NotSupported
from supervisor.providers.kaggle.kernels import code_of, slug_of
from supervisor.providers.kaggle.provider import KaggleProvider
from supervisor.providers.kaggle.settings import KaggleSettings

PAGE = "https://www.kaggle.com/code"


class KagglePlatform:
    """Platform of ports/platform.py."""

    log_service = ""

    def __init__(self, provider: KaggleProvider, s: KaggleSettings) -> None:
        self._provider, self._settings = provider, s

    def account(self) -> Account:
        return Account(self._settings.kaggle_user, console_url=f"{PAGE}?page=yourWork")

    def account_so_far(self) -> Account:
        return self.account()

    def preview(self, request: LaunchRequest) -> Mapping[str, object]:
        push = self._provider.preview_of(request)
        return {
            "kind": "private notebook",
            "notebook": f"{self._settings.kaggle_user}/{push.slug}",
            "cell": code_of(push.source),
            "machine_shape": push.machine_shape,
            "enable_internet": push.internet,
            "session_timeout_seconds": push.timeout_s,
            "secrets": dict(request.secrets),
        }

    def login(self, ref: MachineRef) -> Login:
        """There is no shell: the command says where the notebook is."""
        page = f"{PAGE}/{self._settings.kaggle_user}/{slug_of(ref.name)}"
        return Login(f"echo 'Kaggle gives no shell. The notebook ({ref.zone}): {page}'")

    def advise(self, question: PlanQuestion) -> tuple[Finding, ...]:
        return ()

    def chances(self, offers: Sequence[Offer]) -> Mapping[OfferKey, float]:
        raise NotSupported("Kaggle gives no estimate of its queue")

    def data_places(self, regions: Sequence[str], image: str = "", ask: bool = False) -> tuple[DataPlace, ...]:
        return ()

    def prices(self) -> tuple[ShapePrice, ...]:
        spot = [offer.placement for offer in self._provider.offers() if offer.placement.spot]
        return tuple(ShapePrice(place.shape, place.region, 0.0, 0.0, "weekly hours, no money") for place in spot)

    def refresh_prices(self) -> tuple[ShapePrice, ...]:
        raise NotSupported("Kaggle has no prices: its meter is weekly hours")

    def history(self, refs: Sequence[MachineRef], since: float) -> tuple[PlatformEvent, ...]:
        return ()

    def console_after(self, ref: MachineRef, start: int, max_bytes: int = 65536) -> ConsolePart:
        """The log of the version, as far as Kaggle gives it."""
        entry = self._provider.entry(ref)
        if entry is None:
            raise MachineMissing(f"there is no machine {ref.name}")
        content = self._provider.log(entry)
        first = max(0, len(content) + start) if start < 0 else start
        whole = whole_characters(content[first : first + max_bytes])
        return ConsolePart(whole, first, first + len(whole))

    def console_archive(self, ref: MachineRef, since: float, max_lines: int) -> bytes:
        raise NotSupported("Kaggle keeps the log with the notebook, which is deleted after its session")
