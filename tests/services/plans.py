"""Plans on the use cases' bed."""

from __future__ import annotations

from typing import Any

from supervisor.domain.findings import OK, Finding
from supervisor.services.plan.plan import PlanSources, plan
from supervisor.services.runs.submit import SubmitRequest
from tests.fakes.callers import MEMBER
from tests.services.bed import COMMAND, Bed

Json = dict[str, Any]
OTHER = {"command": ["python", "other.py"]}
NO_CODE = "c" * 64
FOREVER = Finding("zones", OK, "told much too late")


def shown(run: Any, try_: Any, spec: Any) -> Json:
    return {"kind": "test", "metadata": {"run": run.run_id, "try": try_.launch_id, "spec": repr(spec)}}


def planned(
    bed: Bed, run_id: str | None = None, spec: Json = COMMAND, sources: PlanSources | None = None, **more: Any
) -> Json:
    follows = more.pop("code_follows", False)
    request = SubmitRequest(spec, run_id, **more)
    return plan(bed.parts, sources or PlanSources(tuple, shown), request, MEMBER, follows)


def check(told: Json, name: str) -> Json:
    (found,) = [one for one in told["checks"] if one["name"] == name]
    return dict(found)


NEAR = {**COMMAND, "same_region": "require"}
