"""What is known of a run for its gates: its row, its attempts, its spec, its last beat. Nothing is asked for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from supervisor.contract.beat_telemetry import Telemetry, decode
from supervisor.domain.attempt import Attempt, Pulse
from supervisor.domain.incidents import Blocked
from supervisor.domain.machines import Meter, Placement
from supervisor.domain.profile import Profile
from supervisor.domain.run import Run
from supervisor.lifecycle.gates.places import store_of
from supervisor.lifecycle.gates.rules import Known, Skip
from supervisor.ports.traits import Traits

T = TypeVar("T")
HERE = Skip("the machine is this computer")


def skip_if(when: bool, why: Skip, value: T | None = None) -> Known[T]:
    return why if when else value


@dataclass(frozen=True, slots=True)
class Watched:
    """What is known beside the run. `spec`: as it is stored. `profile`: of its machine. `store_url`: of the object
    store. `gpus`: of a machine of its shape, in words; "" = none, None = not known. `alerted`: an endpoint gets
    announcements. `tick_age_s` None: another process ticks, or none has yet. `meter`: of its host, if that is billed
    until somebody stops it. `place`: where it runs, or would run next. `blocked`: by incidents, None = not read."""

    run: Run
    spec: Mapping[str, Any]
    attempts: Sequence[Attempt]
    traits: Traits
    profile: Profile
    store_url: str
    gpus: str | None
    alerted: bool
    tick_age_s: float | None
    tick_every_s: float
    now: float
    meter: Meter | None = None
    place: Placement | None = None
    blocked: Blocked | None = None

    @property
    def attempt(self) -> Attempt | None:
        return self.run.attempt

    @property
    def provider(self) -> str:
        """Of the newest attempt."""
        return self.run.provider if self.attempt is None else self.attempt.placement.provider

    @property
    def store(self) -> str:
        """The address of the run's files: of a folder its path."""
        return store_of(self.store_url, self.run)

    @property
    def shape(self) -> str:
        """Of the newest attempt, else the first that the run may use; "" = the first of the provider."""
        return next(iter(self.run.policy.shapes), "") if self.attempt is None else self.attempt.placement.shape

    @property
    def pulse(self) -> Pulse | None:
        """Of the newest attempt."""
        pulse, attempt = self.run.pulse, self.attempt
        return pulse if pulse is not None and attempt is not None and pulse.launch_id == attempt.launch_id else None

    @property
    def telemetry(self) -> Telemetry:
        return (decode(self.pulse.telemetry) if self.pulse is not None else None) or Telemetry()

    @property
    def here(self) -> bool:
        return self.traits.shares_computer

    @property
    def given(self) -> bool:
        """This computer, or a machine that the platform makes for the run: nobody prepares it, logs in or gives it
        back by hand."""
        return self.here or not (self.traits.irreplaceable or self.profile.host is not None)

    @property
    def has_no_gpu(self) -> bool:
        """A machine of its shape has none; False: it has some, or nobody knows."""
        host = self.profile.host
        return self.gpus == "" and not (host is not None and host.cards_of.get(self.shape))

    @property
    def claimed(self) -> bool:
        """The agent of the newest attempt has taken the baton: it reads, writes and compares in the store."""
        return self.attempt is not None and self.attempt.running_at is not None
