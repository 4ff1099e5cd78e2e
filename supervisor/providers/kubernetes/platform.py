"""What a user can ask about Jobs of a cluster, beside the machines themselves: consoles, events, a preview, a shell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from supervisor.domain.findings import Finding
from supervisor.domain.machines import MachineRef, Offer, OfferKey
from supervisor.machinefolder.platform import whole_characters
from supervisor.ports.platform import Account, ConsolePart, DataPlace, Login, PlanQuestion, PlatformEvent, ShapePrice
from supervisor.ports.provider import LaunchRequest, MachineMissing, NotSupported
from supervisor.providers.kubernetes.api import own
from supervisor.providers.kubernetes.machines import epoch
from supervisor.providers.kubernetes.objects import CONTAINER, MACHINES
from supervisor.providers.kubernetes.provider import KubernetesProvider
from supervisor.providers.kubernetes.settings import KubernetesSettings
from supervisor.providers.kubernetes.states import short
from supervisor.providers.kubernetes.waiting import event_time


class KubernetesPlatform:
    """Platform of ports/platform.py."""

    log_service = ""

    def __init__(self, provider: KubernetesProvider, s: KubernetesSettings) -> None:
        self._provider, self._settings = provider, s

    def account(self) -> Account:
        return Account(self._settings.kubernetes_namespace or self._provider.name)

    def account_so_far(self) -> Account:
        return self.account()

    def preview(self, request: LaunchRequest) -> Mapping[str, object]:
        namespace = self._settings.kubernetes_namespace
        return {
            "kind": "batch/v1 Job",
            "namespace": namespace,
            "object": self._provider.job(request, namespace),
            "job": self._provider.content(request),
            "secrets": dict(request.secrets),
        }

    def login(self, ref: MachineRef) -> Login:
        """The pool is only a label of the Job, so it is in the command as a comment of the shell."""
        where = f" -n {self._settings.kubernetes_namespace}" if self._settings.kubernetes_namespace else ""
        context = f" --context {self._settings.kubernetes_context}" if self._settings.kubernetes_context else ""
        command = f"kubectl{context}{where} exec -it job/{ref.name} -c {CONTAINER} -- /bin/sh  # in {ref.zone}"
        return Login(command, f"{MACHINES}/{ref.name}")

    def advise(self, question: PlanQuestion) -> tuple[Finding, ...]:
        return ()

    def chances(self, offers: Sequence[Offer]) -> Mapping[OfferKey, float]:
        raise NotSupported("a cluster gives no estimate of its capacity")

    def data_places(self, regions: Sequence[str], image: str = "", ask: bool = False) -> tuple[DataPlace, ...]:
        return ()

    def prices(self) -> tuple[ShapePrice, ...]:
        prices = self._settings.kubernetes_prices
        region = {offer.placement.shape: offer.placement.region for offer in self._provider.offers()}
        shapes = [shape for shape in self._settings.kubernetes_shapes if shape in region]
        each = [(shape, *prices.get(shape, (None, None))) for shape in shapes]
        return tuple(ShapePrice(shape, region[shape], spot, other, "settings") for shape, spot, other in each)

    def refresh_prices(self) -> tuple[ShapePrice, ...]:
        raise NotSupported("a cluster has no list of prices: set kubernetes_prices")

    def history(self, refs: Sequence[MachineRef], since: float) -> tuple[PlatformEvent, ...]:
        """The cluster keeps its events for an hour."""
        if not refs:
            return ()
        by_name = {ref.name: ref for ref in refs}
        events = [
            _event(item, by_name[name])
            for item in self._provider.api.items(self._provider.api.path("events"))
            if (name := _machine_name(item, by_name)) is not None
        ]
        return tuple(sorted((event for event in events if event.at >= since), key=lambda event: event.at))

    def console_after(self, ref: MachineRef, start: int, max_bytes: int = 65536) -> ConsolePart:
        entry = self._provider.entry(ref)
        if entry is None:
            raise MachineMissing(f"there is no machine {ref.name}")
        content = self._provider.log(entry) if start < 0 else self._provider.log(entry, most_bytes=start + max_bytes)
        first = max(0, len(content) + start) if start < 0 else start
        whole = whole_characters(content[first : first + max_bytes])
        return ConsolePart(whole, first, first + len(whole))

    def console_archive(self, ref: MachineRef, since: float, max_lines: int) -> bytes:
        raise NotSupported("the supervisor knows no log service of the cluster")


def _machine_name(item: Mapping[str, Any], names: Mapping[str, MachineRef]) -> str | None:
    """Of the Job that the event is about, or of its pod, whose name has five more characters. None = another one."""
    involved = str(own(item, "involvedObject", "name") or "")
    for name in (involved, involved.rpartition("-")[0]):
        if name in names:
            return name
    return None


def _event(item: Mapping[str, Any], ref: MachineRef) -> PlatformEvent:
    return PlatformEvent(
        at=epoch(event_time(item)) or epoch(own(item, "metadata", "creationTimestamp")) or 0.0,
        event_id=str(own(item, "metadata", "uid") or own(item, "metadata", "name") or ""),
        kind=f"{own(item, 'involvedObject', 'kind')}.{item.get('reason')}",
        text=short(item.get("message")) or str(item.get("reason")),
        actor=str(item.get("reportingComponent") or own(item, "source", "component") or ""),
        machine_name=ref.name,
        zone=ref.zone,
    )
