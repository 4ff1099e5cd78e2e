"""`spot show` of a machine's figures: one line with units, one more for troubles."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.cli.views.show import telemetry_lines
from tests.cli.fake_api import a_run, serve_run

GIB = 2**30


def gpu(**figures: Any) -> dict[str, Any]:
    return {"util_pct": 93, "memory_used_mib": 20582, "memory_total_mib": 23040, "temperature_c": 71, **figures}


def a_beat(**parts: Any) -> dict[str, Any]:
    disk = {"free_bytes": 80 * GIB, "total_bytes": 100 * GIB, "free_inodes": 960, "total_inodes": 1000}
    plain = {
        "gpus": [gpu()],
        "cgroup": {"memory_bytes": 12 * GIB, "memory_max_bytes": 30 * GIB, "oom_kills": 0},
        "disks": {"checkpoints": disk, "results": None, "scratch": None},
        "tree": {"rss_bytes": 11 * GIB},
    }
    return {"telemetry": {**plain, **parts}}


def test_one_line_with_units() -> None:
    assert telemetry_lines(a_beat()) == [
        "GPU 93 %, 20.1 of 22.5 GiB, 71 °C · memory 12 of 30 GiB · checkpoints disk 80 GiB free, 96 % of inodes free"
    ]


def test_several_gpus_are_shown_together() -> None:
    cards = [gpu(), gpu(util_pct=51, temperature_c=64), gpu(util_pct=None, temperature_c=None)]
    assert telemetry_lines(a_beat(gpus=cards, cgroup=None, disks={})) == [
        "3 GPUs 72 %, 60.3 of 67.5 GiB, up to 71 °C · memory 11 GiB"
    ]


def test_what_is_not_known_is_left_out() -> None:
    assert telemetry_lines({}) == telemetry_lines({"telemetry": None}) == []
    assert telemetry_lines(a_beat(gpus=[], cgroup=None, disks={}, tree=None)) == []
    assert telemetry_lines(a_beat(gpus=[{}], cgroup={"memory_bytes": 5 * GIB / 10}, disks={}, tree=None)) == [
        "GPU · memory 0.5 GiB"
    ]
    no_inodes = {"scratch": {"free_bytes": 2.34 * GIB, "total_inodes": None}}
    assert telemetry_lines(a_beat(gpus=[], cgroup=None, tree=None, disks=no_inodes)) == ["scratch disk 2.3 GiB free"]


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ({"last_xid": 79}, "GPU 0: Xid 79"),
        ({"lost": 1}, "GPU 0 is lost"),
        ({"ecc_uncorrected": 1}, "GPU 0: 1 uncorrected memory error"),
        ({"ecc_uncorrected": 3, "clock_reasons": 0x44}, "GPU 0: 3 uncorrected memory errors; GPU 0 is slowed"),
        ({"clock_reasons": 0x5, "ecc_uncorrected": 0, "lost": None}, None),
    ],
)
def test_troubles_have_their_own_line(figures: dict[str, Any], words: str | None) -> None:
    lines = telemetry_lines(a_beat(gpus=[gpu(**figures)]))
    assert len(lines) == (1 if words is None else 2)
    assert words is None or lines[1].startswith(words)


def test_kills_for_memory_are_told() -> None:
    killed = {"memory_bytes": GIB, "memory_max_bytes": None, "oom_kills": 2}
    assert telemetry_lines(a_beat(cgroup=killed))[1] == "the kernel killed 2 of its processes for lack of memory"


def test_show_prints_it_below_the_sentence(api, spot) -> None:
    serve_run(api, {**a_run(), **a_beat()})
    lines = spot("show", "digits-7").lines
    assert lines[1] == a_run()["status_text"]
    assert lines[2].startswith("GPU 93 %, 20.1 of 22.5 GiB, 71 °C · memory 12 of 30 GiB")
