"""BigQuery on loopback with one table: a billing export that lies in a file, one JSON object a line.

The rows have the form of Google's detailed export (nested `service`, `sku`, `labels`, `usage`, `credits` and so on).
The server does what the query says by its own means: it filters by the parameters, groups and sums, and sends text in
cells and pages as BigQuery does. A query that reads partitions that it need not read,
or has no bound of bytes, is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.cloud.web import Request, Response, WebServer

EXPORT = Path(__file__).parent / "billing_export.jsonl"
TABLE = "p.billing.gcp_billing_export_resource_v1_0A1B2C_3D4E5F_6A7B8C"
_QUERIES = re.compile(r"/bigquery/v2/projects/([^/]+)/queries(?:/([^/]+))?")
COLUMNS = (
    "day supervisor_id run_id launch_id machine_name zone sku cost_type unit cores currency rate amount cost credits"
)


def exported(path: Path = EXPORT) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class BigQueryFake:
    """`page_rows`: of one page. `slow`: so many answers say that the job is not complete. `refusal`: the answer of
    every request. `lost_page`: the last page has no rows. `bytes_scanned`: by each query."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows, self.requests = rows, list[Request]()
        self.page_rows, self.slow, self.bytes_scanned = 1000, 0, 1 << 20
        self.refusal: Response | None = None
        self.lost_page = self.renamed = False
        self._results: dict[str, tuple[list[str], list[list[str | None]]]] = {}
        self.server = WebServer(self._answer)

    @property
    def queries(self) -> list[Request]:
        return [request for request in self.requests if request.method == "POST"]

    def _answer(self, request: Request) -> Response:
        self.requests.append(request)
        match = _QUERIES.fullmatch(request.path)
        if not request.headers.get("authorization"):
            return refused(401, "authError", "Request had invalid authentication credentials.")
        if self.refusal is not None:
            return self.refusal
        if match is None or match[1] != "p":
            return refused(404, "notFound", "Not found")
        job = match[2] or f"job_{len(self._results)}"
        if request.method == "POST":
            refusal = self._run(job, request.json())
            if refusal is not None:
                return refusal
        elif request.one("location") != "EU" or job not in self._results:
            return refused(404, "notFound", f"Not found: Job p:{job}")
        return Response(200, self._page(job, int(request.one("pageToken") or 0)))

    def _run(self, job: str, asked: Mapping[str, Any]) -> Response | None:
        sql = asked["query"]
        values = {each["name"]: each["parameterValue"]["value"] for each in asked["queryParameters"]}
        assert asked["useLegacySql"] is False
        assert asked["formatOptions"] == {"useInt64Timestamp": True}
        assert f"FROM `{TABLE}`" in sql
        assert "_PARTITIONTIME >= TIMESTAMP_TRUNC(@since, DAY)" in sql
        assert set(re.findall(r"@([a-z_]+)", sql)) == set(values)
        most = int(asked["maximumBytesBilled"])
        if self.bytes_scanned > most:
            text = f"Query exceeded limit for bytes billed: {most}. {self.bytes_scanned} or higher required."
            return refused(400, "bytesBilledLimitExceeded", text)
        since = _at(values["since"])
        rows = [row for row in self.rows if _at(row["export_time"]) >= since // 86400 * 86400]
        if "until" not in values:
            times = [_at(row["export_time"]) for row in rows]
            self._results[job] = ["newest"], [[str(round(max(times) * 1e6)) if times else None]]
            return None
        chosen = [row for row in rows if since <= _at(row["usage_start_time"]) < _at(values["until"])]
        self._results[job] = COLUMNS.split(), grouped(chosen, values["supervisor_id"], values["prefix"])
        return None

    def _page(self, job: str, start: int) -> dict[str, Any]:
        reference = {"projectId": "p", "jobId": job, "location": "EU"}
        if self.slow > 0:
            self.slow -= 1
            return {"jobComplete": False, "jobReference": reference}
        names, rows = self._results[job]
        end = start + self.page_rows
        cells = [{"f": [{"v": value} for value in row]} for row in rows[start:end]]
        page: dict[str, Any] = {
            "jobComplete": True,
            "jobReference": reference,
            "schema": {"fields": [{"name": "x" if self.renamed else name, "type": "STRING"} for name in names]},
            "totalRows": str(len(rows)),
            "rows": [] if self.lost_page and start else cells,
            "totalBytesProcessed": str(self.bytes_scanned),
        }
        return page | ({"pageToken": str(end)} if end < len(rows) else {})


def grouped(rows: list[dict[str, Any]], supervisor_id: str, prefix: str) -> list[list[str | None]]:
    """The rows of this supervisor, or of machines with its prefix, summed by everything but the figures."""
    sums: dict[tuple[str | None, ...], list[float]] = {}
    for row in rows:
        labels = _map(row.get("labels"))
        name = (row.get("resource") or {}).get("name") or ""
        if labels.get("spot-supervisor-id") != supervisor_id and not name.startswith(prefix):
            continue
        rate, usage = row.get("currency_conversion_rate"), row.get("usage") or {}
        key = (
            row["usage_start_time"][:10], labels.get("spot-supervisor-id", ""), labels.get("spot-run-id", ""),
            labels.get("spot-launch-id", ""), name, (row.get("location") or {}).get("zone") or "",
            row["sku"]["description"], row["cost_type"], usage.get("unit", ""),
            _map(row.get("system_labels")).get("compute.googleapis.com/cores", ""), row["currency"],
            None if rate is None else str(rate),
        )  # fmt: skip
        figures = sums.setdefault(key, [0.0, 0.0, 0.0])
        for at, figure in enumerate((usage.get("amount", 0.0), row["cost"], _credits(row))):
            figures[at] += figure
    return [[*key, *map(str, figures)] for key, figures in sums.items()]


def _credits(row: Mapping[str, Any]) -> float:
    return sum(each["amount"] for each in row.get("credits") or ())


def _map(pairs: Any) -> dict[str, str]:
    return {each["key"]: each["value"] for each in pairs or ()}


def _at(text: str) -> float:
    return datetime.fromisoformat(text.replace(" UTC", "+00:00")).timestamp()


def refused(status: int, reason: str, message: str) -> Response:
    error = {"code": status, "message": message, "errors": [{"message": message, "domain": "global", "reason": reason}]}
    return Response(status, {"error": error})
