"""The API under schemathesis: whatever the document allows is accepted or refused as it says, whatever it forbids is
refused, and nothing is ever answered with 500.

The application is asked in this process, with real tokens, on the bed of the use cases. Three phases: boundary values
of each field (coverage), random data that follows or breaks the schemas (fuzzing), and chains of requests in which one
uses what another has answered (stateful).
"""

from __future__ import annotations

import gc
import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import schemathesis
from hypothesis import strategies as st
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema
from starlette.types import ASGIApp

from supervisor.api.server import create_app
from supervisor.api.wire.deps import Services, with_tokens
from supervisor.domain.callers import Scope
from supervisor.domain.status import Status
from supervisor.services.access import tokens
from supervisor.services.access.tokens import TokenRequest
from tests.api.recorder import COMMITTED
from tests.bundles import bundle_of
from tests.fakes.callers import OPS
from tests.services.bed import Bed
from tests.services.test_files import furnished
from tests.services.test_machines import put

Json = dict[str, Any]
# Schemathesis writes `maxLength` into the pattern, and `[^\x00]{0,194560}` is an automaton that takes a second to build
# for each operation. It leaves alternatives as they are: the same texts, with their length beside them.
LONG_TEXT = 4096
AS_ALTERNATIVES = {r"^[^\x00]*$": r"^(|[^\x00]+)$", r"^[^\x00]+$": r"^([^\x00]|[^\x00]{2,})$"}
DOCUMENT = COMMITTED.read_text(encoding="utf-8")  # test_document.py compares it with the one of the code
BASE_URL = "http://127.0.0.1:8787"
# operation → with what it may refuse data that the schema allows. No schema can say what only the server knows: a
# cursor of ours, a zone of the provider, a run's id typed once more, a second field that contradicts the first.
FOR_ITS_MEANING: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(("list_runs", "list_costs", "list_run_files", "list_deliveries"), ("400",)),
    **dict.fromkeys(("submit_run", "forecast_variations", "resume_run", "import_old_run", "change_run"), ("422",)),
    **dict.fromkeys(("stop_runs", "resume_runs"), ("400", "422")),
    **dict.fromkeys(("list_events", "list_run_events", "list_beats", "push_beat", "purge_run", "read_log"), ("422",)),
    **dict.fromkeys(
        ("stockout", "bring_gpu_back", "store_code", "add_webhook", "change_webhook", "create_base", "create_token"),
        ("422",),
    ),
    **dict.fromkeys(("compare_runs",), ("422",)),
}
# A run may be called `stop`: this address can be read and changed, too.
ALSO_NAMES = ("stop_runs", "resume_runs")
PHASES = ("examples", "coverage", "fuzzing", "stateful")
ACCEPTED = ["2xx", "3xx", "401", "403", "404", "409", "410", "412", "416", "429"]
REFUSED = [str(status) for status in (400, 401, 403, 404, 405, 409, 410, 412, 413, 415, 416, 422, 428, 429)]

# A text in a path. What would lead to another address is never asked, so it must not be made either: `/`, braces and
# NUL, as they are or quoted, and nothing but dots.
IN_PATH = "text-in-path"
_LETTERS = st.characters(exclude_categories=("Cs",), exclude_characters="/{}%\0")
_PIECES = st.lists(_LETTERS | st.sampled_from(("%25", "%41", "%zz")), min_size=1, max_size=40)
_PATH_TEXTS = _PIECES.map("".join).map(lambda text: text if text.strip(".") else "a.")
schemathesis.openapi.format(IN_PATH, _PATH_TEXTS)
schemathesis.openapi.media_type("application/gzip", st.binary(max_size=64) | st.just(bundle_of()[1]))


@dataclass
class Found:
    """`calls`: operation → how often it was asked; `chains`: of requests; `failures`: what broke a check, once for each
    kind of failure."""

    calls: Counter[str] = field(default_factory=Counter)
    chains: int = 0
    failures: dict[tuple[str, str], str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


def furnish(bed: Bed) -> None:
    """Runs in several situations, a machine, a bundle."""
    furnished(bed)  # digits-7, completed, with files
    for name in ("digits-8", "digits-9"):
        bed.submit(name)
    bed.train("digits-8")
    put(bed, "m-a1", "digits-8", machine_id="id-1")
    bed.train("digits-9")
    bed.end("digits-9", Status.STOPPED)


def guarded(bed: Bed) -> tuple[Services, str]:
    """Services that ask for a token, and an administrator's token."""
    services = with_tokens(bed.services)
    wish = TokenRequest("fuzz", "", frozenset({Scope.ADMIN}), None, None)
    return services, str(tokens.create(services.parts, wish, OPS)["token"])


def examine(
    app: ASGIApp, token: str, phases: Sequence[str], most: int, operations: Sequence[str] = (), seed: int = 1
) -> Found:
    """Ask everything, or `operations` alone. `most`: examples for each operation, chains of requests at most. Chains
    end earlier where a repeated one meets what an earlier one has left: ask again with another seed."""
    config = SchemathesisConfig.from_dict({**_settings(token, phases, most), "seed": seed})
    schema = schemathesis.openapi.from_dict(_document(operations), config=config)
    schema.app = app
    found = Found()
    gc.disable()  # everything is kept until the end, and looking through it again and again takes long
    try:
        for event in from_schema(schema).execute():
            if isinstance(event, events.ScenarioFinished):
                _note(found, event)
            elif isinstance(event, events.NonFatalError):
                found.errors.append(f"{event.label}: {event.value}")
            elif isinstance(event, events.FatalError):
                raise event.exception
    finally:
        gc.enable()
    return found


def app_of(services: Services) -> ASGIApp:
    logging.getLogger("supervisor").setLevel(logging.CRITICAL)
    return create_app(services)


def _document(operations: Sequence[str]) -> Json:
    """The whole, or what it says of these operations."""
    told: Json = json.loads(DOCUMENT, object_hook=_with_quick_pattern)
    for methods in told["paths"].values():
        for method in [one for one, told in methods.items() if operations and told["operationId"] not in operations]:
            del methods[method]
        for parameter in (each for told in methods.values() for each in told.get("parameters", ())):
            schema = parameter.get("schema", {})
            if parameter.get("in") == "path" and schema.get("type") == "string" and "pattern" not in schema:
                schema["format"] = IN_PATH
    return told


def _with_quick_pattern(value: Json) -> Json:
    is_long = isinstance(value.get("pattern"), str) and value.get("maxLength", 0) >= LONG_TEXT
    return {**value, "pattern": AS_ALTERNATIVES.get(value["pattern"], value["pattern"])} if is_long else value


def _settings(token: str, phases: Sequence[str], most: int) -> Json:
    meant = [
        {
            "include-operation-id": name,
            "checks": {
                "positive_data_acceptance": {"expected-statuses": [*ACCEPTED, *statuses]},
                "allow_header_conformance": {"enabled": name not in ALSO_NAMES},
                "unsupported_method": {"enabled": name not in ALSO_NAMES},
            },
        }
        for name, statuses in FOR_ITS_MEANING.items()
    ]
    return {
        "base-url": BASE_URL,
        "headers": {"Authorization": f"Bearer {token}"},
        "continue-on-failure": True,
        "generation": {"max-examples": most, "deterministic": True, "no-shrink": True, "database": "none"},
        "phases": {name: {"enabled": name in phases} for name in PHASES},
        "checks": {
            "positive_data_acceptance": {"expected-statuses": ACCEPTED},
            "negative_data_rejection": {"expected-statuses": REFUSED},
            "missing_required_header": {"expected-statuses": ["428"]},
        },
        "operations": meant,
    }


def _only_planned(event: events.ScenarioFinished, case_id: str, check: str) -> bool:
    """Missed after a submit that was a plan (`validate_only`): it names the run, and nothing of it is done. For the
    check any POST that succeeds has made what its answer names."""
    parent = event.recorder.cases[case_id].parent_id
    if check != "ensure_resource_availability" or parent is None:
        return False
    told = event.recorder.interactions[parent].response
    return told is not None and told.status_code == 200 and "would" in told.json()


def _note(found: Found, event: events.ScenarioFinished) -> None:
    found.chains += len(event.recorder.cases) > 1
    for case_id, checks in event.recorder.checks.items():
        case = event.recorder.cases[case_id].value
        name = case.operation.definition.raw["operationId"]
        found.calls[name] += 1
        for check in checks:
            if check.failure_info is not None and not _only_planned(event, case_id, check.name):
                failure = check.failure_info.failure
                answer = event.recorder.interactions[case_id].response
                answered = f"{answer.status_code} {answer.text[:400]}" if answer is not None else "nothing"
                told = f"{failure.title}: {failure.message[:400]}\n{case.as_curl_command()[:1500]}\n{answered}"
                found.failures.setdefault((name, check.name), told)
