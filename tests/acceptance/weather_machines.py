"""Misfortunes of machines: there is no room for them, they are slow to come, they are taken away."""

from __future__ import annotations

from supervisor.domain.machines import RUN_LABEL, SUPERVISOR_LABEL
from tests.acceptance.weather import Weather, deed
from tests.cloud.cloud import ZONES

STOCK_OUTS = ("ZONE_RESOURCE_POOL_EXHAUSTED", "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "GPU_STOCKOUT_X")
PEOPLE = "alice@example.com"


# --- room -----------------------------------------------------------------------------------------------------------


@deed(3)
def stock_out(w: Weather) -> str:
    zone, code = w.chance.choice((*ZONES, "*")), w.chance.choice(STOCK_OUTS)
    seconds = w.a_while()
    w.house.compute.stock_out(zone, code=code, until=w.now + seconds)
    return f"{zone} {code} {seconds:.0f}s"


@deed()
def quota(w: Weather) -> str:
    seconds, at_once = w.a_while(longest_s=900.0), w.chance.random() < 0.5
    where, metric = w.chance.choice((("us-east1", "PREEMPTIBLE_NVIDIA_T4_GPUS"), ("*", "GPUS_ALL_REGIONS")))
    w.house.compute.quota(where, metric, at_once=at_once, until=w.now + seconds)
    return f"{where} at_once={at_once} {seconds:.0f}s"


@deed(3)
def pace(w: Weather) -> str:
    compute = w.house.compute
    compute.create_s, compute.fail_s = (w.chance.choice((2.0, 4.0, 45.0, 200.0)), w.chance.choice((2.0, 60.0, 400.0)))
    compute.delete_s, compute.stop_s = w.chance.choice((3.0, 60.0, 120.0)), w.chance.choice((3.0, 60.0))
    return f"create={compute.create_s} fail={compute.fail_s} delete={compute.delete_s}"


@deed()
def zombies(w: Weather) -> str:
    zone, compute = w.zone(), w.house.compute
    compute.zombie(zone)
    return f"{zone} {w.a_while(lambda: compute.zombie_zones.discard(zone)):.0f}s"


@deed(3)
def name_is_taken(w: Weather) -> str | None:
    """The name of the next try of a run, or of its next attempt, in every zone."""
    run = w.house.rows.find(w.run())
    if run is None or run.try_ is None or run.terminal:
        return None
    try_, stem = run.try_, run.try_.machine_name.rpartition("-a")[0]
    name = w.chance.choice((f"{stem}-a{try_.attempt}-t{try_.number + 1}", f"{stem}-a{try_.attempt + 1}-t1"))
    if name in w.house.compute.names():
        return None
    for zone in ZONES:
        w.stranger(name, zone, {SUPERVISOR_LABEL: "another", RUN_LABEL: run.run_id})
    return name


# --- ends of machines -----------------------------------------------------------------------------------------------


@deed(6)
def preempt(w: Weather) -> str | None:
    found = w.ours("RUNNING", "PROVISIONING", "STAGING")
    if not found:
        return None
    vm, notice = w.chance.choice(found), w.chance.random() < 0.6
    late_s = w.chance.choice((0.0, 0.0, 30.0, 80.0))
    w.house.compute.preempt(vm.name, vm.zone, notice=notice, record_after_s=late_s)
    return w.befalls(vm, "preempted") + f" notice={notice} late={late_s:.0f}s"


@deed()
def preempt_without_record(w: Weather) -> str | None:
    found = w.ours("RUNNING")
    if not found:
        return None
    vm = w.chance.choice(found)
    w.house.compute.preempt(vm.name, vm.zone, notice=w.chance.random() < 0.5, record=False)
    return w.befalls(vm, "taken")


@deed(2)
def preempt_newborn(w: Weather) -> str:
    zone, after_s, compute = w.zone(), w.chance.choice((1.0, 3.0, 60.0)), w.house.compute
    compute.preempt_when_created(zone, after_s)
    seconds = w.a_while(lambda: compute._fated.pop(zone, None), longest_s=600.0)  # type: ignore[arg-type,return-value]
    w.newborn[zone] = (w.now, w.now + seconds)
    return f"{zone} after={after_s}s {seconds:.0f}s"


@deed(2)
def host_error(w: Weather) -> str | None:
    found = w.ours("RUNNING")
    if not found:
        return None
    vm = w.chance.choice(found)
    w.house.compute.host_error(vm.name, vm.zone)
    return w.befalls(vm, "host_error")


@deed()
def person(w: Weather) -> str | None:
    found = w.ours("RUNNING", "PROVISIONING", "TERMINATED")
    if not found:
        return None
    vm, how = w.chance.choice(found), w.chance.choice(("delete_by", "stop_by"))
    getattr(w.house.compute, how)(PEOPLE, vm.name, vm.zone)
    return w.befalls(vm, "person") + f" {how}"


@deed()
def powers_off(w: Weather) -> str | None:
    found = w.ours("RUNNING")
    if not found:
        return None
    vm = w.chance.choice(found)
    w.house.compute.guest_powered_off(vm.name, vm.zone)
    return w.befalls(vm, "off")
