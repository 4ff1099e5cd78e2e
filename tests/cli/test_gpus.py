"""A place is read as zone and GPU; the machine type stands where the table has no room for it, or no GPU is known."""

from __future__ import annotations

import pytest

from supervisor.cli.machines.machines import machine_lines
from supervisor.cli.views.runs import where
from tests.cli.fake_api import FIRST_ATTEMPT, PLACEMENT, SECOND_ATTEMPT, a_page, a_run, serve_run
from tests.cli.fake_machines import a_machine

L4 = {**PLACEMENT, "zone": "us-east1-d", "shape": "g2-standard-8", "gpu": "L4"}
LARGE = {**L4, "shape": "a2-ultragpu-8g", "gpu": "8 × A100 80GB", "spot": False}


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (L4, "us-east1-d  L4"),
        (LARGE, "us-east1-d  8 × A100 80GB  on-demand"),
        ({**L4, "gpu": None}, "us-east1-d  g2-standard-8"),
        ({name: value for name, value in L4.items() if name != "gpu"}, "us-east1-d  g2-standard-8"),  # an old server
        ({**L4, "gpu": None, "shape": ""}, "us-east1-d"),
        ({**L4, "gpu": "L4\x1b[31m"}, "us-east1-d  L4"),
    ],
)  # fmt: skip
def test_where(place, text) -> None:
    assert where(place) == text


def test_a_list_names_the_gpu_and_not_the_machine_type(api, spot) -> None:
    api.respond("GET", "/v1/runs", a_page(a_run(placement=L4)))
    (line,) = (line for line in spot("ls").lines if line.startswith("digits-7"))
    assert "us-east1-d  L4  " in line
    assert "g2-standard-8" not in line


def test_one_run_names_both(api, spot) -> None:
    attempts = [FIRST_ATTEMPT, {**SECOND_ATTEMPT, "placement": L4}]
    serve_run(api, a_run(placement=L4))
    api.respond("GET", "/v1/runs/digits-7/attempts", {"run_id": "digits-7", "attempts": attempts, "next": None})
    lines = spot("show", "digits-7").lines
    assert any("us-east1-d  L4" in line for line in lines)
    (machines_line,) = (line for line in lines if line.startswith("machines: "))
    assert machines_line.startswith("machines: 1 spot-ab-a1-t1 in local-a")  # its shape stands in the table
    assert machines_line.endswith("2 spot-ab-a1-t1 (g2-standard-8) in us-east1-d")


def test_machines_and_zones(api, spot) -> None:
    assert "us-east1-c  T4" in machine_lines([a_machine(gpu="T4")])[1]
    zone = {
        **L4, "price_usd_per_h": 0.35, "state": "unknown", "machines": 0, "failures": 0, "cause": None, "detail": None,
        "cool_until": None, "preemptions": 0, "last_stock_out_at": None, "last_preemption_at": None,
    }  # fmt: skip
    api.respond("GET", "/v1/zones", {"zones": [zone, {**zone, **LARGE}], "window_s": 21600.0})
    first, second = spot("zones").lines[1:3]
    assert "us-east1-d  g2-standard-8 (L4)  " in first
    assert "a2-ultragpu-8g (8 × A100 80GB)  on-demand" in second
