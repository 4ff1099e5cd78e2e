"""The table of operations: what each route takes and gives, by the name of its function.

Routes read bodies and parameters by hand, because that is faster and stricter; what they accept and answer is told
here. A route that is not in this table has no place in the document, and a test says so.
"""

from __future__ import annotations

from collections.abc import Mapping

from supervisor.api.document.operation import Operation
from supervisor.api.shapes import answers as schemas
from supervisor.api.shapes import bodies, queries
from supervisor.api.shapes.runs import attempts as schemas_attempts
from supervisor.api.shapes.runs import attempts as schemas_evidence
from supervisor.api.shapes.runs import attempts as schemas_facts
from supervisor.api.shapes.runs import beats as schemas_beats
from supervisor.api.shapes.runs import beats as schemas_telemetry
from supervisor.api.shapes.runs import changes as schemas_changes
from supervisor.api.shapes.runs import files as schemas_code
from supervisor.api.shapes.runs import files as schemas_files
from supervisor.api.shapes.runs import files as schemas_logs
from supervisor.api.shapes.runs import plan as schemas_cost
from supervisor.api.shapes.runs import plan as schemas_plan
from supervisor.api.shapes.runs import plan as schemas_specs
from supervisor.api.shapes.system import health as schemas_health
from supervisor.api.shapes.system import imports as schemas_import
from supervisor.api.shapes.system import machines as schemas_gpus
from supervisor.api.shapes.system import machines as schemas_machines
from supervisor.api.shapes.system import offers as schemas_prices
from supervisor.api.shapes.system import offers as schemas_zones
from supervisor.api.shapes.system import tokens as schemas_tokens
from supervisor.api.shapes.system import webhooks as schemas_webhooks

KEYED = "IDEMPOTENCY_KEY_REUSED IDEMPOTENCY_KEY_IN_FLIGHT "
SPEC = (
    "INVALID_TIMEOUTS PRICE_UNKNOWN DATA_ELSEWHERE CODE_NOT_FOUND CODE_REFUSED CELL_FIXED RUN_COMPLETED RUN_STOPPING "
    "SPEC_DIFFERS STOP_NEWER PURGE_RUNNING TOO_MANY_ACTIVE_RUNS "
)

BYTES = ("application/octet-stream",)
TEXT = ("text/plain",)
STREAM = ("text/event-stream",)
RANGES = ("Range", "If-Range")
FILE_HEADERS = ("ETag", "Accept-Ranges", "Content-Disposition", "Content-Range", "Repr-Digest")

OPERATIONS: Mapping[str, Operation] = {
    "submit_run": Operation(
        {201: schemas.SubmittedRun, 200: schemas.SubmittedRun},
        bodies.SubmitBody,
        queries.SubmitParameters,
        also=schemas_plan.Plan,
        refuses=SPEC + KEYED + "RUN_ACTIVE RUN_ID_TAKEN OLD_RUN_THERE",
        takes=("Idempotency-Key",),
        sends=("Location", "ETag", "Idempotency-Replayed"),
    ),
    "import_old_run": Operation(
        {201: schemas_import.ImportedRun, 200: schemas_import.ImportedRun},
        schemas_import.ImportBody,
        refuses="OLD_RUN_NOT_FOUND OLD_RUN_UNREADABLE OLD_RUN_ALIVE IMPORT_RUNNING RUN_ID_TAKEN CONFLICT "
        "SECRET_IN_SPEC INVALID_TIMEOUTS PRICE_UNKNOWN",
    ),
    "list_runs": Operation({200: schemas.RunList}, query=bodies.RunListParameters, refuses="CURSOR_INVALID"),
    "show_run": Operation(
        {200: schemas_telemetry.ShownRun},
        refuses="RUN_NOT_FOUND",
        media={304: ()},
        takes=("If-None-Match",),
        sends=("ETag",),
    ),
    "change_run": Operation(
        {200: schemas_changes.ChangedRun},
        schemas_changes.ChangeBody,
        refuses="RUN_NOT_FOUND PRECONDITION_FAILED PRECONDITION_REQUIRED RUN_ENDED INVALID_TIMEOUTS PRICE_UNKNOWN "
        "DATA_ELSEWHERE SECRET_IN_SPEC",
        takes=("If-Match",),
        sends=("ETag",),
        json_types=(bodies.JSON, schemas_changes.MERGE_PATCH),
    ),
    "show_evidence": Operation(
        {200: schemas_evidence.Evidence}, refuses="RUN_NOT_FOUND EVIDENCE_NOT_FOUND FILES_PURGED"
    ),
    "show_console": Operation(
        {200: schemas_evidence.ConsoleText},
        query=bodies.ConsoleParameters,
        refuses="RUN_NOT_FOUND EVIDENCE_NOT_FOUND FILES_PURGED NOT_SUPPORTED",
    ),
    "show_spec": Operation({200: schemas_specs.RunSpecShown}, refuses="RUN_NOT_FOUND"),
    "show_launch": Operation({200: schemas_specs.LaunchShown}, refuses="RUN_NOT_FOUND"),
    "show_facts": Operation({200: schemas_facts.RunFacts}, refuses="RUN_NOT_FOUND"),
    "list_attempts": Operation({200: schemas_attempts.AttemptList}, refuses="RUN_NOT_FOUND"),
    "list_beats": Operation(
        {200: schemas_beats.Series}, query=schemas_beats.SeriesParameters, refuses="RUN_NOT_FOUND"
    ),
    "list_zones": Operation({200: schemas_zones.ZoneList}),
    "list_run_events": Operation(
        {200: schemas.EventList},
        query=bodies.RunEventParameters,
        refuses="RUN_NOT_FOUND STREAMS_FULL TOO_MANY_STREAMS",
        media={200: STREAM},
        takes=("Last-Event-ID",),
    ),
    "list_events": Operation(
        {200: schemas.EventList},
        query=bodies.AllEventParameters,
        refuses="STREAMS_FULL TOO_MANY_STREAMS",
        media={200: STREAM},
        takes=("Last-Event-ID",),
    ),
    "read_log": Operation(
        {200: schemas_logs.LogText},
        query=queries.LogParameters,
        also=schemas_logs.LogMatches,
        refuses="RUN_NOT_FOUND FILES_PURGED",
        sends=("X-Next-Offset",),
    ),
    "download_log": Operation(
        {},
        refuses="RUN_NOT_FOUND FILES_PURGED",
        media={200: TEXT},
        sends=("Content-Disposition",),
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
        {200: schemas_cost.PurgedRun},
        bodies.PurgeBody,
        refuses=KEYED + "RUN_NOT_FOUND PURGE_REFUSED",
        takes=("Idempotency-Key",),
        sends=("ETag", "Idempotency-Replayed"),
    ),
    "stop_run": Operation(
        {202: schemas.Run, 200: schemas.Run},
        refuses=KEYED + "RUN_NOT_FOUND",
        takes=("Idempotency-Key",),
        sends=("ETag", "Idempotency-Replayed"),
    ),
    "resume_run": Operation(
        {202: schemas.SubmittedRun, 200: schemas.SubmittedRun},
        bodies.ResumeBody,
        refuses=SPEC + KEYED + "RUN_NOT_FOUND RUN_ACTIVE CONFLICT",
        body_required=False,
        takes=("Idempotency-Key",),
        sends=("ETag", "Idempotency-Replayed"),
    ),
    "stop_runs": Operation(
        {200: schemas_changes.ManyDone},
        schemas_changes.ManyBody,
        schemas_changes.ManyParameters,
        refuses="CURSOR_INVALID COUNT_DIFFERS",
        body_required=False,
    ),
    "resume_runs": Operation(
        {200: schemas_changes.ManyDone},
        schemas_changes.ManyBody,
        schemas_changes.ManyParameters,
        refuses="CURSOR_INVALID COUNT_DIFFERS",
        body_required=False,
    ),
    "retry_run": Operation(
        {202: schemas.Run},
        refuses=KEYED + "RUN_NOT_FOUND NOTHING_TO_RETRY",
        takes=("Idempotency-Key",),
        sends=("ETag", "Idempotency-Replayed"),
    ),
    "approve_run": Operation(
        {202: schemas.Run},
        bodies.ApproveBody,
        refuses=KEYED + "RUN_NOT_FOUND NOTHING_TO_APPROVE APPROVAL_MISMATCH PULL_REQUIRED",
        takes=("Idempotency-Key",),
        sends=("ETag", "Idempotency-Replayed"),
    ),
    "push_beat": Operation(
        {200: schemas.BeatAnswer},
        schemas_beats.HeartbeatBody,
        refuses="NONCE_REFUSED RUN_NOT_FOUND RUN_ENDED",
    ),
    "list_run_files": Operation(
        {200: schemas_files.FileList},
        query=schemas_files.FileParameters,
        refuses="RUN_NOT_FOUND FILES_PURGED",
    ),
    "read_file": Operation(
        {},
        refuses=schemas_files.FILE_REFUSALS,
        media={200: BYTES, 206: BYTES},
        takes=RANGES,
        sends=FILE_HEADERS,
    ),
    "look_at_file": Operation(
        {},
        refuses=schemas_files.FILE_REFUSALS,
        media={200: (), 206: ()},
        takes=RANGES,
        sends=FILE_HEADERS,
    ),
    "note_results_pulled": Operation(
        {200: schemas.Run}, schemas_files.PulledBody, refuses="RUN_NOT_FOUND PULL_MISMATCH"
    ),
    "list_machines": Operation({200: schemas_machines.MachineList}, query=schemas_machines.MachineParameters),
    "collect_machines": Operation({200: schemas_machines.Collected}, schemas_machines.CollectBody),
    "list_gpus": Operation({200: schemas_gpus.GpuList}, refuses="NOT_SUPPORTED"),
    "bring_gpu_back": Operation(
        {200: schemas_gpus.GpuBack}, schemas_gpus.GpuBackBody, refuses="NOT_SUPPORTED"
    ),
    "list_prices": Operation({200: schemas_prices.PriceList}, refuses="NOT_SUPPORTED"),
    "refresh_prices": Operation(
        {200: schemas_prices.RefreshedPrices},
        schemas_prices.RefreshBody,
        refuses="NOT_SUPPORTED",
        body_required=False,
    ),
    "show_meta": Operation({200: schemas_health.Meta}),
    "show_loop": Operation({200: schemas_health.LoopShown}),
    "show_asker": Operation({200: schemas_health.Asker}),
    "show_metrics": Operation(
        {}, query=bodies.NoParameters, media={200: ("text/plain", "application/openmetrics-text")}
    ),
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
    "create_token": Operation(
        {201: schemas_tokens.TokenMade},
        schemas_tokens.CreateTokenBody,
        refuses="CONFLICT",
        sends=("Cache-Control",),
    ),
    "list_tokens": Operation({200: schemas_tokens.TokenList}),
    "revoke_token": Operation({200: schemas_tokens.TokenShown}, refuses="TOKEN_NOT_FOUND"),
    "add_webhook": Operation(
        {201: schemas_webhooks.WebhookMade},
        schemas_webhooks.AddWebhookBody,
        refuses="URL_REFUSED FORBIDDEN TOO_MANY_WEBHOOKS",
        sends=("Location",),
    ),
    "list_webhooks": Operation({200: schemas_webhooks.WebhookList}),
    "show_webhook": Operation({200: schemas_webhooks.WebhookShown}, refuses="WEBHOOK_NOT_FOUND"),
    "change_webhook": Operation(
        {200: schemas_webhooks.WebhookShown},
        schemas_webhooks.ChangeWebhookBody,
        refuses="WEBHOOK_NOT_FOUND URL_REFUSED FORBIDDEN CONFLICT",
    ),
    "remove_webhook": Operation({200: schemas_webhooks.WebhookShown}, refuses="WEBHOOK_NOT_FOUND CONFLICT"),
    "test_webhook": Operation({200: schemas_webhooks.WebhookTested}, refuses="WEBHOOK_NOT_FOUND CONFLICT"),
    "rotate_webhook": Operation({200: schemas_webhooks.WebhookMade}, refuses="WEBHOOK_NOT_FOUND CONFLICT"),
    "list_deliveries": Operation(
        {200: schemas_webhooks.DeliveryList},
        query=schemas_webhooks.DeliveryParameters,
        refuses="WEBHOOK_NOT_FOUND CURSOR_INVALID",
    ),
    "replay_delivery": Operation(
        {202: schemas_webhooks.Replayed}, refuses="WEBHOOK_NOT_FOUND DELIVERY_NOT_FOUND"
    ),
    "replay_failed_deliveries": Operation(
        {202: schemas_webhooks.Replayed},
        schemas_webhooks.ReplayBody,
        refuses="WEBHOOK_NOT_FOUND",
        body_required=False,
    ),
}
