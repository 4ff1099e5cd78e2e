"""The machines that there are now, and the release of those that serve nobody.

The shapes of what is told of the GPUs of the supervisor's own computer.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from supervisor.api.shapes.answers import GPU, Answer
from supervisor.api.shapes.bodies import NoParameters
from supervisor.api.shapes.run_spec import Strict


class GpuBackBody(Strict):
    """`gpu`: the UUID, as GET /v1/gpus tells it."""

    gpu: Annotated[str, Field(min_length=1, max_length=100)]


class SetAside(Answer):
    """`why`: what the driver said of this GPU; `machine` and `run_id`: where that was seen."""

    why: str
    machine: str
    run_id: str
    since: datetime


class GpuShown(Answer):
    """`ours`: a machine of this supervisor has it. `state`: the same in words, which follow "GPU 0 is"."""

    uuid: str
    index: int | None = Field(description="null: the driver does not show it now")
    name: str | None = Field(description="null: not known")
    holder: str | None = Field(description="who has it, in words; null: nobody")
    ours: bool
    set_aside: SetAside | None = Field(description="null: runs may have it when nobody else does")
    state: str


class GpuList(Answer):
    gpus: list[GpuShown]


class GpuBack(Answer):
    gpu: str


class MachineParameters(NoParameters):
    all: Annotated[bool, Field(description="also machines that are not this supervisor's")] = False


class CollectBody(Strict):
    """`dry_run`: tell what would be released, and release nothing. It must be said either way."""

    dry_run: bool


class Account(Answer):
    """Whose machines these are. `name`, `number`: the project on Google Cloud; null = not told."""

    provider: str
    name: str | None
    number: str | None
    console_url: str | None


class SeenMachine(Answer):
    """`use`: serves, retiring, kept, orphan (ours, and it serves nobody), elsewhere or foreign; `why` says it in words.
    `usd_per_h`: what it costs now, null = unknown. `shape`, `spot`, `created_at`: null = not told. `serves`: the run
    that needs it now. `attempt`: of that run, null where no run that is not over claims the machine."""

    machine: str
    machine_id: str
    provider: str
    zone: str
    state: str
    detail: str
    shape: str | None
    gpu: str | None = Field(description=GPU)
    spot: bool | None
    usd_per_h: float | None
    created_at: str | None
    age_s: float | None
    ours: bool
    run_id: str | None
    launch_id: str | None
    attempt: int | None
    use: str
    why: str
    serves: str | None
    kept_until: str | None


class MachineSums(Answer):
    """Of ours: `unpriced` are left out of `usd_per_h`."""

    ours: int
    foreign: int
    usd_per_h: float
    unpriced: int


class ExpectedRun(Answer):
    """A run that is not over, or whose machines are not all gone. `usd_per_h`: null = a price is unknown. `kept`:
    somebody still needs a machine of it."""

    run_id: str
    status: str
    usd_per_h: float | None
    machines: list[str]
    kept: bool


class MissingMachine(Answer):
    """A run thinks that it has it, and its zone was read without it."""

    run_id: str
    machine: str
    zone: str


class MachineList(Answer):
    """`unread_zones`: nothing is known of the machines there."""

    account: Account
    machines: list[SeenMachine]
    summary: MachineSums
    unread_zones: list[str]
    runs: list[ExpectedRun]
    missing: list[MissingMachine]


class Collected(Answer):
    """`released`: asked for and accepted; with `dry_run` what would be. `left`: of ours, not released now. `serving`:
    how many are in use."""

    dry_run: bool
    account: Account
    released: list[SeenMachine]
    left: list[SeenMachine]
    foreign: int
    serving: int
    usd_per_h: float
    unpriced: int
    unread_zones: list[str]
