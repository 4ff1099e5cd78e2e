"""The OpenAPI document, written to openapi/openapi.json and compared by a test.

Routes read bodies and parameters by hand, because that is faster and stricter; what they accept and answer is told
here by one table of operations. Words of enums that clients meet may grow: clients must accept unknown ones.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from supervisor.api import (
    bodies,
    schemas,
    schemas_code,
    schemas_cost,
    schemas_evidence,
    schemas_facts,
    schemas_files,
    schemas_health,
    schemas_import,
    schemas_machines,
    schemas_plan,
    schemas_prices,
    schemas_telemetry,
    submit_query,
)
from supervisor.api.app import create_app
from supervisor.api.errors import MEDIA_TYPE, STATUS

REF = "#/components/schemas/{model}"
Json = dict[str, Any]


class Operation:
    """What one route takes and gives. `refuses`: codes beyond those that every route may answer with."""

    def __init__(
        self,
        answers: dict[int, type[BaseModel]],
        body: type[BaseModel] | None = None,
        query: type[BaseModel] | None = None,
        refuses: str = "",
        body_required: bool = True,
        raw_body: str = "",
        also: type[BaseModel] | None = None,
    ) -> None:
        self.answers, self.body, self.query = answers, body, query
        self.refuses, self.body_required = refuses.split(), body_required
        self.raw_body = raw_body  # the media type of a body that is not JSON
        self.also = also  # another shape of the answer 200


ANYWHERE = ("INVALID_REQUEST", "HOST_REFUSED", "INTERNAL", "UNAVAILABLE")
WITH_BODY = ("INVALID_JSON", "BODY_TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE")
SPEC = (
    "INVALID_TIMEOUTS PRICE_UNKNOWN DATA_ELSEWHERE CODE_NOT_FOUND CODE_REFUSED CELL_FIXED RUN_COMPLETED RUN_STOPPING "
    "SPEC_DIFFERS STOP_NEWER PURGE_RUNNING "
)

OPERATIONS = {
    "submit_run": Operation(
        {201: schemas.SubmittedRun, 200: schemas.SubmittedRun},
        bodies.SubmitBody,
        submit_query.SubmitParameters,
        also=schemas_plan.Plan,
        refuses=SPEC + "RUN_ACTIVE RUN_ID_TAKEN IDEMPOTENCY_KEY_REUSED IDEMPOTENCY_KEY_IN_FLIGHT",
    ),
    "import_old_run": Operation(
        {201: schemas_import.ImportedRun, 200: schemas_import.ImportedRun},
        schemas_import.ImportBody,
        refuses="OLD_RUN_NOT_FOUND OLD_RUN_UNREADABLE OLD_RUN_ALIVE IMPORT_RUNNING RUN_ID_TAKEN CONFLICT "
        "SECRET_IN_SPEC INVALID_TIMEOUTS PRICE_UNKNOWN",
    ),
    "list_runs": Operation({200: schemas.RunList}, query=bodies.ListParameters, refuses="CURSOR_INVALID"),
    "show_run": Operation({200: schemas_telemetry.ShownRun}, refuses="RUN_NOT_FOUND"),
    "show_evidence": Operation(
        {200: schemas_evidence.Evidence}, refuses="RUN_NOT_FOUND EVIDENCE_NOT_FOUND FILES_PURGED"
    ),
    "show_console": Operation(
        {200: schemas_evidence.ConsoleText},
        query=bodies.ConsoleParameters,
        refuses="RUN_NOT_FOUND EVIDENCE_NOT_FOUND FILES_PURGED NOT_SUPPORTED",
    ),
    "show_facts": Operation({200: schemas_facts.RunFacts}, refuses="RUN_NOT_FOUND"),
    "list_attempts": Operation({200: schemas.AttemptList}, refuses="RUN_NOT_FOUND"),
    "list_run_events": Operation(
        {200: schemas.EventList}, query=bodies.RunEventParameters, refuses="RUN_NOT_FOUND"
    ),
    "list_events": Operation({200: schemas.EventList}, query=bodies.EventParameters),
    "read_log": Operation(
        {200: schemas.LogText}, query=bodies.LogParameters, refuses="RUN_NOT_FOUND FILES_PURGED"
    ),
    "show_code": Operation({200: schemas_code.CodeShown}, refuses="CODE_NOT_FOUND"),
    "store_code": Operation(
        {200: schemas_code.CodeShown, 201: schemas_code.CodeShown},
        refuses="CODE_REFUSED ORIGIN_REFUSED BODY_TOO_LARGE UNSUPPORTED_MEDIA_TYPE",
        raw_body="application/gzip",
    ),
    "list_costs": Operation(
        {200: schemas_cost.CostList}, query=bodies.ListParameters, refuses="CURSOR_INVALID"
    ),
    "show_cost": Operation({200: schemas_cost.RunCost}, refuses="RUN_NOT_FOUND"),
    "purge_run": Operation(
        {200: schemas_cost.PurgedRun}, bodies.PurgeBody, refuses="RUN_NOT_FOUND PURGE_REFUSED"
    ),
    "stop_run": Operation({202: schemas.Run, 200: schemas.Run}, refuses="RUN_NOT_FOUND"),
    "resume_run": Operation(
        {202: schemas.SubmittedRun, 200: schemas.SubmittedRun},
        bodies.ResumeBody,
        refuses=SPEC + "RUN_NOT_FOUND RUN_ACTIVE CONFLICT",
        body_required=False,
    ),
    "approve_run": Operation(
        {202: schemas.Run},
        bodies.ApproveBody,
        refuses="RUN_NOT_FOUND NOTHING_TO_APPROVE APPROVAL_MISMATCH PULL_REQUIRED",
    ),
    "push_beat": Operation(
        {200: schemas.BeatAnswer}, bodies.HeartbeatBody, refuses="NONCE_REFUSED RUN_NOT_FOUND RUN_ENDED"
    ),
    "list_run_files": Operation(
        {200: schemas_files.FileList},
        query=schemas_files.FileParameters,
        refuses="RUN_NOT_FOUND FILES_PURGED",
    ),
    "read_file": Operation({}, refuses=schemas_files.FILE_REFUSALS),
    "look_at_file": Operation({}, refuses=schemas_files.FILE_REFUSALS),
    "note_results_pulled": Operation(
        {200: schemas.Run}, schemas_files.PulledBody, refuses="RUN_NOT_FOUND PULL_MISMATCH"
    ),
    "list_machines": Operation({200: schemas_machines.MachineList}, query=schemas_machines.MachineParameters),
    "collect_machines": Operation({200: schemas_machines.Collected}, schemas_machines.CollectBody),
    "list_prices": Operation({200: schemas_prices.PriceList}, refuses="NOT_SUPPORTED"),
    "refresh_prices": Operation(
        {200: schemas_prices.RefreshedPrices},
        schemas_prices.RefreshBody,
        refuses="NOT_SUPPORTED",
        body_required=False,
    ),
    "show_meta": Operation({200: schemas_health.Meta}),
    "live": Operation({200: schemas_health.Live}),
    "ready": Operation({200: schemas_health.Ready, 503: schemas_health.Ready}, query=bodies.ReadyParameters),
    "doctor": Operation({200: schemas_health.DoctorReport}, query=bodies.DoctorParameters),
    "preempt": Operation(
        {200: schemas_health.Disaster},
        bodies.PreemptBody,
        refuses="RUN_NOT_FOUND CONFLICT DEV_REFUSED CONFIRM_NEEDED",
    ),
    "kill": Operation(
        {200: schemas_health.Disaster}, bodies.StrikeBody, refuses="RUN_NOT_FOUND CONFLICT DEV_REFUSED"
    ),
    "freeze": Operation(
        {200: schemas_health.Disaster}, bodies.StrikeBody, refuses="RUN_NOT_FOUND CONFLICT DEV_REFUSED"
    ),
    "stockout": Operation({200: schemas_health.Stockout}, bodies.StockoutBody, refuses="DEV_REFUSED"),
}


def document() -> str:
    """The document as it is committed: JSON text with a line break at its end."""
    found: Json = create_app(None).openapi()
    found["components"] = {"schemas": _components()}
    for path in found["paths"].values():
        for method, told in path.items():
            name = told["operationId"] = _name(told["operationId"], method)
            _tell(told, method, name)
    return json.dumps(found, indent=1, sort_keys=True) + "\n"


def _components() -> Json:
    models: set[type[BaseModel]] = {schemas.Problem}
    for operation in OPERATIONS.values():
        models |= {operation.also} if operation.also is not None else set()
        models |= {*operation.answers.values(), *([operation.body] if operation.body is not None else [])}
    by_name = sorted(models, key=lambda model: model.__name__)
    _, shared = models_json_schema([(model, "validation") for model in by_name], ref_template=REF)
    components: Json = shared["$defs"]
    return components


def _name(generated: str, method: str) -> str:
    """The framework appends path and method to the function's name."""
    return next(name for name in sorted(OPERATIONS, key=len, reverse=True) if generated.startswith(name))


def _tell(told: Json, method: str, name: str) -> None:
    operation = OPERATIONS[name]
    told["summary"], told["description"] = name.replace("_", " ").capitalize(), told.get("description", "")
    told["parameters"] = [*told.get("parameters", []), *_parameters(operation.query)]
    if name == "submit_run":
        told["parameters"].append(_IDEMPOTENCY)
    if operation.body is not None:
        told["requestBody"] = {"required": operation.body_required, "content": _content(operation.body)}
    if operation.raw_body:
        binary = {operation.raw_body: {"schema": {"type": "string", "format": "binary"}}}
        told["requestBody"] = {"required": True, "content": binary}
    codes = [*ANYWHERE, *operation.refuses]
    if method == "post":
        codes += ["ORIGIN_REFUSED", *(WITH_BODY if operation.body is not None else [])]
    answers: Json = {}
    for number, model in operation.answers.items():
        answers[str(number)] = {"description": _DESCRIBED[number], "content": _content(model)}
    if operation.also is not None:
        told_so = answers["200"]["content"]["application/json"]
        other = _content(operation.also)["application/json"]["schema"]
        told_so["schema"] = {"anyOf": [told_so["schema"], other]}
    refusal = _content(schemas.Problem, MEDIA_TYPE)
    for code in codes:
        answer = answers.setdefault(str(STATUS[code]), {"description": "", "content": refusal})
        answer["description"] = (answer["description"] + " " + code).strip()
    if name == "submit_run":
        answers["201"]["headers"] = {
            "Location": {"schema": {"type": "string"}, "description": "Address of the run."}
        }
    if name in schemas_files.STREAMS:
        answers |= schemas_files.STREAMED
        told["parameters"] += schemas_files.RANGES
    told["responses"] = dict(sorted(answers.items()))


_DESCRIBED = {
    200: "Done; or nothing had to be done.",
    201: "Created.",
    202: "Accepted; the loop does it.",
    503: "",
}
_IDEMPOTENCY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Repeat a request with the same key and body, and the first answer comes again; kept 7 days.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
}


def _content(model: type[BaseModel], media_type: str = "application/json") -> Json:
    return {media_type: {"schema": {"$ref": REF.format(model=model.__name__)}}}


def _parameters(model: type[BaseModel] | None) -> list[Json]:
    if model is None:
        return []
    schema = model.model_json_schema()
    return [
        {"name": name, "in": "query", "required": False, "schema": part}
        for name, part in schema["properties"].items()
    ]
