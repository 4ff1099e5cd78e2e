"""The smoke of a run: the user's computer ran the command for a few steps, twice, before the submit.

The submit reports how it ended, and the run keeps that beside its spec. It says something about this spec and this code
alone: after a change of either the gates show it as not known, and so they do where it was old when the run began.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from supervisor.domain.gates.checks import PROVEN_S
from supervisor.domain.gates.verdicts import Verdict
from supervisor.domain.run import Run, SmokeRun
from supervisor.lifecycle.gates.rules import Known, Unread
from supervisor.lifecycle.gates.smoke import Smoke
from supervisor.wording.figures import age_text

OF_SMOKE = ("smoke", "smoke_first", "resumes")  # the checks that it answers
NONE_RAN = Unread("no smoke was run")
NO_STEP = Unread("the smoke reported no step")
ELSEWHERE = Unread("the smoke ran with another code or another spec")


def smoke_run(body: Mapping[str, Any]) -> SmokeRun:
    """From the body of a submit; `spec_sha256` is filled in when the spec is settled."""
    at: datetime = body["at"]
    values = {**body, "at": at.timestamp(), "code": body["code"] or "", "exit_codes": tuple(body["exit_codes"])}
    return SmokeRun(**values, spec_sha256="")


def smoke_of(smoke: SmokeRun | None, spec: Mapping[str, Any]) -> SmokeRun | None:
    """As it is stored with a run of this spec."""
    return None if smoke is None else replace(smoke, spec_sha256=spec_sha256(spec))


def spec_sha256(spec: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()


def facts_of_smoke(run: Run, spec: Mapping[str, Any]) -> Smoke:
    """Of the checks that the smoke answers; the others are not read."""
    unread = _why_unread(run, spec)
    if unread is not None or run.smoke is None:
        return Smoke(ran_first=unread, exit_code=unread, first_step=unread)
    smoke = run.smoke
    reached, second = smoke.first_step, smoke.second_from
    # Where the second start had nothing left to do, it began at the end of the first one. Where the last step was not
    # saved, it began before that; the user's computer has compared the two already.
    resumed_from: Known[int] = NO_STEP if reached is None else reached if second is None else min(reached, second)
    return Smoke(
        ran_first=True,
        exit_code=max(smoke.exit_codes),
        traceback=False,
        last_line="",
        first_step=resumed_from,
        second_from=reached if second is None else second,
    )


def _why_unread(run: Run, spec: Mapping[str, Any]) -> Unread | None:
    smoke = run.smoke
    if smoke is None:
        return NONE_RAN
    if smoke.code != (run.policy.code or "") or smoke.spec_sha256 != spec_sha256(spec):
        return ELSEWHERE
    age_s = run.generation_at - smoke.at
    return None if age_s < PROVEN_S else Unread(f"the smoke was {age_text(age_s)} old when the run began")


def by_whom(verdict: Verdict, run: Run, spec: Mapping[str, Any], from_smoke: bool) -> Verdict:
    """A verdict of the smoke has its time and its computer. `from_smoke`: also that of the resume rests on it."""
    rests = verdict.check in OF_SMOKE and (from_smoke or verdict.check != "resumes")
    if run.smoke is None or not rests or _why_unread(run, spec) is not None:
        return verdict
    return replace(verdict, at=run.smoke.at, by=run.smoke.computer)
