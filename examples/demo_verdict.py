"""What the demo claims in the end, and what must hold for the claim: both from facts alone, nothing by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
# One cause for each disaster that ends an attempt; the stock-out ends a try, the supervisor's death nothing.
EXPECTED_CAUSES = ("preempted", "orphaned", "stalled")  # on this computer, which keeps no record of a machine's end


@dataclass(frozen=True)
class Facts:
    """`run`, `attempts`: as the API gave them last. Hashes: of the files, None where there is none. `survived`: the
    training was the same process before and after the supervisor's kill -9, and had stepped on without it; None = it
    did not come to that. `pulled`: files that `spot pull` proved to be here, None when its last line was not OK.
    `left_behind`: processes that were still there after the end."""

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
    """What was expected and is not so; empty = the demo has shown what it promises."""
    shown = summary(facts)
    causes: list[str | None] = shown["causes"]
    found = [f"expected an attempt that ended {cause}" for cause in facts.expected_causes if cause not in causes]
    if shown["status"] != "completed":
        found.append(f"expected status completed, found {shown['status']}")
    if causes[-1:] != ["finished"]:
        found.append(f"expected the last attempt to end finished, found {causes[-1] if causes else 'none'}")
    if not any(one["cause"] == "no_capacity" for attempt in facts.attempts for one in attempt["tries"]):
        found.append("expected a try that met no_capacity")
    if not facts.survived:
        what = "it did not come to that" if facts.survived is None else "it was not the same process"
        found.append(f"expected the training to survive the supervisor's kill -9: {what}")
    if not shown["results_verified"]:
        found.append("expected verified results with nothing missing")
    if not facts.pulled or (shown["results_verified"] and facts.pulled != facts.run["results"]["files"]):
        found.append(f"expected every result to be pulled, found {facts.pulled}")
    if facts.weights_sha256 is None or facts.weights_sha256 != facts.uninterrupted_sha256:
        found.append(
            f"expected equal weights: with disasters {facts.weights_sha256}, without {facts.uninterrupted_sha256}"
        )
    if facts.left_behind:
        found.append(f"expected no process left behind, found {facts.left_behind}")
    return found


def _verified(run: Json) -> bool:
    """The supervisor compared the results in its store with what the training declared, and nothing is missing."""
    results = run.get("results")
    return bool(run.get("results_manifest_sha256")) and results is not None and not results["missing"]
