"""What an environment file of the older runner says of Google Cloud, where several of its keys make one setting.

A file that names PROJECT is one of a supervisor on Google Cloud: `provider` becomes gce, and what the file leaves out
of the machine has that runner's own defaults, because its scripts filled them in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

PROJECT = "PROJECT"
OLD_ZONE, OLD_FALLBACKS = "us-east1-c", "us-east1-b us-east1-c us-east1-d"
OLD_MACHINE, OLD_GPU = "n1-standard-8", "nvidia-tesla-t4"
# Machine types of these series bring their cards: GPU_TYPE only repeats it.
_OWN_CARDS = re.compile(r"(a[2-9]|g[2-9])[a-z0-9]*-")
_TRUE = ("1", "true", "yes", "on")


def bucket_url(text: str) -> str:
    """`my-bucket`, `gs://my-bucket` and `gs://my-bucket/` mean the same."""
    return "gs://" + text.strip().removeprefix("gs://").strip("/")


def disk_gb(text: str) -> int:
    """`100`, `100GB`. ValueError for anything else."""
    return int(re.sub(r"(?i)gi?b?$", "", text.strip()))


def derived(given: Mapping[str, str]) -> list[tuple[str, object, str]]:
    """(setting, value, keys) of a file that names PROJECT."""
    return [
        ("provider", "gce", PROJECT),
        ("gce_zones", _zones(given), "ZONE, FALLBACK_ZONES"),
        ("gce_shapes", _shapes(given), "MACHINE_TYPE, GPU_TYPE"),
        *_disk(given),
    ]


def _zones(given: Mapping[str, str]) -> list[str]:
    first = given.get("ZONE") or OLD_ZONE
    # The older default belongs to the older first zone; a file of another region must not be sent there.
    others = given.get("FALLBACK_ZONES") or (OLD_FALLBACKS if first == OLD_ZONE else "")
    return list(dict.fromkeys([first, *others.replace(",", " ").split()]))


def _shapes(given: Mapping[str, str]) -> dict[str, str]:
    machine = given.get("MACHINE_TYPE") or OLD_MACHINE
    gpu = given.get("GPU_TYPE") or OLD_GPU
    name = gpu.removeprefix("nvidia-").removeprefix("tesla-")
    if _OWN_CARDS.match(machine):
        return {machine if given.get("GPU_TYPE") is None else name: machine}
    return {name: f"{machine}+1x{gpu}"}


def _disk(given: Mapping[str, str]) -> list[tuple[str, object, str]]:
    """Without a name the older runner made a disk for each run."""
    if given.get("DATA_DISK_ENABLED", "").lower() not in _TRUE:
        return []
    name = given.get("DATA_DISK_NAME")
    found: list[tuple[str, object, str]] = [("gce_data_disk", "new", "DATA_DISK_ENABLED")]
    if name:
        found = [
            ("gce_data_disk", name, "DATA_DISK_NAME"),
            ("gce_data_disk_zone", given.get("ZONE") or OLD_ZONE, "ZONE"),
        ]
    elif given.get("DATA_DISK_SIZE_GB"):
        found.append(("gce_data_disk_gb", disk_gb(given["DATA_DISK_SIZE_GB"]), "DATA_DISK_SIZE_GB"))
    if not name and given.get("DATA_DISK_TYPE"):
        found.append(("gce_data_disk_type", given["DATA_DISK_TYPE"], "DATA_DISK_TYPE"))
    for key, setting in (
        ("DATA_DISK_MOUNT_PATH", "gce_data_disk_mount"),
        ("DATA_DISK_FS_TYPE", "gce_data_disk_fs"),
    ):
        if given.get(key):
            found.append((setting, given[key], key))
    return found
