"""Why an attempt ended, and what its machine wrote to its console.

The evidence: at a glance on the overview of its run, and all that is kept of it on a page of its own. What an agent
wrote is believed in nothing (wording/attempt.py), and every text is made harmless here.

The console is asked of the machine while it lives, else what was kept of it is shown. Where the platform can tell what
came after an offset, scripts put that below (static/log.js asks for `/console/lines`); elsewhere they show the newest
part again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import ansi, rendering
from supervisor.dashboard.public_api import Api, Json, Refused
from supervisor.wording.attempt import (
    beat_words,
    disk_words,
    exit_words,
    kills_of,
    kills_words,
    last_failure,
    listed,
    mapping,
    memory_words,
    telemetry_of,
)
from supervisor.wording.figures import size_text

LAST_LINES, STACK_LINES, PROCESSES, JSON_CHARS = 15, 400, 50, 60_000


def view(kept: Json) -> Json:
    """What the templates show."""
    agent = mapping(kept.get("agent"))
    end = mapping(kept.get("exit")) or mapping(agent.get("exit"))
    tail = [ansi.shown(str(line)) for line in listed(kept.get("log_tail"))]
    beat, readings = mapping(kept.get("beat")), mapping(kept.get("readings"))
    rows = [
        ("Why", kept.get("detail")),
        ("Exit", exit_words(end)),
        ("Most telling line", end.get("last_line")),
        ("Memory", _memory(kept, agent, end)),
        ("Disk", disk_words(end, agent)),
        ("Ended by the agent", agent.get("left")),
    ]
    more = [
        ("Last beat", beat_words(beat, str(beat.get("at")))),
        ("Machine", _machine(mapping(kept.get("machine")))),
        ("Boot", _boot(mapping(agent.get("boot")))),
        ("Signals sent", ", ".join(map(str, listed(agent.get("signals_sent"))))),
        ("The agent's part", kept.get("agent_missing") and f"none: {kept['agent_missing']}"),
        ("Console in the store", kept.get("console")),
        ("Cut to keep it small", ", ".join(map(str, listed(agent.get("trimmed"))))),
    ]
    return {
        "attempt": kept["attempt"],
        "cause": kept.get("cause") or "unknown",
        "rows": _rows(rows),
        "more": _rows(more),
        "end_readings": [ansi.shown(str(reading)) for reading in listed(readings.get("end"))],
        "release_readings": [ansi.shown(str(reading)) for reading in listed(readings.get("release"))],
        "stacks": _stacks(mapping(agent.get("stall"))),
        "processes": [_process(mapping(process)) for process in listed(agent.get("processes"))[:PROCESSES]],
        "telemetry": _pretty(telemetry_of(kept)),
        "tail": tail,
        "last_lines": tail[-LAST_LINES:],
    }


def _rows(rows: Sequence[tuple[str, object]]) -> list[tuple[str, Markup]]:
    return [(label, ansi.shown(str(value))) for label, value in rows if value]


def _memory(kept: Json, agent: Mapping[str, Any], end: Mapping[str, Any]) -> str:
    kills = kills_of(end, agent)
    killed = end.get("signal") is not None or end.get("code") == 137
    parts = [kills_words(kills) if killed or kills is not None else "", memory_words(kept)]
    return "; ".join(filter(None, parts))


def _machine(machine: Mapping[str, Any]) -> str:
    return " · ".join(str(machine[name]) for name in ("name", "zone", "shape") if machine.get(name))


def _boot(boot: Mapping[str, Any]) -> str:
    if not boot or boot.get("at_start") == boot.get("now"):
        return ""
    return f"{boot.get('now')}; it was {boot.get('at_start')} at the start: the machine was rebooted"


def _stacks(stall: Mapping[str, Any]) -> list[Json]:
    """Of each process: a title, and where its threads stood."""
    stacks, left = [], STACK_LINES
    for dump in map(mapping, listed(stall.get("threads"))):
        lines = [line for line in str(dump.get("text", "")).splitlines() if line.strip()]
        shown = [ansi.shown(line) for line in lines[:left]]
        left -= len(shown)
        title = ansi.shown(f"Process {dump.get('pid')} ({dump.get('how')}): {dump.get('command')}")
        stacks.append({"title": title, "lines": shown, "more": len(lines) - len(shown)})
    return stacks


def _process(process: Mapping[str, Any]) -> Json:
    memory = process.get("rss_bytes")
    return {
        "pid": ansi.shown(str(process.get("pid", ""))),
        "state": ansi.shown(str(process.get("state", ""))),
        "memory": size_text(int(memory)) if isinstance(memory, int | float) else "",
        "command": ansi.shown(str(process.get("command", ""))),
    }


def _pretty(document: Mapping[str, Any]) -> list[Markup]:
    if not document:
        return []
    return [ansi.shown(line) for line in json.dumps(document, indent=1)[:JSON_CHARS].splitlines()]


ABSENT = "More is not kept, or not yet."


async def panel(api: Api, run: Json, attempts: Sequence[Json]) -> Json | None:
    """What `evidence_panel.html` shows as `evidence`: of the newest attempt that is over, if it ended badly. `first`:
    nothing has gone on since, so it is what one wants to know. `missing`: why more of it cannot be shown. Raises
    SignInNeeded, Refused."""
    failed = last_failure(attempts)
    if failed is None:
        return None
    shown, why = await _kept(api, f"/v1/runs/{run['run_id']}/attempts/{failed['number']}/evidence")
    missing = str(why) if why is not None and why.code == "UNAVAILABLE" else ABSENT
    first = attempts[-1]["ended_at"] is not None and run["status"] != "completed"
    newest = failed["number"] == attempts[-1]["number"]
    return {"of": failed, "shown": shown, "missing": missing, "first": first, "newest": newest}


async def show(request: Request, api: Api) -> Response:
    """Raises SignInNeeded, Refused."""
    number, run_id = request.path_params["attempt"], request.path_params["run_id"]
    run, answer = await api.together(api.get(f"/v1/runs/{run_id}"), api.get(f"/v1/runs/{run_id}/attempts"))
    shown, why = await _kept(api, f"/v1/runs/{run_id}/attempts/{number}/evidence")
    return await rendering.tab(
        request,
        "evidence.html",
        run,
        "evidence",
        404 if shown is None and number not in {str(attempt["number"]) for attempt in answer["attempts"]} else 200,
        number=number,
        others=[attempt["number"] for attempt in answer["attempts"] if attempt["ended_at"] is not None],
        shown=shown,
        missing="" if why is None else str(why),
    )


async def _kept(api: Api, path: str) -> tuple[Json | None, Refused | None]:
    """What is kept; else why not: there is none, or it cannot be read now. Raises SignInNeeded, Refused."""
    try:
        return view(await api.get(path)), None
    except Refused as refusal:
        if refusal.code not in ("EVIDENCE_NOT_FOUND", "FILES_PURGED", "UNAVAILABLE"):
            raise
        return None, refusal


SHOWN_BYTES = 65_536
SOURCES = {
    "machine": "read from the machine just now",
    "kept": "kept before the machine was released",
    "cloud_logging": "read from the cloud's log service",
}


async def console(request: Request, api: Api) -> Response:
    """Raises SignInNeeded, Refused."""
    run_id, params = request.path_params["run_id"], dict(request.query_params)
    run, answer = await api.together(api.get(f"/v1/runs/{run_id}"), api.get(f"/v1/runs/{run_id}/attempts"))
    attempts = answer["attempts"]
    number = params.get("attempt") or (str(attempts[-1]["number"]) if attempts else "")
    page: Json = {"run": run, "tab": "console", "attempts": attempts, "number": number, "sources": SOURCES}
    page |= {"console": None, "missing": None, "source": params.get("source", "")}
    if attempts and not rendering.looks_again(request):
        try:
            page["console"] = await _console(api, run_id, number, params, attempts)
        except Refused as refusal:
            if refusal.code not in ("EVIDENCE_NOT_FOUND", "FILES_PURGED", "UNAVAILABLE", "NOT_SUPPORTED"):
                raise
            page["missing"] = refusal.problem["detail"]
            page["log_service"] = await _log_service(api, attempts[-1]["placement"]["provider"])
    return await rendering.page(request, "console.html", **page)


async def _log_service(api: Api, provider: str) -> str | None:
    """What keeps consoles of this provider's machines that are gone."""
    providers = (await api.get("/v1/providers"))["providers"]
    return next((each["log_service"] for each in providers if each["name"] == provider), None)


async def console_lines(request: Request, api: Api) -> Response:
    """What came after `after`, or the newest part again where there is none. Raises SignInNeeded, Refused."""
    params = request.query_params
    query = [(name, params[name]) for name in ("attempt", "after") if name in params]
    answer = await api.get(f"/v1/runs/{request.path_params['run_id']}/console", [*query, ("limit", str(SHOWN_BYTES))])
    return await rendering.page(request, "console_lines.html", console=_console_view(answer))


async def _console(api: Api, run_id: str, number: str, params: Json, attempts: list[Json]) -> Json:
    path, base = f"/v1/runs/{run_id}/console", [("attempt", number), ("limit", str(SHOWN_BYTES))]
    if params.get("source") == "cloud_logging":
        return _console_view(await api.get(path, [*base, ("source", "cloud_logging")]))
    gone = {str(attempt["number"]): attempt["gone_at"] is not None for attempt in attempts}
    if not gone.get(number, True):
        answer = await api.get_or_none(
            path, [*base, ("after", str(-SHOWN_BYTES))], ("NOT_SUPPORTED", "EVIDENCE_NOT_FOUND")
        )
        if answer is not None and answer["text"]:
            return _console_view(answer)
    return _console_view(await api.get(path, base))


def _console_view(answer: Json) -> Json:
    *whole, rest = answer["text"].split("\n")
    after = answer.get("next_offset")  # None: of a console that is not followed by offsets
    # The line that has no end yet is read again, where its length in bytes is known.
    if after is not None and "\ufffd" not in rest:
        after -= len(rest.encode("utf-8", "replace"))
    rows = [(ansi.shown(line), False) for line in whole] + ([(ansi.shown(rest), True)] if rest else [])
    return {
        **{name: answer[name] for name in ("live", "source", "machine", "zone", "log_service")},
        "rows": rows,
        "lost": answer.get("lost_bytes") or 0,
        "begin": answer.get("start"),
        "resume": urlencode({"after": after}) if after is not None else "",
    }
