"""The shapes of what is told of the GPUs of the supervisor's own computer."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from supervisor.api.shapes.answers import Answer
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
