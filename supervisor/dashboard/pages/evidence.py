"""What is kept of a run in the store: the evidence of how its attempts ended, and its files.

The evidence is shown at a glance on the overview of its run, and in full on a page of its own, below the verdict of the
rules. Its rows are those of `wording/attempt.py` and `wording/why.py`; the agent's part of it is not trusted, and every
text is made harmless here. Each file can be downloaded through /ui/v1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import ansi, rendering
from supervisor.dashboard.public_api import Api, Json
from supervisor.dashboard.words import clock, whole_time, with_code
from supervisor.domain.texts import visible
from supervisor.wording import why
from supervisor.wording.attempt import (
    Row,
    evidence_details,
    evidence_readings,
    evidence_rows,
    last_failure,
    listed,
    mapping,
    telemetry_of,
    thread_stacks,
)
from supervisor.wording.figures import DASH, size_text

LAST_LINES, STACK_LINES, PROCESSES, JSON_CHARS = 15, 400, 50, 60_000
EXPLAINED = ("why", "most telling line")  # rows that a verdict makes needless
NO_EVIDENCE = ("EVIDENCE_NOT_FOUND", "FILES_PURGED", "UNAVAILABLE")
NO_DIAGNOSIS = (*NO_EVIDENCE, "INVALID_REQUEST")  # the address may have any number
NO_FILES = ("FILES_PURGED", "UNAVAILABLE")
ABSENT = "More is not kept, or not yet."
PAGE_SIZE = 100
KINDS = (
    ("results", "Results"), ("checkpoints", "Checkpoints"), ("logs", "Logs"), ("evidence", "Evidence"),
    ("code", "Code"),
)  # fmt: skip


async def show(request: Request, api: Api) -> Response:
    """Raises SignInNeeded, Refused."""
    number = request.path_params["attempt"]
    run, answer = await api.of_run("", "/attempts")
    (kept, refusal), verdict = await api.together(
        api.get_or_refusal(_path(run, number), [], NO_EVIDENCE), _why(api, run, number)
    )
    unknown = kept is None and number not in {str(attempt["number"]) for attempt in answer["attempts"]}
    return await rendering.tab(
        request,
        "evidence.html",
        run,
        "evidence",
        404 if unknown else 200,
        number=number,
        others=[attempt["number"] for attempt in answer["attempts"] if attempt["ended_at"] is not None],
        shown=None if kept is None else view(kept),
        why=verdict,
        missing="" if refusal is None else str(refusal),
    )


async def panel(api: Api, run: Json, attempts: Sequence[Json]) -> Json | None:
    """For `evidence_panel.html`: the newest attempt that is over, if it ended badly. `first`: nothing continued since,
    so the page begins with it. `missing`: why no more can be shown. Raises SignInNeeded, Refused."""
    failed = last_failure(attempts)
    if failed is None:
        return None
    (kept, refusal), verdict = await api.together(
        api.get_or_refusal(_path(run, failed["number"]), [], NO_EVIDENCE), _why(api, run, failed["number"])
    )
    return {
        "of": failed,
        "why": verdict,
        "shown": None if kept is None else view(kept, explained=verdict is not None),
        "missing": str(refusal) if refusal is not None and refusal.code == "UNAVAILABLE" else ABSENT,
        "first": attempts[-1]["ended_at"] is not None and run["status"] != "completed",
        "newest": failed["number"] == attempts[-1]["number"],
    }


def view(kept: Json, explained: bool = False) -> Json:
    """For the templates. `explained`: a verdict above it says what ended the attempt."""
    tail = [ansi.shown(str(line)) for line in listed(kept.get("log_tail"))]
    processes = listed(mapping(kept.get("agent")).get("processes"))[:PROCESSES]
    telemetry = telemetry_of(kept)
    return {
        "attempt": kept.get("attempt"),
        "cause": kept.get("cause") or "unknown",
        "rows": _harmless(row for row in evidence_rows(kept) if not (explained and row[0] in EXPLAINED)),
        "more": _harmless(evidence_details(kept)),
        "readings": _harmless(evidence_readings(kept)),
        "stacks": _stacks(kept),
        "processes": [_process(mapping(process)) for process in processes],
        "telemetry": list(
            map(ansi.shown, json.dumps(telemetry, indent=1)[:JSON_CHARS].splitlines() if telemetry else ())
        ),
        "tail": tail,
        "last_lines": tail[-LAST_LINES:],
    }


async def _why(api: Api, run: Json, number: object) -> Json | None:
    """For `why_panel.html`; None where the end cannot be explained (yet). Raises SignInNeeded, Refused."""
    if not str(number).isdecimal():
        return None
    query = [("attempt", str(number))]
    diagnosis, _ = await api.get_or_refusal(f"/v1/runs/{run['run_id']}/diagnosis", query, NO_DIAGNOSIS)
    return None if diagnosis is None or not diagnosis["ended"] else why_view(diagnosis)


def why_view(diagnosis: Json) -> Json:
    """For the templates. The quotes are a table, with the time of each in its title."""
    verdict = mapping(diagnosis.get("verdict"))
    quotes = why.quotes_of(verdict)
    rows = [(label, with_code(visible(text))) for label, text in why.rows(diagnosis, whole_time)]
    return {
        "text": ansi.shown(str(diagnosis["text"])),
        "quotes": [
            {
                "text": ansi.shown(why.quoted(quote)),
                "source": ansi.shown(why.source_text(quote)),
                "time": clock(quote["at"]) if quote.get("at") else why.moment_text(quote, whole_time) or DASH,
            }
            for quote in quotes
        ],
        "before": [row for row in rows if row[0] in why.SAID],
        "rows": [row for row in rows if row[0] not in (*why.SAID, *([why.EVIDENCE] if quotes else []))],
        "rule": ansi.shown(why.rule_text(verdict)),
    }


def _path(run: Json, number: object) -> str:
    return f"/v1/runs/{run['run_id']}/attempts/{number}/evidence"


def _harmless(rows: Iterable[Row]) -> list[tuple[str, Markup]]:
    return [(label, ansi.shown(text)) for label, text in rows]


def _stacks(kept: Json) -> list[Json]:
    """At most STACK_LINES lines of all processes together."""
    stacks, left = [], STACK_LINES
    for title, lines in thread_stacks(kept):
        shown = [ansi.shown(line) for line in lines[:left]]
        left -= len(shown)
        stacks.append({"title": ansi.shown(title), "lines": shown, "more": len(lines) - len(shown)})
    return stacks


def _process(process: Mapping[str, Any]) -> Json:
    memory = process.get("rss_bytes")
    texts = {name: ansi.shown(str(process.get(name, ""))) for name in ("pid", "state", "command")}
    return {**texts, "memory": size_text(int(memory)) if isinstance(memory, int | float) else ""}


async def files(request: Request, api: Api) -> Response:
    """`?kind=&cursor=`, as the API has them. Raises SignInNeeded, Refused."""
    (run,) = await api.of_run("")
    query = [
        (name, value) for name, value in request.query_params.multi_items() if name in ("kind", "cursor") and value
    ]
    listing, refusal = await api.get_or_refusal(
        f"/v1/runs/{run['run_id']}/files", [*query, ("page_size", str(PAGE_SIZE))], NO_FILES
    )
    kinds = [(name, value) for name, value in query if name == "kind"]
    cursor = listing["next_cursor"] if listing is not None else None
    return await rendering.tab(
        request,
        "files.html",
        run,
        "files",
        kinds=KINDS,
        kind=kinds[0][1] if kinds else "",
        began=len(kinds) < len(query),
        files=[_file(run, file) for file in listing["files"]] if listing is not None else [],
        listing=listing,
        following=urlencode([*kinds, ("cursor", cursor)]) if cursor is not None else "",
        missing="" if refusal is None else refusal.problem["detail"],
        purged=refusal is not None and refusal.code == "FILES_PURGED",
    )


def _file(run: Json, file: Json) -> Json:
    """Names of results and checkpoints come from outside."""
    address = f"/ui/v1/runs/{run['run_id']}/files/{quote(file['path'])}"
    return {**file, "name": ansi.shown(file["path"]), "address": address}
