"""Changing labels, limits and zones of a run: one transaction, guarded by the row; the next decision reads it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from supervisor.domain.callers import Caller
from supervisor.domain.errors import InvalidRequest, Unavailable, UnknownPrice, VersionDiffers
from supervisor.domain.events import Event
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.ports.store import Change
from supervisor.services.runs import altering, changing
from supervisor.services.runs.altering import Altered, alter, merged
from tests.services.bed import COMMAND, Bed

OPS = Caller(actor="ops", request_id="r-1")


def change(bed: Bed, patch: dict[str, Any], versions: frozenset[int] | None = None) -> Altered:
    return alter(bed.parts, "digits-7", patch, versions, OPS)


def test_merge_patches() -> None:
    spec = {**COMMAND, "labels": {"a": "1"}, "limits": {"max_attempts": 3}, "zones": ["x"]}
    assert merged(spec, {}) == spec
    assert merged(spec, {"labels": {"b": "2"}})["labels"] == {"a": "1", "b": "2"}
    assert merged(spec, {"labels": {"a": None}, "limits": None, "zones": []}) == COMMAND
    assert merged(COMMAND, {"labels": None, "limits": {"deadline": None}, "zones": None}) == COMMAND


def test_unchanged_fields_keep_their_old_default(bed: Bed) -> None:
    bed.submit("digits-7")
    had, defaults = bed.run("digits-7").policy.limits, bed.parts.defaults
    newer = replace(defaults.limits, max_attempts=had.max_attempts + 5)
    parts = replace(bed.parts, defaults=replace(defaults, limits=newer))
    alter(parts, "digits-7", {"limits": {"budget_usd": 2.0}}, None, OPS)
    assert bed.run("digits-7").policy.limits == replace(had, budget_usd=2.0)
    alter(parts, "digits-7", {"limits": {"max_attempts": 3, "budget_usd": None}}, None, OPS)
    alter(parts, "digits-7", {"limits": None}, None, OPS)
    assert bed.run("digits-7").policy.limits.max_attempts == had.max_attempts + 5


def test_row_spec_labels_and_event_are_of_one_transaction(any_bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    any_bed.submit("digits-7")
    patch = {"labels": {"a": "1"}, "limits": {"budget_usd": 2.0}, "zones": ["local-b"]}
    before = any_bed.run("digits-7")
    begin = any_bed.store.begin

    @contextmanager
    def torn(now: float) -> Any:
        with begin(now) as tx:
            monkeypatch.setattr(tx, "put_spec", _fails)
            yield tx

    monkeypatch.setattr(any_bed.store, "begin", torn)
    with pytest.raises(OSError, match="torn"):
        change(any_bed, patch)
    assert (any_bed.run("digits-7"), any_bed.events("digits-7")) == (before, ["submitted"])
    monkeypatch.setattr(any_bed.store, "begin", begin)
    done = change(any_bed, patch)
    assert done.run == any_bed.run("digits-7")
    assert done.run.version == before.version + 1
    assert any_bed.store.labels(before.key) == {"a": "1"}
    assert any_bed.store.spec(before.key) == {**COMMAND, **patch}
    assert any_bed.events("digits-7") == ["submitted", "changed"]
    assert any_bed.store.events("digits-7", 0, 9)[-1].event.actor == "ops"


def _fails(*_: object) -> None:
    raise OSError("torn")


def test_a_row_that_changes_meanwhile_is_checked_again(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    check_races(bed, monkeypatch)


def test_a_change_that_overwrites_would_be_seen(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant: the row is written whatever version it has."""

    def overwriting(before: Run, after: Run, events: tuple[Event, ...]) -> Change:
        return Change(bed.run(before.run_id), after, events)

    monkeypatch.setattr(changing, "Change", overwriting)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check_races(bed, monkeypatch)


def check_races(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    bed.submit("digits-7")
    version = bed.run("digits-7").version
    _meanwhile(bed, monkeypatch, lambda: bed.change("digits-7", hold="moved"), times=1)
    done = change(bed, {"limits": {"budget_usd": 2.0}})
    assert (done.run.hold, done.run.policy.limits.budget_usd) == ("moved", 2.0)
    _meanwhile(bed, monkeypatch, lambda: bed.change("digits-7", hold="again"), times=1)
    with pytest.raises(VersionDiffers):
        change(bed, {"limits": {"budget_usd": 3.0}}, frozenset({version + 2}))
    _meanwhile(bed, monkeypatch, lambda: bed.change("digits-7", hold="always"), times=99)
    with pytest.raises(Unavailable):
        change(bed, {"limits": {"budget_usd": 3.0}})
    assert bed.events("digits-7") == ["submitted", "changed"]


def _meanwhile(bed: Bed, monkeypatch: pytest.MonkeyPatch, action: Callable[[], object], times: int) -> None:
    """`action` runs after each of the next checks, before the update is written."""
    capped_policy, left = altering.capped_policy, [action] * times

    def checked(*args: Any) -> Any:
        policy = capped_policy(*args)
        if left:
            left.pop()()
        return policy

    monkeypatch.setattr(altering, "capped_policy", checked)


def test_every_rule_of_a_submit_holds(bed: Bed) -> None:
    spec = {**COMMAND, "limits": {"deadline": "2100-01-01T00:00:00Z"}}
    spec["escalate"] = {"on_demand_before_deadline_s": 60.0}
    bed.submit("digits-7", spec)
    with pytest.raises(InvalidRequest, match="needs limits"):
        change(bed, {"limits": {"deadline": None}})
    bed.provider.offered = tuple(offer.__class__(offer.placement, None, None) for offer in bed.provider.offers())
    with pytest.raises(UnknownPrice):
        change(bed, {"limits": {"budget_usd": 5.0}})
    assert bed.events("digits-7") == ["submitted"]


def test_a_waiting_run_asks_other_zones_at_once_and_a_recovering_one_keeps_its_pause(bed: Bed) -> None:
    bed.submit("digits-7", {**COMMAND, "zones": ["local-a"]})
    later = bed.clock.now() + 900
    bed.change("digits-7", status=Status.WAITING, next_at=later)
    assert change(bed, {"limits": {"budget_usd": 5.0}}).run.next_at == later
    sets = bed.wake.sets
    assert change(bed, {"zones": ["local-a", "local-b"]}).run.next_at is None
    assert bed.wake.sets == sets + 1
    bed.change("digits-7", status=Status.RECOVERING, next_at=later)
    assert change(bed, {"zones": ["local-c"]}).run.next_at == later


def test_a_limit_that_was_passed_before_gets_no_warning(bed: Bed) -> None:
    bed.submit("digits-7", {**COMMAND, "limits": {"max_runtime_s": 10.0}})
    bed.train("digits-7")
    assert change(bed, {"limits": {"budget_usd": 500.0}}).warnings == ()
    assert "$0.00 spent" in change(bed, {"limits": {"budget_usd": 0.0001, "max_runtime_s": None}}).warnings[0]
    run = bed.run("digits-7")
    bed.change("digits-7", counters=run.counters.__class__(counted=4))
    assert "4 attempts have counted" in change(bed, {"limits": {"max_attempts": 2, "budget_usd": 9.0}}).warnings[0]
