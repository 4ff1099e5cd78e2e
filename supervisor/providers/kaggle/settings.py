"""The settings of a Kaggle account: its token, the accelerators of its notebooks, and how long a session may last."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from supervisor.domain.errors import SettingsRefused
from supervisor.domain.findings import Finding
from supervisor.providers.kaggle.traits import TRAITS
from supervisor.settings.kinds import StoreForm, match, need
from supervisor.settings.values import Rules, check_keys

if TYPE_CHECKING:
    from supervisor.domain.machines import Offer

GPU, TPU, CPU = "gpu", "tpu", "cpu"
REGION = "kaggle"
SHORTEST_S, LONGEST_S = 900.0, 12 * 3600.0


class Accelerator(NamedTuple):
    """`machine_shape`: Kaggle's name, "" = none. `zone`: its weekly hours. `cards`: of one session, 0 = not
    known, or no GPU. `model`: a part of the name of each card, "" = no GPU, or not known."""

    machine_shape: str
    zone: str
    cards: int
    model: str

    @property
    def words(self) -> str:
        """ "" = no GPU."""
        if self.zone != GPU:
            return ""
        name = self.model or "GPU"
        return f"{self.cards} × {name}" if self.cards > 1 else name


# Kaggle/kaggle-cli, its page of kernels: "Accelerators available as of Sep 2026". It gives a number of cards for T4
# only, and says that some of them are for participants of competitions, or for the staff.
ACCELERATORS: Mapping[str, Accelerator] = {
    "t4": Accelerator("NvidiaTeslaT4", GPU, 1, "T4"),
    "t4x2": Accelerator("NvidiaTeslaT4Highmem", GPU, 2, "T4"),
    "l4": Accelerator("NvidiaL4X1", GPU, 1, "L4"),
    "l4s": Accelerator("NvidiaL4", GPU, 0, "L4"),
    "a100": Accelerator("NvidiaTeslaA100", GPU, 0, "A100"),
    "h100": Accelerator("NvidiaH100", GPU, 0, "H100"),
    "rtxpro6000": Accelerator("NvidiaRtxPro6000", GPU, 0, "RTX PRO 6000"),
    "tpuv5e8": Accelerator("TpuV5E8", TPU, 0, ""),
    "tpuv6e8": Accelerator("TpuV6E8", TPU, 0, ""),
    "cpu": Accelerator("", CPU, 0, ""),
}
# The client's own list of retired names: a session with one of them runs on something else, or on no accelerator.
RETIRED = frozenset({"nvidiateslap100", "tpuv38", "tpu1vmv38", "tpuv232", "tpuv2256"})
STORE = StoreForm("file:///FOLDER, or a bucket", re.compile(r"(file:/|gs:)//.+", re.DOTALL))
RULES = Rules(
    counts={"kaggle_sessions": (1, 100)},
    pairs={"kaggle_accelerators": "shape=name pairs, such as l4x4=NvidiaL4"},
    texts={"kaggle_accelerators": re.compile(r"[A-Za-z0-9]{2,40}")},
    empty=frozenset({"kaggle_user", "kaggle_image"}),
)
_FORMS: Mapping[str, tuple[str, str]] = {
    "kaggle_user": (r"[A-Za-z0-9_-]{1,50}", "the user name that is in the address of your profile"),
    "kaggle_token": (
        r"(env:[A-Za-z_][A-Za-z0-9_]*|file:/.+)",
        "env:NAME or file:/PATH of a file with the token, not the token itself",
    ),
    "kaggle_image": (r"[a-z0-9._/-]{1,200}@sha256:[0-9a-f]{64}", "an image of Kaggle's with its digest"),
}


@dataclass(frozen=True, kw_only=True)
class KaggleSettings:
    """`kaggle_token`: a reference to the API token, or to the content of kaggle.json. `kaggle_shapes`: in the order of
    preference. `kaggle_accelerators`: Kaggle's names of further shapes. `kaggle_session_cap_s`: what each session asks
    for; its agent leaves before. `kaggle_sessions`: of ours at once in each zone. `kaggle_image`: "" = Kaggle's newest
    one. `kaggle_internet` False: sessions have none, and each leaves its work as the output of its version."""

    kaggle_user: str = ""
    kaggle_token: str = "env:KAGGLE_API_TOKEN"  # noqa: S105 - a reference
    kaggle_shapes: tuple[str, ...] = ("t4",)
    kaggle_accelerators: Mapping[str, str] = field(default_factory=dict)
    kaggle_session_cap_s: float = 30_600.0
    kaggle_sessions: int = 2
    kaggle_image: str = ""
    kaggle_internet: bool = True


def accelerator_of(s: KaggleSettings, shape: str) -> Accelerator | None:
    """None = no such shape."""
    name = s.kaggle_accelerators.get(shape)
    if name is None:
        return ACCELERATORS.get(shape)
    return Accelerator(name, TPU if name.lower().startswith("tpu") else GPU, 0, "")


def check(s: KaggleSettings) -> None:
    """Raises SettingsRefused."""
    match(s, _FORMS)
    check_keys("kaggle_accelerators", s.kaggle_accelerators, "kaggle_shapes", s.kaggle_shapes)
    for shape in s.kaggle_shapes:
        if accelerator_of(s, shape) is None:
            shapes = ", ".join(ACCELERATORS)
            text = f"kaggle_shapes names {shape}: expected {shapes}, or a shape with its name in kaggle_accelerators"
            raise SettingsRefused(text, {"name": "kaggle_shapes"})
    for shape, name in s.kaggle_accelerators.items():
        if name.lower() in RETIRED:
            text = f"kaggle_accelerators: {shape} = {name} is retired: its sessions would run on something else"
            raise SettingsRefused(text, {"name": "kaggle_accelerators"})
    if not SHORTEST_S <= s.kaggle_session_cap_s <= LONGEST_S:
        text = f"kaggle_session_cap_s = {s.kaggle_session_cap_s:g}: expected {SHORTEST_S:g} to {LONGEST_S:g} seconds"
        raise SettingsRefused(text, {"name": "kaggle_session_cap_s"})


def complete(s: KaggleSettings) -> None:
    """Raises SettingsRefused."""
    need(TRAITS.kind, s, {"kaggle_user": "my-name"})


def offers(name: str, s: KaggleSettings) -> tuple[Offer, ...]:
    """One for each shape; its zone is the kind of its weekly hours. They cost nothing. Nothing is told from on-demand:
    each serves both kinds of requests."""
    from supervisor.domain.machines import Offer, Placement

    each = [(shape, accelerator) for shape in s.kaggle_shapes if (accelerator := accelerator_of(s, shape))]
    return tuple(
        Offer(Placement(name, REGION, accelerator.zone, shape, spot), 0.0, 0.0)
        for spot in (True, False)
        for shape, accelerator in each
    )


def meaning(s: KaggleSettings, store_url: str, image: str) -> tuple[str, tuple[Finding, ...]]:
    """The settings in effect, in words."""
    hours = s.kaggle_session_cap_s / 3600
    way = "through the supervisor" if s.kaggle_internet else "through the output of each version, at its end"
    text = (
        f"machines are notebook sessions of {s.kaggle_user} on Kaggle with {', '.join(s.kaggle_shapes)}, of "
        f"{hours:g} h at most; objects in {store_url}, {way}"
    )
    return text, ()
