"""What readers see: runs, attempts, events. Nothing here changes anything.

The row of a run is sampled once a minute; what the loop and the inbox hold in memory is newer and is laid over it, so
that a reader sees the last beat and not the last sample.

The small line of steps in each row of a list: two dozen points for any length of run.

A page of runs is asked for again and again, and its lines change once a minute: what was read is kept for so long, of a
run that is over for longer, and until the row of the run changes, because an attempt may have ended then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from supervisor.contract import runfiles
from supervisor.contract.heartbeat import Beat
from supervisor.domain.attempt import Pulse
from supervisor.domain.run import Run
from supervisor.ports.history import StoredEvent
from supervisor.ports.store import LINE_PARTS, RunFilter, Step
from supervisor.services.machines.machines import account_view
from supervisor.services.parts import Parts
from supervisor.services.reading.health import LoopView, ticks
from supervisor.services.reading.series import SUPERVISOR, Page, is_silence, with_cloud
from supervisor.services.runs.changing import find_run
from supervisor.services.runs.heartbeat import BeatInbox
from supervisor.services.views import cursor as cursors
from supervisor.services.views import rfc3339
from supervisor.services.views.attempt_view import attempts_json, telemetry_json
from supervisor.services.views.run_view import Json, run_json, usd

KEPT_S, ENDED_KEPT_S = 60.0, 600.0
MOST = 500  # lines in memory, about 5 KB each


@dataclass(frozen=True, slots=True)
class _Kept:
    version: int
    until: float  # of the monotonic clock
    points: list[Json]


class Sparklines:
    """Safe to use from any thread: two that look at once read the same lines twice, and no more."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._kept: dict[int, _Kept] = {}

    def of(self, runs: Sequence[Run]) -> dict[int, list[Json]]:
        """Key -> points {at, step, gap}, oldest first; none for a run that has told no step. Raises StoreDown."""
        monotonic, now = self._parts.clock.monotonic(), self._parts.clock.now()
        points_by_run, missing = {}, []
        for run in runs:
            kept = self._kept.get(run.key)
            if kept is not None and kept.version == run.version and monotonic < kept.until:
                points_by_run[run.key] = kept.points
            else:
                missing.append(run)
        lines = self._parts.store.lines([run.key for run in missing]) if missing else {}
        for run in missing:
            points = points_of(lines.get(run.key, []), now)
            points_by_run[run.key] = points
            self._keep(run, _Kept(run.version, monotonic + (ENDED_KEPT_S if run.terminal else KEPT_S), points))
        return points_by_run

    def _keep(self, run: Run, kept: _Kept) -> None:
        """The oldest ones go first."""
        self._kept.pop(run.key, None)
        self._kept[run.key] = kept
        while len(self._kept) > MOST:
            self._kept.pop(next(iter(self._kept), run.key), None)


def points_of(line: Sequence[Step], now: float) -> list[Json]:
    """`gap`: no line leads here from the point before, because another attempt began or nothing was heard meanwhile."""
    stepped = [point for point in line if point.step is not None]
    spacing_s = (line[-1].at - line[0].at) / LINE_PARTS if line else 0.0
    return [
        {
            "at": rfc3339.text(point.at),
            "step": point.step,
            "gap": before is not None
            and (before.attempt != point.attempt or is_silence(before.at, point.at, now=now, spacing_s=spacing_s)),
        }
        for before, point in zip([None, *stepped], stepped, strict=False)
    ]


PAGE_SIZE = 50
PAGE_MAX = 1000

Live = Callable[[int], Run | None]


def nobody_live(key: int) -> Run | None:
    """A `Live` where no loop runs."""
    return None


@dataclass(frozen=True, slots=True)
class Only:
    """Events of one owner's runs, of one actor, with an id below `before`; None = any."""

    owner: str | None = None
    actor: str | None = None
    before: int | None = None


EVERY = Only()


class Queries:
    """`live(key)`: the run as the loop holds it in memory, None when it does not."""

    def __init__(self, parts: Parts, inbox: BeatInbox, loop: LoopView, live: Live = nobody_live) -> None:
        self._parts, self._inbox, self._loop, self._live = parts, inbox, loop, live
        self._sparklines = Sparklines(parts)

    def find(self, run_id: str) -> Run:
        """Raises NotFound."""
        return find_run(self._parts, run_id)

    def show(self, run_id: str) -> Json:
        """`run_id` as JSON, with the figures of its machine, the address of its files, and whose its machines are."""
        run = self.find(run_id)
        files_url = f"{self._parts.objects.url.rstrip('/')}/{runfiles.folder(run.run_id)}"
        return {
            **self.view(run),
            "telemetry": telemetry_json(self._fresh(run)),
            "files_url": files_url,
            "account": self._account(run),
        }

    def _account(self, run: Run) -> Json | None:
        """As far as it is known without asking; None where another supervisor knows it."""
        if run.provider not in self._parts.providers or self._parts.cells[run.provider] != run.cell:
            return None
        return account_view(self._parts, run.provider, self._parts.platform_of(run.provider).account_so_far())

    def view(self, run: Run, labels: Mapping[str, str] | None = None) -> Json:
        """`run` as JSON. `labels` None = those that are stored."""
        run_labels = self._parts.store.labels(run.key) if labels is None else labels
        trouble = self._loop().trouble
        return run_json(self._fresh(run), self._parts.clock.now(), run_labels, self._parts.gpu, trouble)

    def page(self, where: RunFilter, page_size: int, cursor: str | None, sparklines: bool = False) -> Json:
        """Newest first. `page_size` 0 = the default; above 1000 is taken as 1000. `sparklines`: each run with its line
        of steps. Raises CursorInvalid."""
        store, now = self._parts.store, self._parts.clock.now()
        limit = min(page_size or PAGE_SIZE, PAGE_MAX)
        before_key = None if cursor is None else cursors.read(store.secret, cursor, where)
        page = store.page(where, before_key, limit)
        following, loop = page.next_key, self._loop()
        gpu_of = self._parts.gpu
        runs = [
            run_json(self._fresh(run), now, page.labels.get(run.key, {}), gpu_of, loop.trouble) for run in page.runs
        ]
        if sparklines:
            lines = self._sparklines.of(page.runs)
            runs = [{**document, "sparkline": lines[run.key]} for document, run in zip(runs, page.runs, strict=True)]
        return {
            "runs": runs,
            "summary": {
                "counts": page.counts,
                "usd_per_h": usd(page.usd_per_h),
                "last_tick_age_s": loop.last_tick_age_s,
                "tick_late": not ticks(loop, self._parts.knobs.poll_interval_s),
            },
            "next_cursor": None if following is None else cursors.make(store.secret, following, where),
        }

    def attempts(self, run_id: str) -> Json:
        run, parts = self._fresh(self.find(run_id)), self._parts
        attempts, tries = parts.store.attempts(run.key), parts.store.tries(run.key)
        return attempts_json(run, attempts, tries, parts.clock.now(), parts.gpu)

    def events(
        self,
        run_id: str | None,
        after: int,
        limit: int,
        newest_first: bool,
        since: float | None,
        cloud: bool = False,
        only: Only = EVERY,
    ) -> Json:
        """At most `limit` events with an id above `after`. `since` looks at the newest `limit` events only and gives
        those from that time on, oldest first; `complete` is False when there were more. `cloud`: with what the cloud
        itself recorded of the run's machines; `cloud_unread` says why that could not be read."""
        run = self.find(run_id) if run_id is not None else None
        backwards = newest_first or since is not None
        history = self._parts.store.events(
            run_id, after, limit, backwards, owner=only.owner, actor=only.actor, before_id=only.before
        )
        complete = len(history) < limit
        if since is not None:
            complete = complete or history[-1].at < since
            history = [stored for stored in history if stored.at >= since]
        if backwards:
            history.reverse()
        shown, unread = [event_json(stored) for stored in history], None
        if cloud and run is not None:
            after_at = self._at(run.run_id, after, -math.inf)
            until = math.inf if only.before is None else self._at(run.run_id, only.before, math.inf)
            page = Page(history, complete, backwards, after_at, since or -math.inf, until)
            shown, unread = with_cloud(self._parts, run, page, shown)
        if newest_first:
            shown.reverse()
        return {"events": shown, "complete": complete, "cloud_unread": unread}

    def _at(self, run_id: str, event_id: int, gone: float) -> float:
        """The time of that event; `gone` where there is none such any more."""
        history = self._parts.store.events(run_id, event_id - 1, 1) if event_id > 0 else []
        return history[0].at if history and history[0].id == event_id else gone

    def _fresh(self, run: Run) -> Run:
        if run.live_attempt is None:
            return run
        live = self._live(run.key)
        if live is not None and live.pulse is not None and _newer(live.pulse, run):
            run = replace(run, pulse=live.pulse)
        pushed = self._inbox.newest(run.run_id)
        return run if pushed is None else _with_beat(run, pushed[0], self._seen_at(pushed[1]))

    def _seen_at(self, received_monotonic: float) -> float:
        clock = self._parts.clock
        return clock.now() - max(0.0, clock.monotonic() - received_monotonic)


def _newer(pulse: Pulse, run: Run) -> bool:
    attempt, kept = run.live_attempt, run.pulse
    if attempt is None or pulse.launch_id != attempt.launch_id:
        return False
    return kept is None or kept.launch_id != pulse.launch_id or pulse.sequence >= kept.sequence


def _with_beat(run: Run, beat: Beat, seen_at: float) -> Run:
    """The run with what a newer pushed beat of the same launch says; counts of polls stay the loop's."""
    pulse = run.pulse
    if pulse is None or pulse.launch_id != beat.launch_id or beat.sequence < pulse.sequence:
        return run
    return replace(
        run,
        pulse=replace(
            pulse,
            sequence=beat.sequence,
            phase=beat.phase,
            beat_at=seen_at,
            step=pulse.step if beat.step is None else beat.step,
            total=pulse.total if beat.total is None else beat.total,
            checkpoint_step=pulse.checkpoint_step if beat.checkpoint_step is None else beat.checkpoint_step,
            steps_per_s=pulse.steps_per_s if beat.steps_per_s is None else beat.steps_per_s,
            message=beat.message,
            metrics=beat.metrics or pulse.metrics,
            telemetry=beat.telemetry or pulse.telemetry,
        ),
    )


def event_json(stored: StoredEvent) -> Json:
    event = stored.event
    return {
        "id": stored.id,
        "run_id": stored.run_id or None,
        "at": rfc3339.text(stored.at),
        "generation": stored.generation,
        "attempt": stored.attempt,
        "kind": event.kind,
        "text": event.text,
        "actor": event.actor,
        "data": dict(event.data),
        "source": SUPERVISOR,
    }
