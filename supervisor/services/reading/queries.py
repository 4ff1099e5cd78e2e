"""Runs as readers see them: one of them, a page of them, and the attempts of one. Nothing here changes anything.

The row of a run has one sample a minute. The loop and the inbox hold newer values in memory, and these are laid over
the row, so that a reader sees the last beat and not the last sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, NotRequired, cast

from pydantic import Field
from typing_extensions import TypedDict

from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.contract.heartbeat import Beat
from supervisor.domain.attempt import Pulse
from supervisor.domain.profile import Reach
from supervisor.domain.run import Run
from supervisor.ports.objectstore import ObjectMissing, StoreUnavailable
from supervisor.ports.store import RunFilter
from supervisor.services.machines.incidents import IncidentShown
from supervisor.services.machines.machines import AccountJson, account_view
from supervisor.services.parts import Parts
from supervisor.services.reading.health import LoopView, ticks
from supervisor.services.reading.series import Sparklines, SparkPoint
from supervisor.services.reading.sessions import SessionsShown, sessions_json
from supervisor.services.runs.changing import find_run
from supervisor.services.runs.heartbeat import BeatInbox
from supervisor.services.views import formats
from supervisor.services.views.attempt_view import AttemptList, attempts_json
from supervisor.services.views.formats import usd
from supervisor.services.views.run_view import RunJson, run_json
from supervisor.services.views.telemetry_view import TelemetryJson, telemetry_json

PAGE_SIZE = 50
PAGE_MAX = 1000
DAY_S = 86_400

Live = Callable[[int], Run | None]


class OnlyOnHost(TypedDict):
    """`checkpoint_step`: newest on the host, null: none. `copied_step`: newest in the object store, null: none."""

    zone: str
    checkpoint_step: int | None
    copied_step: int | None


class ShownRun(RunJson):
    """A run with the figures of its machine. `telemetry`: null until a beat carries any. `files_url`: its folder in
    the object store, with its manifest and the history of its machines."""

    telemetry: TelemetryJson | None
    files_url: str
    only_on_host: Annotated[
        OnlyOnHost | None,
        Field(
            description="A checkpoint on the host of the run that is not in the object store yet; null: there is none."
        ),
    ]
    account: Annotated[
        AccountJson | None,
        Field(description="The account of its machines; null where only another supervisor knows it."),
    ]
    sessions: Annotated[
        SessionsShown | None,
        Field(description="What it needs of a platform that lends its machines for a time; null: none does."),
    ]


class Summary(TypedDict):
    """Counts by status under the same filter, without its `status`. `last_tick_age_s`: since the last tick of this
    process, null: there was none. `tick_late`: it is too long ago (as in /readyz), and no other replica ticks."""

    counts: Mapping[str, int]
    usd_per_h: float
    last_tick_age_s: float | None
    tick_late: bool


class ListedRun(RunJson):
    """`sparkline`: with `include=sparkline`; oldest first, from the first point to the newest."""

    sparkline: NotRequired[list[SparkPoint]]


class RunList(TypedDict):
    """`incidents`: with `incidents=true`; the newest first."""

    runs: list[ListedRun]
    summary: Summary
    next_cursor: str | None
    incidents: NotRequired[list[IncidentShown]]


def nobody_live(key: int) -> Run | None:
    """A `Live` where no loop runs."""
    return None


class Queries:
    """`live(key)`: the run as the loop holds it in memory, None when it does not."""

    def __init__(self, parts: Parts, inbox: BeatInbox, loop: LoopView, live: Live = nobody_live) -> None:
        self._parts, self._inbox, self._loop, self._live = parts, inbox, loop, live
        self._sparklines = Sparklines(parts)
        self._settled: dict[int, tuple[Run, int, RunJson]] = {}

    def find(self, run_id: str) -> Run:
        """Raises NotFound."""
        return find_run(self._parts, run_id)

    def fresh(self, run_id: str) -> Run:
        """With its last beat. Raises NotFound."""
        return self._fresh(self.find(run_id))

    def show(self, run_id: str) -> ShownRun:
        """Raises NotFound."""
        run = self.find(run_id)
        view = self.view(run)
        return {
            **view,
            "telemetry": telemetry_json(self._fresh(run)),
            "files_url": f"{self._parts.objects.url.rstrip('/')}/{runfiles.folder(run.run_id)}",
            "only_on_host": self._only_on_host(run, view["checkpoint_step"]),
            "account": self._account(run),
            "sessions": sessions_json(self._parts, self._fresh(run), self._parts.clock.now()),
        }

    def _only_on_host(self, run: Run, newest: int | None) -> OnlyOnHost | None:
        """Our own baton names what is here (RULES section 1). None too where it cannot be read now."""
        placed = [name for name in run.providers if self._relays(name)]
        if run.settled or not placed:
            return None
        try:
            objects = self._parts.impatient or self._parts.objects
            baton = batons.decode(objects.get(runfiles.baton(run.run_id))[0])
        except (StoreUnavailable, ObjectMissing, ValueError):
            return None
        copied = None if baton.checkpoint is None else baton.checkpoint.step
        if baton.home is None or newest is None or (copied is not None and copied >= newest):
            return None
        return {"zone": baton.home.zone, "checkpoint_step": newest, "copied_step": copied}

    def _relays(self, name: str) -> bool:
        provider = self._parts.providers.get(name)
        return provider is not None and provider.profile().store_reach.value is Reach.RELAY

    def _account(self, run: Run) -> AccountJson | None:
        """As far as it is known without a call. None: only another supervisor knows it."""
        parts = self._parts
        if parts.cells.get(run.provider) != run.cell:
            return None
        return account_view(parts, run.provider, parts.platform_of(run.provider).account_so_far())

    def view(self, run: Run, labels: Mapping[str, str] | None = None) -> RunJson:
        """`labels` None = the stored ones."""
        run_labels = self._parts.store.labels(run.key) if labels is None else labels
        return self._json(run, self._parts.clock.now(), run_labels, self._loop().trouble)

    def _json(self, run: Run, now: float, labels: Mapping[str, str], trouble: str) -> RunJson:
        return run_json(self._fresh(run), now, labels, self._parts.gpu, trouble)

    def _listed(self, run: Run, now: float, labels: Mapping[str, str], trouble: str) -> ListedRun:
        """As `_json`. A settled run is the same all day (its sentence names the days of its times), and is rendered
        once: the store gives the same object for an unchanged row."""
        if not run.settled:
            return cast(ListedRun, self._json(run, now, labels, trouble))
        day = int(now // DAY_S)
        kept = self._settled.get(run.key)
        if kept is None or kept[0] is not run or kept[1] != day:
            kept = (run, day, self._json(run, now, {}, trouble))
            if len(self._settled) >= PAGE_MAX:
                self._settled.clear()
            self._settled[run.key] = kept
        return cast(ListedRun, {**kept[2], "labels": labels})

    def page(self, where: RunFilter, page_size: int, cursor: str | None, sparklines: bool = False) -> RunList:
        """Newest first. `page_size` 0 = the default; above 1000 counts as 1000. Raises CursorInvalid."""
        store, now, loop = self._parts.store, self._parts.clock.now(), self._loop()
        before_key = None if cursor is None else formats.read_cursor(store.secret, cursor, where)
        page = store.page(where, before_key, min(page_size or PAGE_SIZE, PAGE_MAX))
        runs = [self._listed(run, now, page.labels.get(run.key, {}), loop.trouble) for run in page.runs]
        if sparklines:
            lines = self._sparklines.of(page.runs)
            for listed, run in zip(runs, page.runs, strict=True):
                listed["sparkline"] = lines[run.key]
        return {
            "runs": runs,
            "summary": {
                "counts": page.counts,
                "usd_per_h": usd(page.usd_per_h),
                "last_tick_age_s": loop.last_tick_age_s,
                "tick_late": not ticks(loop, self._parts.knobs.poll_interval_s),
            },
            "next_cursor": None if page.next_key is None else formats.make_cursor(store.secret, page.next_key, where),
        }

    def attempts(self, run_id: str) -> AttemptList:
        """Raises NotFound."""
        run, parts = self.fresh(run_id), self._parts
        attempts, tries = parts.store.attempts(run.key), parts.store.tries(run.key)
        return attempts_json(run, attempts, tries, parts.clock.now(), parts.gpu)

    def with_beat(self, run: Run) -> Run:
        """The run with its last beat."""
        return self._fresh(run)

    def _fresh(self, run: Run) -> Run:
        if run.live_attempt is None:
            return run
        live = self._live(run.key)
        if live is not None and live.pulse is not None and _is_newer(live.pulse, run):
            run = replace(run, pulse=live.pulse)
        pushed = self._inbox.newest(run.run_id)
        return run if pushed is None else _with_beat(run, pushed[0], self._seen_at(pushed[1]))

    def _seen_at(self, received_monotonic: float) -> float:
        clock = self._parts.clock
        return clock.now() - max(0.0, clock.monotonic() - received_monotonic)


def _is_newer(pulse: Pulse, run: Run) -> bool:
    attempt, kept = run.live_attempt, run.pulse
    if attempt is None or pulse.launch_id != attempt.launch_id:
        return False
    return kept is None or kept.launch_id != pulse.launch_id or pulse.sequence >= kept.sequence


def _with_beat(run: Run, beat: Beat, seen_at: float) -> Run:
    """The run with the values of a newer pushed beat of the same launch; the loop alone counts stall polls."""
    pulse = run.pulse
    if pulse is None or pulse.launch_id != beat.launch_id or beat.sequence < pulse.sequence:
        return run
    reported = ("step", "total", "checkpoint_step", "steps_per_s")
    newest = {name: value for name in reported if (value := getattr(beat, name)) is not None}
    return replace(
        run,
        pulse=replace(
            pulse,
            sequence=beat.sequence,
            phase=beat.phase,
            beat_at=seen_at,
            message=beat.message,
            metrics=beat.metrics or pulse.metrics,
            telemetry=beat.telemetry or pulse.telemetry,
            **newest,
        ),
    )
