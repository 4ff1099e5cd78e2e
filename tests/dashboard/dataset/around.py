"""Everything besides the runs: machines, knowledge of zones, receivers, and the supervisor itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from supervisor.domain.callers import LOCAL, Scope
from supervisor.domain.events import Event, EventKind
from supervisor.domain.machines import Machine, MachineState, ZoneRecord
from supervisor.ports.notifier import Delivery, DeliveryResult, Endpoint, EndpointHealth, Form, Secret
from supervisor.ports.platform import PlatformEvent
from supervisor.services.access.tokens import TokenRequest, create
from tests.dashboard.dataset import logs
from tests.dashboard.dataset.house import A100, CELL, EAST, H100, L4, WEST, House
from tests.dashboard.dataset.story import DAY_S, HOUR_S, MINUTE_S, Story

MOST = 20
TOKENS = (("ops-laptop", Scope.ADMIN), ("ci-nightly", Scope.WRITE), ("notebook-anna", Scope.WRITE))
OPS, LAB, OLD = "wh-0a55e7c0ffee", "wh-1b0a7db0a7d0", "wh-2dead0beef00"


def put_tokens(house: House) -> str:
    """That of an administrator."""
    stands = house.clock.now()
    house.clock.step(-9.2 * DAY_S)
    texts = []
    for number, (name, scope) in enumerate(TOKENS):
        wish = TokenRequest(name, "local", frozenset({scope}))
        texts.append(create(house.parts, wish, LOCAL, lambda count, n=number: bytes([n + 1]) * count)["token"])
    house.clock.step(stands - house.clock.now())
    return str(texts[0])


def put_webhooks(house: House) -> None:
    """Before anything is announced."""
    begun, signed = house.now - 9 * DAY_S, (Secret("whsec_" + "c2VjcmV0" * 5 + "c2U="),)
    rows: tuple[tuple[str, str, dict[str, Any]], ...] = (
        (OPS, "https://hooks.slack.com/services/T0/B0/made-up", {"form": Form.SLACK, "note": "#training-ops"}),
        (LAB, "https://lab.example.org/spot-events", {"note": "experiment tracker of the lab"}),
        (OLD, "https://old.example.org/hook", {"note": "switched off in October <b>bold?</b>"}),
    )
    for number, (name, url, more) in enumerate(rows):
        made = Endpoint(
            **{
                "id": name, "owner": "local", "everything": True, "form": Form.STANDARD, "url": url, "secrets": signed,
                "kinds": (), "note": "", "created_at": begun + number, "created_by": "ops-laptop", **more,
            }
        )  # fmt: skip
        text = f"Webhook {name} was added by ops-laptop."
        event = Event(EventKind.WEBHOOK_ADDED, text, "ops-laptop", {"webhook_id": name})
        assert house.store.endpoints.add(made, event, MOST, begun + number)


def deliver(house: House) -> None:
    """What became of the announcements: most were taken, one receiver fails, one is off."""
    while house.store.deliveries.fan_out(house.now, 500):
        pass
    for name in (OPS, LAB, OLD):
        for number, one in enumerate(reversed(house.store.deliveries.page(name, None, 500))):
            _deliver(house, name, number, one)
    failing = EndpointHealth(LAB, house.now - 41 * MINUTE_S, house.now + 9 * MINUTE_S)
    house.store.deliveries.settle((), (failing,), house.now)
    why = "it accepted nothing for 5 days; HTTP 410 (Gone)"
    event = Event(EventKind.WEBHOOK_DISABLED, f"The webhook {OLD} is disabled: {why}.")
    house.store.endpoints.disable(OLD, why, event, house.now - 50)


def _deliver(house: House, name: str, number: int, one: Delivery) -> None:
    late = one.at > house.now - 41 * MINUTE_S
    if name == OLD:
        settled = DeliveryResult(one.id, 0, False, None, 410, "HTTP 410 (Gone)")
    elif name == LAB and late:
        settled = DeliveryResult(one.id, 0, False, house.now + 9 * MINUTE_S, 503, "HTTP 503 (Service Unavailable)")
    elif name == LAB and number % 9 == 4:
        settled = DeliveryResult(one.id, 0, False, None, None, "no response within 15 s")
    else:
        settled = DeliveryResult(one.id, 0, True, None, 204 if name == LAB else 200, "")
    house.store.deliveries.settle((settled,), (), min(house.now, one.at + 2 + number % 5))


def put_zones(house: House) -> None:
    now, out = house.now, "ZONE_RESOURCE_POOL_EXHAUSTED"
    rows = (
        (EAST[0], L4, ZoneRecord(3, now + 11 * MINUTE_S, "no_capacity", out, (now - 3 * HOUR_S,), now - 4 * MINUTE_S)),
        (EAST[1], L4, ZoneRecord(1, now - 20, "no_capacity", out, (now - 2 * HOUR_S, now - 900), now - 3 * MINUTE_S)),
        (EAST[2], L4, ZoneRecord(0, 0.0, "", "", (now - 5 * HOUR_S,), now - 3 * MINUTE_S)),
        (EAST[1], A100, ZoneRecord(0, 0.0, "", "", (now - 9, now - 4 * HOUR_S), 0.0)),
        (EAST[2], A100, ZoneRecord(0, 0.0, "", "", (now - 5.7 * HOUR_S,), 0.0)),
        (WEST, H100, ZoneRecord(2, now + 4 * MINUTE_S, "no_capacity", out, (now - 4 * HOUR_S,), now - 4 * HOUR_S)),
        *(
            (zone, H100, ZoneRecord(1, now + 8 * MINUTE_S, "quota", "Quota PREEMPTIBLE_NVIDIA_H100_GPUS is 0 of 0"))
            for zone in EAST
        ),
    )
    for zone, shape, record in rows:
        house.store.put_zone(CELL, ("gce", zone, shape, True), record)


def put_machines(house: House, stories: list[Story]) -> None:
    """The machines of the runs, a leftover, and a foreign machine."""
    own = house.store.supervisor_id
    for story in stories:
        run, attempt = story.run, story.run.attempt
        if attempt is None or attempt.gone_at is not None:
            continue
        place, state = attempt.placement, MachineState.UP if attempt.running_at else MachineState.STARTING
        house.provider.add(
            Machine(
                attempt.machine_id, attempt.machine_name, place.zone, state, own, run.run_id, attempt.launch_id,
                attempt.started_at, shape=place.shape, spot=place.spot,
            )
        )  # fmt: skip
        house.provider.write_console(attempt.machine_name, logs.console(attempt))
        house.platform.events.append(
            PlatformEvent(
                attempt.started_at - 1, "op-1", "compute.instances.insert", "insert by spot-supervisor",
                "spot-supervisor@acme-ml-prod.iam.gserviceaccount.com", attempt.machine_name, place.zone,
            )
        )  # fmt: skip
    left = Machine(
        "4481230098812234111", "spot-77aa01ff-a1-t1", EAST[0], MachineState.UP, own, "old-1", "1.1.2",
        house.now - 5 * HOUR_S, shape=L4, spot=True,
    )  # fmt: skip
    house.provider.add(left)
    foreign = replace(left, machine_id="77", name="bastion", supervisor_id="", run_id="", launch_id="", spot=False)
    house.provider.add(foreign)


def house_events(house: House) -> list[tuple[float, Event]]:
    """Announcements about the supervisor itself."""
    prices = "Prices were read anew: 6 of 6 shapes."
    leaked = "A machine that serves nobody was found: spot-77aa01ff-a1-t1 in us-east1-b. It is released in 10 min."
    return [
        (house.now - 6.5 * DAY_S, Event(EventKind.SUPERVISOR_STARTED, "The supervisor was started (0.1.0).")),
        (house.now - 20 * HOUR_S, Event(EventKind.PRICES_REFRESHED, prices)),
        (house.now - 9 * HOUR_S, Event(EventKind.PATROL, "10 runs train, 2 wait; $14.20/h. Nobody is needed.")),
        (house.now - 4 * MINUTE_S, Event(EventKind.MACHINE_LEAKED, leaked, data={"zone": EAST[0]})),
    ]
