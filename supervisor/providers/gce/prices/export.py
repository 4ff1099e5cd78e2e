"""Google's own bill: the detailed export of Cloud Billing, which lies in a table of BigQuery.

It is read through BigQuery's REST API with the session that every other request uses, so no further library is needed.
The sums are made there: a result has one row for each day, machine and kind of usage, in place of one an hour. A read
is whole or not at all: a page that is missing, a query that does not end, or a column of another name gives no result,
and never a smaller bill.

That the detailed export has `resource.name`, for Compute Engine the name that its user gave:
cloud.google.com/billing/docs/how-to/export-data-bigquery-tables/detailed-usage. Pages of a result, and queries that are
not complete yet: docs.cloud.google.com/bigquery/docs/reference/rest/v2/jobs/getQueryResults. A query over more than
`maximumBytesBilled` fails and costs nothing: `DatasourceOptions` of
docs.cloud.google.com/python/docs/reference/google-cloud-geminidataanalytics.

Not confirmed on a page of Google, and not seen on a real bill: cores are billed in core-seconds, and the system label
names the cores of the machine, so their quotient is the machine's time (in others' samples: 4 for an n2d-standard-4);
`currency_conversion_rate` is units of the currency for a dollar; partitions are days of the export, in UTC.
"""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from supervisor.contract.identifiers import label_value
from supervisor.domain.machines import LAUNCH_LABEL, RUN_LABEL, SUPERVISOR_LABEL
from supervisor.ports.platform import Bill, BillKind, BillLine
from supervisor.ports.provider import ProviderUnavailable
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.errors import ApiError, access_fix
from supervisor.providers.gce.config import GceConfig

BIGQUERY_URL = "https://bigquery.googleapis.com"
# Of a query, on demand, after the first TiB of a month, as others read it in 2026. Google's page was not available.
USD_PER_TIB = 6.25
GIB = 1 << 30
QUERIES = 2  # of one read
PAGE, PAGES = 10_000, 100
WAIT_MS, WAITS = 10_000, 6
# The export comes "throughout the day", without a promise. Usage counts as exported when lines that were exported so
# long after it are there.
SETTLES_S = 48 * 3600.0
TOO_LARGE = "bytesBilledLimitExceeded"

COLUMNS = (
    "day", "supervisor_id", "run_id", "launch_id", "machine_name", "zone", "sku", "cost_type", "unit", "cores",
    "currency", "rate", "amount", "cost", "credits",
)  # fmt: skip
_KEYS = 12  # so many columns are grouped by
_PLACED = "_PARTITIONTIME >= TIMESTAMP_TRUNC(@since, DAY)"  # exported since then: without older partitions
_CORES = re.compile(r"\b(Instance|optimized) Core\b|\bCore running\b")
_DISKS = re.compile(r"\b(PD Capacity|Hyperdisk|Storage PD)\b")
_ADDRESS = re.compile(r"\bExternal IP\b")
_TRAFFIC = re.compile(r"\b(Egress|Ingress|Data Transfer)\b")
_MACHINE = re.compile(r"\b(Core|Ram|GPU|Local Storage)\b")


class BillingExport:
    """Bills of ports/platform.py. `config.billing_table` is set. `compute`: with a deadline of half a minute."""

    def __init__(self, config: GceConfig, compute: Compute) -> None:
        self._config, self._compute = config, compute
        self._root = f"{(config.bigquery_endpoint or BIGQUERY_URL).rstrip('/')}/bigquery/v2/projects"
        most_usd = QUERIES * config.billing_read_gb / 1024 * USD_PER_TIB
        self.terms = f"{config.billing_table} of BigQuery; a read costs at most ${most_usd:.2f} (gce_billing_read_gb)"

    def read(self, since: float, until: float, supervisor_id: str) -> Bill:
        """Raises ProviderUnavailable: there is no result then."""
        config = self._config
        begin = {"since": ("TIMESTAMP", _time(since))}
        ours = {
            "until": ("TIMESTAMP", _time(until)),
            "supervisor_id": ("STRING", label_value(supervisor_id)),
            "prefix": ("STRING", f"{config.machine_prefix}-"),
        }
        try:
            newest = self._rows(_newest_sql(config.billing_table), ("newest",), begin)
            lines = self._rows(_lines_sql(config.billing_table), COLUMNS, {**begin, **ours})
            exported_at = None if newest[0]["newest"] is None else float(newest[0]["newest"]) / 1e6
            settled = None if exported_at is None else exported_at - SETTLES_S
            return Bill(since, until, settled, tuple(map(line_of, lines)))
        except ApiError as error:
            raise ProviderUnavailable(f"the billing export could not be read: {error}{self._fix(error)}") from error
        except (ValueError, TypeError, AttributeError, LookupError, OverflowError) as error:
            raise ProviderUnavailable(f"the billing export was not understood: {error}") from error

    def _fix(self, error: ApiError) -> str:
        if error.reason == TOO_LARGE or "bytes billed" in error.text:
            return ". To fix it: set a larger gce_billing_read_gb"
        fix = access_fix(error, "bigquery.googleapis.com", self._config.project)
        if not fix and error.status == 403:
            fix = (
                f"give the supervisor's account roles/bigquery.jobUser on {self._config.project} and "
                f"roles/bigquery.dataViewer on the dataset of {self._config.billing_table}"
            )
        return f". To fix it: {fix}" if fix else ""

    def _rows(
        self, sql: str, columns: Sequence[str], values: Mapping[str, tuple[str, str]]
    ) -> list[dict[str, str | None]]:
        """All rows, by the names of the columns. ApiError, ValueError: not all of them are here."""
        body = {
            "query": sql,
            "useLegacySql": False,
            "maximumBytesBilled": str(self._config.billing_read_gb * GIB),
            "timeoutMs": WAIT_MS,
            "maxResults": PAGE,
            "formatOptions": {"useInt64Timestamp": True},
            "requestId": uuid.uuid4().hex,  # a repeat of this request is no second query
            "parameterMode": "NAMED",
            "queryParameters": [
                {"name": name, "parameterType": {"type": kind}, "parameterValue": {"value": value}}
                for name, (kind, value) in values.items()
            ],
        }
        page = self._completed(self._compute.other_api("POST", f"{self._root}/{self._config.project}/queries", body))
        rows = _page_rows(page, columns)
        for _ in range(PAGES):
            if not page.get("pageToken"):
                break
            page = self._completed(self._next(page, pageToken=page["pageToken"]))
            rows += _page_rows(page, columns)
        if page.get("pageToken") or len(rows) != int(page["totalRows"]):
            raise ValueError(f"{len(rows)} of {page.get('totalRows')} rows came")
        return rows

    def _completed(self, page: dict[str, Any]) -> dict[str, Any]:
        for _ in range(WAITS):
            if page.get("errors"):
                raise ValueError(str(page["errors"][0].get("message", "the query has failed")))
            if page.get("jobComplete"):
                return page
            page = self._next(page)
        raise ApiError("the query has not ended in a minute")

    def _next(self, page: Mapping[str, Any], **more: str) -> dict[str, Any]:
        job = page["jobReference"]
        query: dict[str, str | int] = {"timeoutMs": WAIT_MS, "maxResults": PAGE, "location": job.get("location", "")}
        query |= {"formatOptions.useInt64Timestamp": "true", **more}
        return self._compute.other_api("GET", f"{self._root}/{job['projectId']}/queries/{job['jobId']}", None, **query)


def _newest_sql(table: str) -> str:
    return f"SELECT MAX(export_time) AS newest FROM `{table}` WHERE {_PLACED}"  # noqa: S608 - settings check the name


def _lines_sql(table: str) -> str:
    """Label keys are constants, and the name of the table was checked with the settings."""
    label = "IFNULL((SELECT value FROM UNNEST({}) WHERE key = '{}' LIMIT 1), '') AS {}".format
    return f"""
SELECT
  FORMAT_TIMESTAMP('%Y-%m-%d', usage_start_time) AS day,
  {label("labels", SUPERVISOR_LABEL, "supervisor_id")},
  {label("labels", RUN_LABEL, "run_id")},
  {label("labels", LAUNCH_LABEL, "launch_id")},
  IFNULL(resource.name, '') AS machine_name,
  IFNULL(location.zone, '') AS zone,
  sku.description AS sku,
  cost_type,
  IFNULL(usage.unit, '') AS unit,
  {label("system_labels", "compute.googleapis.com/cores", "cores")},
  currency,
  CAST(currency_conversion_rate AS STRING) AS rate,
  SUM(usage.amount) AS amount,
  SUM(cost) AS cost,
  SUM(IFNULL((SELECT SUM(amount) FROM UNNEST(credits)), 0)) AS credits
FROM `{table}`
WHERE {_PLACED} AND usage_start_time >= @since AND usage_start_time < @until
  AND (EXISTS (SELECT 1 FROM UNNEST(labels) WHERE key = '{SUPERVISOR_LABEL}' AND value = @supervisor_id)
    OR STARTS_WITH(resource.name, @prefix))
GROUP BY {", ".join(map(str, range(1, _KEYS + 1)))}"""  # noqa: S608


def _page_rows(page: Mapping[str, Any], columns: Sequence[str]) -> list[dict[str, str | None]]:
    names = tuple(field["name"] for field in page["schema"]["fields"])
    if names != tuple(columns):
        raise ValueError(f"its columns are {', '.join(names)}")
    return [dict(zip(columns, (cell["v"] for cell in row["f"]), strict=True)) for row in page.get("rows") or ()]


def line_of(row: Mapping[str, str | None]) -> BillLine:
    """ValueError for a figure that is none."""
    sku, rate = row["sku"] or "", row["rate"]
    kind = kind_of(sku, row["cost_type"] or "regular")
    seconds = None
    if kind is BillKind.MACHINE and _CORES.search(sku) and row["unit"] == "seconds" and row["cores"]:
        seconds = _figure(row["amount"]) / _figure(row["cores"])
    return BillLine(
        day=str(row["day"]),
        kind=kind,
        supervisor_id=row["supervisor_id"] or "",
        run_id=row["run_id"] or "",
        launch_id=(row["launch_id"] or "").replace("-", "."),
        machine_name=row["machine_name"] or "",
        zone=row["zone"] or "",
        seconds=seconds,
        cost=_figure(row["cost"]),
        credits=_figure(row["credits"]),
        currency=str(row["currency"]),
        rate=_figure(rate) if rate is not None else 1.0 if row["currency"] == "USD" else None,
    )


def kind_of(sku: str, cost_type: str) -> BillKind:
    """By the texts of the price list."""
    if cost_type != "regular":
        return BillKind.OTHER
    for kind, text in (
        (BillKind.DISK, _DISKS),
        (BillKind.ADDRESS, _ADDRESS),
        (BillKind.TRAFFIC, _TRAFFIC),
        (BillKind.MACHINE, _MACHINE),
    ):
        if text.search(sku):
            return kind
    return BillKind.OTHER


def _figure(text: str | None) -> float:
    """BigQuery sends figures as text."""
    value = float(text)  # type: ignore[arg-type]  # None is a TypeError, which the reader reports
    if not math.isfinite(value):
        raise ValueError(f"{text} is no figure")
    return value


def _time(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}+00:00"
