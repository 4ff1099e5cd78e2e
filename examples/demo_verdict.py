"""What the demo claims at the end, and the conditions for that claim: both from facts alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
# One cause for each disaster that ends an attempt; the stock-out ends a try, the supervisor's end nothing.
EXPECTED_CAUSES = ("preempted", "orphaned", "stalled")  # on this computer, which keeps no record of a machine's end


@dataclass(frozen=True)
class Facts:
    """`run`, `attempts`: the last response of the API. Hashes: of the files, None where there is none. `survived`: the
    training was the same process before and after the supervisor's kill -9, and had made steps without it; None = the
    demo did not get that far. `pulled`: files that `spot pull` verified, None when its last line was not OK.
    `left_behind`: processes that were still running after the end."""

    run_id: str
    run: Json = field(default_factory=dict)
    attempts: tuple[Json, ...] = ()
    weights_sha256: str | None = None
    uninterrupted_sha256: str | None = None
    survived: bool | None = None
    pulled: int | None = None
    left_behind: int = 0
    expected_causes: tuple[str, ...] = EXPECTED_CAUSES


def summary(facts: Facts) -> Json:
    """The demo's last line."""
    run, attempts = facts.run, facts.attempts
    return {
        "run_id": facts.run_id,
        "status": run.get("status"),
        "attempts": len(attempts),
        "causes": [attempt["cause"] for attempt in attempts],
        "zones": [attempt["placement"]["zone"] for attempt in attempts],
        "steps_lost": sum(attempt["steps_lost"] or 0 for attempt in attempts),
        "results_verified": _verified(run),
        "pulled": facts.pulled,
        "weights_sha256": facts.weights_sha256,
        "uninterrupted_sha256": facts.uninterrupted_sha256,
    }


def problems(facts: Facts) -> list[str]:
    """Every expectation that does not hold; empty = the demo has shown what it promises."""
    shown = summary(facts)
    causes: list[str | None] = shown["causes"]
    missing = [f"expected an attempt that ended {cause}" for cause in facts.expected_causes if cause not in causes]
    if shown["status"] != "completed":
        missing.append(f"expected status completed, found {shown['status']}")
    if causes[-1:] != ["finished"]:
        missing.append(f"expected the last attempt to end finished, found {causes[-1] if causes else 'none'}")
    if not any(attempt_try["cause"] == "no_capacity" for attempt in facts.attempts for attempt_try in attempt["tries"]):
        missing.append("expected a try that met no_capacity")
    if not facts.survived:
        what = "the demo did not get that far" if facts.survived is None else "it was not the same process"
        missing.append(f"expected the training to survive the supervisor's kill -9: {what}")
    if not shown["results_verified"]:
        missing.append("expected verified results with nothing missing")
    if not facts.pulled or (shown["results_verified"] and facts.pulled != facts.run["results"]["files"]):
        missing.append(f"expected every result to be pulled, found {facts.pulled}")
    if facts.weights_sha256 is None or facts.weights_sha256 != facts.uninterrupted_sha256:
        missing.append(
            f"expected equal weights: with disasters {facts.weights_sha256}, without {facts.uninterrupted_sha256}"
        )
    if facts.left_behind:
        missing.append(f"expected no process left behind, found {facts.left_behind}")
    return missing


def _verified(run: Json) -> bool:
    """The supervisor compared the results in its store with the declared ones, and nothing is missing."""
    results = run.get("results")
    return bool(run.get("results_manifest_sha256")) and results is not None and not results["missing"]
