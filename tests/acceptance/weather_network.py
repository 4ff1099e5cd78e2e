"""Misfortunes of answers: lost, late, partial, untrue or refused; of Compute Engine, and of the bucket."""

from __future__ import annotations

from tests.acceptance.weather import Weather, deed
from tests.cloud.cloud import BUCKET
from tests.cloud.web import Hang, Reset

HTML = b"<!DOCTYPE html><html><title>Error 404 (Not Found)!!1</title></html>"
PATTERNS = ("", r"/instances$", r"/instances/[^/]+$", r"/operations", r"/aggregated/")
STORE_METHODS = ("storage.objects.insert", "storage.objects.get", "storage.objects.list", "storage.objects.delete")


# --- answers of Compute Engine --------------------------------------------------------------------------------------


@deed(3)
def lost_answers(w: Weather) -> str:
    """Carried out, and not told."""
    method, pattern = w.chance.choice((("POST", r"/instances$"), ("DELETE", r"/instances/"), ("POST", r"/instances$")))
    how, times = w.chance.choice((Reset, 500, 503, 429)), w.chance.choice((1, 2, 6))
    w.house.compute.fail_next(method, pattern, how, times=times, lost=True)
    return f"{method} {how} x{times}"


@deed()
def hanging_call(w: Weather) -> str:
    method, pattern = w.chance.choice((("POST", r"/instances$"), ("GET", r"/aggregated/"), ("DELETE", "/instances/")))
    w.house.compute.fail_next(method, pattern, Hang, times=1, lost=w.chance.random() < 0.5)
    return f"{method} {pattern}"


@deed(3)
def failing_calls(w: Weather) -> str:
    pattern, times = w.chance.choice(PATTERNS), w.chance.choice((1, 3, 8))
    how = w.chance.choice((403, 429, 500, 503, Reset, (404, HTML), (502, HTML), (403, HTML)))
    reason = "rateLimitExceeded" if how == 403 else None
    w.house.compute.fail_next(None, pattern, how, times=times, reason=reason)
    return f"{pattern!r} {how if isinstance(how, int) else 'no JSON'} x{times}"


@deed(2)
def storm(w: Weather) -> str:
    status, seconds = w.chance.choice((403, 429, 500, 503)), w.a_while(None, "", longest_s=900.0)
    reason = w.chance.choice(("rateLimitExceeded", "forbidden")) if status == 403 else None
    w.house.compute.fail_next(None, w.chance.choice(PATTERNS), status, for_s=seconds, reason=reason)
    return f"{status} {reason or ''} {seconds:.0f}s"


@deed(3)
def unreachable(w: Weather) -> str:
    zone = w.zone()
    seconds, compute = w.a_while(None, zone), w.house.compute
    said_by = w.chance.choice((("unreachables",), ("warning",), ("unreachables", "warning")))
    compute.unreachable_form = w.chance.choice(("zones/{zone}", "projects/{project}/zones/{zone}"))
    compute.unreachable(zone, w.now + seconds, said_by)
    return f"{zone} {said_by} {seconds:.0f}s"


@deed(2)
def eclipse(w: Weather) -> str | None:
    """A zone that cannot be read, and in it a machine whose agent cannot be heard."""
    found = [one for one in w.house.agents if not one.over and one.reach.machine() is not None]
    if not found:
        return None
    one = w.chance.choice(found)
    zone = one.request.placement.zone
    seconds = w.a_while(None, zone)
    w.house.compute.unreachable(zone, w.now + seconds, ("unreachables",))
    one.mute = True
    w.struck.setdefault(one.machine_id, []).append("agent")
    return f"{zone} {one.run_id} {seconds:.0f}s"


@deed(2)
def short_pages(w: Weather) -> str:
    w.house.short_pages(True)
    return f"{w.a_while(lambda: w.house.short_pages(False)):.0f}s"


@deed()
def broken_paging(w: Weather) -> str:
    """The second page fails, of machines or of objects."""
    w.house.short_pages(True)
    w.house.storage.trouble(503, w.chance.choice((1, 8)), lambda request, _: request.one("pageToken") is not None)
    seconds = w.a_while(lambda: w.house.short_pages(False))
    w.house.compute.fail_next("GET", "/aggregated/", 503, times=2)
    return f"{seconds:.0f}s"


@deed(2)
def false_404(w: Weather) -> str | None:
    found = w.ours()
    if not found:
        return None
    vm = w.chance.choice(found)
    seconds = w.a_while(None, vm.name, longest_s=600.0)
    w.house.compute.false_404(vm.name, w.now + seconds)
    return f"{vm.name} {seconds:.0f}s"


@deed()
def other_manners(w: Weather) -> str:
    compute = w.house.compute
    compute.overlapping_delete = w.chance.choice((None, (403, "resourceNotReady"), (404, "notFound")))
    compute.serial_of_stopped = w.chance.random() < 0.5
    return f"overlapping_delete={compute.overlapping_delete}"


@deed(2)
def expired_tokens(w: Weather) -> str:
    w.house.compute.expire_tokens()
    return ""


@deed(2)
def forgotten_request_ids(w: Weather) -> str:
    w.house.compute.forget_requests()
    return ""


# --- the bucket -----------------------------------------------------------------------------------------------------


@deed(3)
def store_troubles(w: Weather) -> str:
    what, times = w.chance.choice((408, 429, 500, 503, Reset())), w.chance.choice((1, 3, 10))
    method, after = w.chance.choice(STORE_METHODS), w.chance.random() < 0.5
    w.house.storage.trouble(what, times, method, after=after)
    return f"{method} {what!r} x{times} after={after}"


@deed()
def store_storm(w: Weather) -> str:
    status = w.chance.choice((429, 503))
    trouble = w.house.storage.trouble(status, None)
    shuts = w.chance.random() < 0.5
    w.house.agents_access.blocked = shuts

    def over() -> None:
        trouble.times, w.house.agents_access.blocked = 0, False

    return f"{status} agents={shuts} {w.a_while(over, '', 'agents' if shuts else ''):.0f}s"


@deed()
def store_denied(w: Weather) -> str:
    permission = w.chance.choice(("*", "storage.objects.list", "storage.objects.create", "storage.objects.get"))
    prefix = w.chance.choice((BUCKET, f"{BUCKET}/beats", f"{BUCKET}/runs/{w.run()}"))
    w.house.storage.deny(permission, prefix)
    denied = w.house.storage._denied
    return f"{permission} {prefix} {w.a_while(lambda: denied.discard((permission, prefix)), ''):.0f}s"
