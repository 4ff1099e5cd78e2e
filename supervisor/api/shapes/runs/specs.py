"""The shapes of the answers that tell what a run was asked for, and what its machines are started with."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from supervisor.api.shapes.answers import Answer, Placement


class RunSpecShown(Answer):
    """`spec`: as a submit takes it, fields that equal their default left out. `withheld`: JSON pointers of values that
    look like a secret and are dots here."""

    run_id: str
    generation: int
    spec: dict[str, Any]
    withheld: list[str]


class LaunchShown(Answer):
    """`launch`: what the newest request for a machine sends, in the platform's own words, made again from the run as it
    stands now; null: `why` tells. All but `run_id` null: no machine was asked for yet. `made_at_launch`: what another
    value is shown for."""

    run_id: str
    attempt: int | None
    machine: str | None
    placement: Placement | None
    requested_at: datetime | None
    launch: dict[str, Any] | None
    why: str
    made_at_launch: list[str]
