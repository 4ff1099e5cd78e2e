"""What prepares a machine before a run's command: the setup of its spec, and bases that many runs share.

A step is a list of commands with a hash of all that they depend on; a machine does it once for each hash. The hash
covers too much rather than too little: a new requirements file comes with new code, another version of a package may be
a variable of the environment. A repeat that was not needed costs seconds, one that is missing breaks a training.

A base is a script with a name. Each has a version: `torch-v2` is the second one of the family `torch`, and a spec that
says `torch` gets the newest one that is ready. Where the provider makes images of disks, the script runs once, on a
machine of a run that prepares it, and `image` is the disk of that machine. Everywhere else it is a step of the setup.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from supervisor.contract.identifiers import label_value

SETUP = "setup"
BASE_LABEL = "spot-base"  # of an image
_DEPENDS_ON = ("code", "workdir", "env", "venv", "conda_env", "stage")
_VERSION = re.compile(r"(?P<family>.+)-v(?P<number>[1-9][0-9]{0,5})")
FAMILY = r"[a-z]([a-z0-9-]{0,22}[a-z0-9])?"  # with prefix, supervisor and version within the 63 characters of an image
HOUR_S = 3600.0


class BaseStatus(StrEnum):
    PREPARING = "preparing"  # its run prepares a machine
    IMAGING = "imaging"  # the machine is ready, and its disk is becoming an image
    READY = "ready"
    FAILED = "failed"  # `detail` says why; an image that exists all the same is deleted
    DELETING = "deleting"
    DELETED = "deleted"  # only its name is kept


@dataclass(frozen=True, slots=True)
class DiskImage:
    """The image of a base, as it is requested. The row with it is committed before the request. `zone`, `disk`: its
    source. `size_bytes`: as the provider stores (and bills) it; None = not known yet. `gone`: no such image exists any
    more, and none can appear."""

    name: str
    request_id: str
    zone: str
    disk: str
    requested_at: float
    size_bytes: int | None = None
    disk_gb: int = 0  # of the disk that it was made of; 0 = not known yet
    gone: bool = False


@dataclass(frozen=True, slots=True)
class ImageSeen:
    """`state`: pending | ready | failed. `ours`: it carries the labels of this very base. `size_bytes`: as it is stored
    and billed. None = not known."""

    state: str
    ours: bool
    size_bytes: int | None = None
    disk_gb: int | None = None


@dataclass(frozen=True, slots=True)
class Base:
    """Times are epoch seconds. `run_id`: the run that prepares it; "" = a script needs none. `container`: the image in
    which its script ran, as name@sha256:...; "" = none."""

    id: int
    name: str
    owner: str
    provider: str
    commands: tuple[str, ...]
    status: BaseStatus
    created_at: float
    since: float  # of the status
    run_id: str = ""
    container: str = ""
    ready_at: float | None = None
    detail: str = ""
    image: DiskImage | None = None
    version: int = 1  # of the row

    @property
    def family(self) -> str:
        return family_of(self.name)

    @property
    def has_image(self) -> bool:
        return self.status == BaseStatus.READY and self.image is not None

    @property
    def settled(self) -> bool:
        """Nothing is left to do about it by itself."""
        over = self.status == BaseStatus.FAILED and (self.image is None or self.image.gone)
        return over or self.status in (BaseStatus.READY, BaseStatus.DELETED)


def family_of(name: str) -> str:
    match = _VERSION.fullmatch(name)
    return name if match is None else match["family"]


def number_of(name: str) -> int:
    """The version; 0 = the name of a family."""
    match = _VERSION.fullmatch(name)
    return 0 if match is None else int(match["number"])


def next_name(family: str, names: Iterable[str]) -> str:
    """`names`: of all bases of this family that ever were, also of failed and deleted ones: a name is used once."""
    return f"{family}-v{max(map(number_of, names), default=0) + 1}"


def image_name(prefix: str, supervisor_id: str, name: str) -> str:
    """Deterministic: a repeated request finds what an earlier one made."""
    digest = hashlib.sha256(supervisor_id.encode()).hexdigest()[:6]
    return f"{label_value(prefix)[:16].strip('-_') or 'spot'}-base-{digest}-{name}".replace("_", "-")


def newest(bases: Iterable[Base], name: str) -> Base | None:
    """The base that a spec means by this name: itself, or the newest ready one of the family."""
    candidates = [
        base for base in bases if base.name == name or (base.family == name and base.status == BaseStatus.READY)
    ]
    return max(candidates, key=lambda base: number_of(base.name), default=None)


def steps(spec: Mapping[str, Any], image_digest: str, base: Base | None = None) -> list[dict[str, Any]]:
    """As the agent gets them. `image_digest`: of the run's image, "" = none. `base`: that this machine does not have
    yet. Empty without a setup."""
    made = [] if base is None else [_step(f"base {base.name}", list(base.commands), {"base": base.name})]
    commands = spec.get("setup") or []
    if commands:
        content = {name: spec.get(name) for name in _DEPENDS_ON}
        content |= {"image": image_digest, "secrets": sorted(spec.get("secrets") or {}), "base": spec.get("base")}
        made.append(_step(SETUP, commands, content))
    return made


def _step(name: str, commands: list[str], content: Mapping[str, Any]) -> dict[str, Any]:
    """`content`: what they depend on beside themselves."""
    text = json.dumps([commands, content], sort_keys=True, ensure_ascii=False)
    return {"name": name, "sha256": hashlib.sha256(text.encode()).hexdigest(), "commands": list(commands)}
