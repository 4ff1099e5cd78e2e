"""The settings of a Slurm cluster: its partitions, the shapes of jobs, and the folder on its shared file system."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from supervisor.domain.errors import SettingsRefused
from supervisor.domain.findings import Finding
from supervisor.providers.slurm.traits import TRAITS
from supervisor.settings.kinds import StoreForm, match, need
from supervisor.settings.values import LARGEST_COUNT, Argv, Rules, check_keys

if TYPE_CHECKING:
    from supervisor.domain.machines import Offer

STORE = StoreForm("file:///FOLDER", re.compile(r"file:///.*", re.DOTALL))
GRES = re.compile(r"[A-Za-z0-9_.:/-]{1,120}")
IMAGE = re.compile(r"(/[A-Za-z0-9._/+-]{1,500}|docker://[A-Za-z0-9][A-Za-z0-9._/:@+-]{1,500})")
RULES = Rules(
    counts={"slurm_cpus": (1, LARGEST_COUNT)},
    pairs={
        "slurm_gres": "shape=gres pairs, such as a100=gpu:a100:1,a100x2=gpu:a100:2",
        "slurm_cpus": "shape=CPUs pairs, such as a100=8,a100x2=16",
        "slurm_memory": "shape=memory pairs, such as a100=64G,a100x2=128G",
        "slurm_containers": "pairs of a shape or partition and an image file or docker:// reference, such as "
        "a100=/scratch/me/train.sif,cpu=docker://python:3.12",
    },
    texts={"slurm_gres": GRES, "slurm_memory": re.compile(r"[1-9]\d{0,8}[KMGT]?"), "slurm_containers": IMAGE},
    mixed_case=frozenset({"slurm_partitions", "slurm_containers"}),
    empty=frozenset(
        f"slurm_{name}" for name in ("time", "account", "qos", "conf", "folder", "host", "host_config", "host_keys")
    ),
)
RELAY = "relay"
STORES = ("direct", RELAY)
PLAIN_PATH = r"/[A-Za-z0-9._/-]{0,200}"  # it is a word of a remote command, which has no quotes
_PATH = r"/[^\x00-\x1f]{1,3000}"
_WORD = r"[A-Za-z0-9_.,@+-]{1,100}"
_FORMS: Mapping[str, tuple[str, str]] = {
    "slurm_folder": (_PATH, "an absolute path on the file system that all nodes share"),
    "slurm_conf": (_PATH, "the absolute path of slurm.conf"),
    "slurm_time": (
        r"(\d{1,4}-)?\d{1,6}(:\d{1,2}){0,2}",
        "a time limit of Slurm, such as 90 (minutes), 12:00:00 or 2-00",
    ),
    "slurm_python": (r"[A-Za-z0-9._/+-]{1,300}", "a program, such as python3 or /opt/conda/bin/python"),
    "slurm_host": (
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}",
        "a host name, or a name of the SSH configuration (which sets user and port)",
    ),
    "slurm_host_python": (r"[A-Za-z0-9._/~-]{1,200}", "a program, such as python3 or /opt/conda/bin/python"),
    "slurm_apptainer": (r"[A-Za-z0-9._/+-]{1,300}", "a program, such as apptainer or /opt/apptainer/bin/apptainer"),
    "slurm_account": (_WORD, "the name of an account"),
    "slurm_qos": (_WORD, "the name of a QOS"),
}


@dataclass(frozen=True, kw_only=True)
class SlurmSettings:
    """`slurm_folder`: of the machines, under the same path on every node. `slurm_partitions`: in the order of
    preference; each is a zone. `slurm_gres`, `slurm_cpus`, `slurm_memory`: of one job, by shape; absent = the
    cluster's default. `slurm_memory_grows`: a fifth more after each attempt that ran out of it. `slurm_time`: the time
    limit of a job; empty = machine_max_s of the run, within the partition's. `slurm_python`: 3.8 or newer, on the
    compute nodes, after the modules are loaded. `slurm_conf`: empty = Slurm's own way to find it. `slurm_host`: the
    login node; empty = this computer is a part of the cluster. `slurm_host_python`: 3.8 or newer, there.
    `slurm_host_config`, `slurm_host_keys`: the SSH configuration and the known host keys; empty = those of the user.
    `slurm_store`: the nodes open the object store themselves (direct), or the supervisor copies it through the login
    node (relay). `slurm_containers`: shape or partition -> the image that the agent and the training run in, by the
    program `slurm_apptainer`; the shape counts first, absent = none."""

    slurm_folder: str = ""
    slurm_partitions: tuple[str, ...] = ()
    slurm_shapes: tuple[str, ...] = ("cpu",)
    slurm_gres: Mapping[str, str] = field(default_factory=dict)
    slurm_cpus: Mapping[str, int] = field(default_factory=dict)
    slurm_memory: Mapping[str, str] = field(default_factory=dict)
    slurm_memory_grows: bool = False
    slurm_time: str = ""
    slurm_account: str = ""
    slurm_qos: str = ""
    slurm_modules: Argv = ()
    slurm_python: str = "python3"
    slurm_conf: str = ""
    slurm_host: str = ""
    slurm_host_python: str = "python3"
    slurm_host_config: str = ""
    slurm_host_keys: str = ""
    slurm_store: str = "direct"
    slurm_containers: Mapping[str, str] = field(default_factory=dict)
    slurm_apptainer: str = "apptainer"


def check(s: SlurmSettings) -> None:
    """Raises SettingsRefused."""
    for name in ("slurm_gres", "slurm_cpus", "slurm_memory"):
        check_keys(name, getattr(s, name), "slurm_shapes", s.slurm_shapes)
    check_keys("slurm_containers", s.slurm_containers, "a shape or partition", (*s.slurm_shapes, *s.slurm_partitions))
    match(s, _FORMS)
    if s.slurm_store not in STORES:
        expected = "direct (the nodes open the object store) or relay (the supervisor copies it)"
        raise SettingsRefused(f"slurm_store = {s.slurm_store}: expected {expected}", {"name": "slurm_store"})
    if s.slurm_store == RELAY and not s.slurm_host:
        text = "slurm_store = relay needs slurm_host: on the cluster itself use a folder that all nodes share"
        raise SettingsRefused(text, {"name": "slurm_store"})
    for module in s.slurm_modules:
        if not re.fullmatch(r"[A-Za-z0-9_.+/-]{1,100}", module) or module.startswith("-"):
            text = f"slurm_modules = {module}: expected names of modules, such as cuda/12.4"
            raise SettingsRefused(text, {"name": "slurm_modules"})
    needs_plain = "slurm_host" if s.slurm_host else "slurm_containers" if s.slurm_containers else ""
    if needs_plain and not re.fullmatch(PLAIN_PATH, s.slurm_folder or "/"):
        expected = "expected letters, digits, dots, hyphens and slashes"
        text = f"slurm_folder = {s.slurm_folder}: with {needs_plain} {expected}"
        raise SettingsRefused(text, {"name": "slurm_folder"})


def complete(s: SlurmSettings) -> None:
    """Raises SettingsRefused."""
    need(TRAITS.kind, s, {"slurm_folder": "/scratch/me/spot", "slurm_partitions": "scavenger,gpu"})


def offers(name: str, s: SlurmSettings) -> tuple[Offer, ...]:
    """Every partition of a shape, then the next shape. Whether a partition preempts is the cluster's decision, so each
    serves both. A cluster uses up walltime and fairshare; it bills no dollars."""
    from supervisor.domain.machines import Offer, Placement

    return tuple(
        Offer(Placement(name, TRAITS.kind, partition, shape, spot), 0.0, 0.0)
        for spot in (True, False)
        for shape in s.slurm_shapes
        for partition in s.slurm_partitions
    )


def meaning(s: SlurmSettings, store_url: str, image: str) -> tuple[str, tuple[Finding, ...]]:
    """The settings in effect, in words."""
    where = f" of {s.slurm_host}" if s.slurm_host else ""
    text = f"machines are jobs in {', '.join(s.slurm_partitions)}, with their folders in {s.slurm_folder}{where}"
    relayed = ", from and to folders there" if s.slurm_store == RELAY else ""
    return f"{text}; objects in {store_url}{relayed}", ()


def image_of(s: SlurmSettings, shape: str, partition: str) -> str:
    """ "" = none: the commands run on the node as it is."""
    return s.slurm_containers.get(shape) or s.slurm_containers.get(partition, "")


def gpu_words(gres: str) -> tuple[int, str]:
    """(how many GPUs, their type in words or "") of a --gres text such as `gpu:a100:2,tmp:10G`."""
    for part in gres.split(","):
        name, *rest = part.removeprefix("gres/").split(":")
        if name == "gpu":
            count = int(rest[-1]) if rest and rest[-1].isdigit() else 1
            kind = rest[0] if rest and not rest[0].isdigit() else ""
            return count, kind
    return 0, ""
