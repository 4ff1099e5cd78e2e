"""The same of tokens, webhooks, and changes of a live run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from supervisor.api.streams.listener import framed, opening
from supervisor.domain.events import Event, EventKind
from supervisor.domain.incidents import Common, Incident, Member, Signature
from supervisor.domain.machines import ZoneRecord
from supervisor.lifecycle.incidents import opened_event
from supervisor.ports.notifier import DeliveryResult
from tests.api.recorder import Asking
from tests.fakes.courier import FakeCourier
from tests.services.bed import COMMAND, Bed
from tests.services.test_series import kept
from tests.services.test_zones import learn

RUN = "/v1/runs/digits-7"
COMPLETED = Event(EventKind.COMPLETED, "digits-7 is completed: 3 files are verified.")


def tokens(bed: Bed, ask: Asking) -> None:
    made = ask("POST", "/v1/tokens", {"name": "ci", "owner": "vision", "scopes": ["runs:read", "runs:write"]})
    ask("POST", "/v1/tokens", {"name": "ci", "scopes": ["runs:all"]})
    ask("GET", "/v1/tokens")
    ask("GET", "/v1/tokens?owner=vision")
    ask("DELETE", f"/v1/tokens/{made.json()['token_id']}")
    ask("DELETE", "/v1/tokens/tok_0")


def changes(bed: Bed, ask: Asking) -> None:
    bed.submit("digits-7", {**COMMAND, "limits": {"budget_usd": 25.0}})
    change = {"labels": {"team": "vision"}, "limits": {"budget_usd": 50.0}, "zones": ["local-b"]}
    ask("PATCH", RUN, change)
    ask("PATCH", RUN, change, headers={"If-Match": ask("GET", RUN).headers["etag"]})


def many(bed: Bed, ask: Asking) -> None:
    for name in ("digits-7", "digits-8"):
        bed.submit(name, {**COMMAND, "labels": {"team": "vision"}})
    bed.submit("digits-9")
    for what in ("stop", "resume"):
        ask("POST", f"/v1/runs/{what}?label=team=vision", {"dry_run": True, "expect": 3})
        ask("POST", f"/v1/runs/{what}?label=team=vision", {"expect": 2})


def webhooks(bed: Bed, ask: Asking) -> None:
    ask = ask.of(replace(bed.services, parts=replace(bed.parts, courier=FakeCourier())))
    wish = {"url": "https://hooks.example.com/spot", "kinds": ["preempted", "completed"], "note": "the team's page"}
    hook = f"/v1/webhooks/{ask('POST', '/v1/webhooks', wish).json()['webhook_id']}"
    ask("POST", "/v1/webhooks", {"url": "https://inside.example.com/spot"})
    for path in ("", "/deliveries"):
        ask("GET", f"/v1/webhooks/wh-0{path}")
    bed.submit("digits-7")
    bed.store.add_events(bed.run("digits-7").key, [COMPLETED], bed.clock.now())
    bed.store.deliveries.fan_out(bed.clock.now(), 500)
    ask("GET", "/v1/webhooks")
    ask("GET", "/v1/webhooks?owner=vision")
    ask("GET", hook)
    [delivery] = ask("GET", f"{hook}/deliveries?state=pending").json()["deliveries"]
    taken = DeliveryResult(delivery["delivery_id"], 0, True, None, 204, "")
    bed.store.deliveries.settle([taken], [], bed.clock.now())
    ask("PATCH", hook, {"kinds": ["completed"]})
    ask("PATCH", hook, {"kinds": ["complete"]})
    for path in ("/test", "/rotate", f"/deliveries/{delivery['delivery_id']}/replay"):
        ask("POST", hook + path)
        ask("POST", f"/v1/webhooks/wh-0{path}")
    ask("POST", f"{hook}/replay", {"since": "2026-01-01T00:00:00Z"})
    ask("POST", f"{hook}/replay", {"since": "yesterday"})
    ask("DELETE", hook)
    ask("DELETE", hook)


def incidents(bed: Bed, ask: Asking) -> None:
    now = bed.clock.now()
    lease = bed.store.take_lease("local cell", "test", 3600.0, bed.clock.monotonic())
    assert lease is not None
    common = (Signature(Common.ERROR, "KeyError: 'loss'"), Signature(Common.CODE, "c" * 64))
    members = tuple(Member(f"digits-{n}", "local", 1, now - 60 * n, "user_error", at_once=True) for n in (9, 8, 7))
    bed.store.incidents.write(Incident(0, common, members, now, now - 420, blocks=True), opened_event, lease, now)
    ask("GET", "/v1/incidents")
    ask("GET", "/v1/incidents?owner=vision")
    ask("POST", "/v1/incidents/1/close", {"reason": "the column is renamed in the data"})
    ask("POST", "/v1/incidents/1/close", {"reason": "the column is renamed in the data"})


def bases(bed: Bed, ask: Asking) -> None:
    ask("POST", "/v1/bases", {"name": "torch", "script": "pip install torch timm"})
    ask("GET", "/v1/bases")
    ask("GET", "/v1/bases?owner=vision")
    ask("POST", "/v1/bases", {"name": "torch-v2", "script": "true"})
    bed.submit("digits-7", {"command": "train", "base": "torch"})
    ask("DELETE", "/v1/bases/torch-v1")
    bed.end("digits-7")
    ask("DELETE", "/v1/bases/torch-v1")
    ask("DELETE", "/v1/bases/torch-v1")


def metrics(bed: Bed, ask: Asking) -> None:
    ask("GET", "/metrics")
    ask("GET", "/metrics?run=digits-7")


def learns(bed: Bed, ask: Asking) -> None:
    bed.submit("digits-7")
    kept(bed, (60.0, 1, 100), (120.0, 1, 200))
    bed.clock.advance(180.0)
    learn(bed, "local-a", ZoneRecord(2, bed.clock.now() + 600, "no_capacity", "no room", (bed.clock.now(),)))
    ask("GET", RUN + "/beats")
    ask("GET", RUN + "/beats?points=0")
    ask("GET", "/v1/providers")
    ask("GET", "/v1/providers?name=local")
    ask("GET", "/v1/zones")
    ask("GET", "/v1/zones?zone=local-a")


def listens(bed: Bed, ask: Asking) -> None:
    bed.submit("digits-7")
    text = opening(1) + b"".join(frame for _, frame in framed(bed.store.events(None, 0, 1)))
    for name in ("list_events", "list_run_events"):
        ask.streamed(name, text.decode())


SCENES: tuple[Callable[[Bed, Asking], None], ...] = (
    tokens, changes, many, webhooks, incidents, bases, metrics, learns, listens,
)  # fmt: skip
