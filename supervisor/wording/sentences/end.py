"""What is said of a run whose work is ending or over, in clauses that `sentences.status_text` joins."""

from __future__ import annotations

from supervisor.domain.run import Run
from supervisor.domain.spending import run_cost_usd, run_on_demand_usd
from supervisor.domain.status import Status
from supervisor.wording.figures import (
    age_text,
    clip,
    clock_text,
    count_text,
    money_text,
    plural,
    size_text,
    until_text,
)
from supervisor.wording.forecast import live_pulse, stop_limit_at
from supervisor.wording.sentences.failed import DETAIL_LIMIT, LIMIT_PHRASES, colon, failure

IMPORTED = "Imported from "  # what the detail of an imported run begins with, until it is resumed


def finishing(run: Run, now: float) -> list[str]:
    since = age_text(now - run.status_since)
    if loss_accepted(run) and run.approval is not None:
        who = clip(run.approval.actor, 60)
        return [f"{who} has given the results up{_billing(run)}", "Next: failed on the coming tick"]
    if run.needs_person:
        return [
            f"The command ended well, but its results are not verified for {since}{_billing(run)}",
            f"Next: the machine is kept until you answer; `spot approve {run.run_id} --accept-loss REASON` drops them",
        ]
    pulse = live_pulse(run)
    told = f" ({clip(pulse.message, 100)})" if pulse is not None and pulse.message else ""
    return [
        f"The command ended well; its results are being saved and verified for {since}{told}{_billing(run)}",
        f"Next: completed once they are verified (limit {age_text(run.policy.stall.finishing_s)})",
    ]


def loss_accepted(run: Run) -> bool:
    """The person who is needed has answered; the loop has not come to it yet."""
    return run.approval is not None and bool(run.approval.accept_loss)


def _billing(run: Run) -> str:
    price = run.attempt.price_usd_per_h if run.attempt is not None else None
    return f"; the machine bills {money_text(price)}/h" if price else ""


def stopping(run: Run, now: float) -> list[str]:
    first = _asked(run, now)
    begun = run.status == Status.STOPPING  # else asked for just now: the coming tick begins it
    if not begun and run.open_try is None and run.live_attempt is None:
        return [first, "Next: stopped on the coming tick"]
    if run.live_attempt is not None:
        limit_at = stop_limit_at(run) if begun else now + run.policy.stop_grace_s
        if limit_at is not None and limit_at > now:
            return [first, f"Next: waiting for the final checkpoint (up to {until_text(limit_at, now)})"]
        return [first, "The time for a final checkpoint is over", "Next: the machine is killed and released"]
    if run.open_try is not None:
        return [first, "Next: the request for a machine is still open; what comes of it is deleted at once"]
    return [first, "Next: stopped as soon as the machine is known to be gone"]


def _asked(run: Run, now: float) -> str:
    stop = run.stop
    if stop is None:
        return "Stopping"
    ago = age_text(now - stop.at)
    if stop.cause in LIMIT_PHRASES:
        return f"{LIMIT_PHRASES[stop.cause]}{colon(run.detail)}; stopping since {ago}"
    return f"Stop asked for by {_who(run)} {ago} ago"


def _who(run: Run) -> str:
    if run.stop is None:
        return "nobody known"
    return "a .stop marker" if run.stop.source == "marker" else clip(run.stop.actor, 60) or "nobody known"


def awaiting_teardown(run: Run, now: float) -> list[str]:
    outcome = run.outcome
    files = (
        f" ({plural(outcome.files, 'file')}, {size_text(outcome.size_bytes)})" if outcome is not None else ""
    )
    machine = clip(run.attempt.machine_name, 60) if run.attempt is not None else ""
    asks = run.policy.on_success == "ask"
    why = "is kept until you agree" if asks else "cannot be had back once released"
    step = f"approve its release with `spot approve {run.run_id}`"
    if run.awaits_pull:
        why = "is kept until the results are pulled" + (" and you agree" if asks else "")
        step = f"pull them with `spot pull {run.run_id}`" + (", then approve its release" if asks else "")
    price = run.attempt.price_usd_per_h if run.attempt is not None else None
    bills = f"It bills {money_text(price)}/h meanwhile" if price else ""
    asked_until = max((item.until for item in run.retiring), default=0.0)
    without = (
        f"; without an answer it is released at {clock_text(asked_until, now)}" if asked_until > now else ""
    )
    return [
        f"Results verified{files}",
        f"{machine or 'The machine'} {why}",
        bills,
        f"Next: {step}{without}",
    ]


def completed(run: Run, now: float) -> list[str]:
    steps = _last_step(run)
    trained = f", {plural(steps, 'step')}" if steps is not None else ""
    return [
        f"Completed after {_story(run)}{trained}, results verified",
        _cost(run, now),
        *_still_there(run, now),
        *_purged(run, now),
    ]


def partial(run: Run, now: float) -> list[str]:
    missing = ", ".join(run.outcome.missing) if run.outcome is not None else ""
    what = clip(missing or run.detail, DETAIL_LIMIT) or "something that was promised"
    return [
        f"Finished after {_story(run)}, all uploads verified, but missing: {what}",
        _cost(run, now),
        *_still_there(run, now),
        *_purged(run, now),
        _resume(run),
    ]


def _story(run: Run) -> str:
    """'9 h 41 min (4 attempts, 3 preemptions)'"""
    counted = run.counters
    preempted = f", {plural(counted.preemptions, 'preemption')}" if counted.preemptions else ""
    return (
        f"{age_text(run.status_since - run.generation_at)} ({plural(counted.attempts, 'attempt')}{preempted})"
    )


def _last_step(run: Run) -> int | None:
    if run.outcome is not None and run.outcome.step is not None:
        return run.outcome.step
    return run.attempt.step_last if run.attempt is not None else None


def _cost(run: Run, now: float) -> str:
    usd = run_cost_usd(run, now)
    if not run.cost_known and usd == 0:
        return "Cost unknown"
    text = f"Cost {'' if run.cost_known else 'at least '}{money_text(usd)}"
    on_demand = run_on_demand_usd(run, now)
    return f"{text}, on-demand would have been {money_text(on_demand)}" if on_demand > 0 else text


def _still_there(run: Run, now: float) -> list[str]:
    if not run.retiring:
        return []
    if run.kept_until is not None and run.kept_until > now:
        price = run.attempt.price_usd_per_h if run.attempt is not None else None
        bills = f" and bills {money_text(price)}/h" if price else ""
        return [f"Its machine is kept until {clock_text(run.kept_until, now)}{bills}"]
    return [f"{plural(len(run.retiring), 'machine')} still to be released"]


def _purged(run: Run, now: float) -> list[str]:
    if run.purging:
        return [f"Its files are being purged; `spot purge {run.run_id}` finishes that if it was cut off"]
    if run.files_gone and run.purged_at is not None:
        return [f"Its files were purged at {clock_text(run.purged_at, now)}: a resume begins from nothing"]
    return []


def _resume(run: Run) -> str:
    return f"Resume with `spot resume {run.run_id}`"


def stopped(run: Run, now: float) -> list[str]:
    at = run.stop.at if run.stop is not None else run.status_since
    newest = run.checkpoint_step
    kept = "No checkpoint was made" if newest is None else f"Checkpoint {count_text(newest)} is kept"
    kept = "No checkpoint is left" if run.files_gone else kept
    who = f" by {_who(run)}" if run.stop is not None else ""
    imported = run.stop is None and run.detail.startswith(IMPORTED)
    return [
        f"{clip(run.detail, DETAIL_LIMIT) if imported else f'Stopped{who}'} at {clock_text(at, now)}",
        _cost(run, now),
        *_still_there(run, now),
        *_purged(run, now),
        f"{kept}; resume with `spot resume {run.run_id}`",
    ]


def failed(run: Run, now: float) -> list[str]:
    words, advice = failure(run)
    newest = run.checkpoint_step
    return [
        words,
        "Last checkpoint: " + ("none" if newest is None else count_text(newest)),
        _cost(run, now),
        *_still_there(run, now),
        *_purged(run, now),
        f"{advice} `spot resume {run.run_id}`",
    ]
