"""Machines and runs as GET /v1/machines and POST /v1/gc show them."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

ACCOUNT: Json = {
    "provider": "gce",
    "name": "rav-ai",
    "number": "123456789012",
    "console_url": None,
    "noun": "project",
    "tool": "gcloud: --project=rav-ai",
    "compare": "Does your console or gcloud show another project? Compare: gcloud config list; "
    "gcloud compute instances list --project=rav-ai",
}
MACHINE: Json = {
    "machine": "spot-1a2b3c4d-a2-t1", "machine_id": "77", "provider": "gce", "zone": "us-east1-c", "state": "up",
    "detail": "RUNNING", "shape": "t4", "gpu": None, "spot": True, "market": "spot",
    "usd_per_h": 0.35,
    "created_at": "2026-01-01T00:00:00.000Z", "age_s": 8000.0, "ours": True, "run_id": "digits-7",
    "launch_id": "1.2.1", "attempt": 2, "use": "serves", "why": "serves attempt 2 of digits-7",
    "serves": "digits-7", "kept_until": None,
}  # fmt: skip
ORPHAN: Json = {
    **MACHINE, "machine": "spot-99999999-a1-t1", "run_id": "old-1", "attempt": None, "use": "orphan", "serves": None,
    "usd_per_h": None, "spot": False, "market": "on-demand", "why": "carries our label and serves no live run",
}  # fmt: skip
FOREIGN: Json = {
    **MACHINE, "machine": "somebody-s", "ours": False, "run_id": None, "attempt": None, "use": "foreign",
    "serves": None, "usd_per_h": None, "shape": "e2-small", "spot": False, "market": "on-demand",
    "why": "not ours: it carries no supervisor's id",
}  # fmt: skip


def a_machine(**changes: Any) -> Json:
    return {**MACHINE, **changes}


def an_active_run(run_id: str = "digits-7", status: str = "running", **changes: Any) -> Json:
    fields = {"usd_per_h": 0.35, "machines": ["spot-1a2b3c4d-a2-t1"], "kept": False}
    return {"run_id": run_id, "status": status, **fields, **changes}


def seen(machines: tuple[Json, ...] = (), runs: tuple[Json, ...] = (), foreign: int = 0, **more: Any) -> Json:
    ours = [machine for machine in machines if machine["ours"]]
    prices = [machine["usd_per_h"] for machine in ours]
    summary = {
        "ours": len(ours), "foreign": foreign, "usd_per_h": sum(price for price in prices if price is not None),
        "unpriced": sum(price is None for price in prices),
    }  # fmt: skip
    return {
        "account": ACCOUNT, "machines": list(machines), "summary": summary, "unread_zones": [], "runs": list(runs),
        "missing": [], "meters": [], **more,
    }  # fmt: skip


def collected(released: tuple[Json, ...] = (), left: tuple[Json, ...] = (), **more: Any) -> Json:
    prices = [machine["usd_per_h"] for machine in released]
    return {
        "dry_run": True, "account": ACCOUNT, "released": list(released), "left": list(left), "foreign": 0, "serving": 0,
        "usd_per_h": sum(price for price in prices if price is not None),
        "unpriced": sum(price is None for price in prices), "unread_zones": [], **more,
    }  # fmt: skip
