"""G5 and G6: are the results safe, was the teardown approved and done, and has the bill ended?

A person who accepts the loss of the results (`spot approve --accept-loss`) turns each open verdict of G5 into a warning
that says so; nothing else passes it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from supervisor.domain.gates.verdicts import State, Verdict
from supervisor.lifecycle.gates.rules import Judged, Known, Rule, Rules, judged, listed, short_hash
from supervisor.wording.figures import money_text, size_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """None = not read. `differing`: files unlike their manifest. `saved`, `expected`: numbers of files. `promised`:
    results of the spec that are missing. `copies`: places off this machine. `not_loading`: results whose load check
    failed. `made_by`, `code`: hashes of the code that made them and of the run. `accepted_loss`: who gave them up and
    why, "" = nobody did."""

    differing: Known[tuple[str, ...]] = None
    saved: Known[int] = None
    expected: Known[int] = None
    promised: Known[tuple[str, ...]] = None
    copies: Known[tuple[str, ...]] = None
    not_loading: Known[tuple[str, ...]] = None
    made_by: Known[str] = None
    code: Known[str] = None
    verified: Known[int] = None
    accepted_loss: str = ""


@dataclass(frozen=True, slots=True)
class Approved:
    """What a person approved. `results`: hash of the manifest that the person has seen, "" = there was none.
    `accepts_loss`: whatever the results are."""

    actor: str
    verb: str
    machine: str
    results: str = ""
    accepts_loss: bool = False


NOT_YET = Approved("", "", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Teardown:
    """None = not read. `verb`, `machine`: what is to be done, to which machine. `approved`: NOT_YET = nobody approved.
    `results`: the hash of the present manifest, "" = there are no results. `done`: the verb was carried out.
    `released_at`, `gone_at`: the request, and a read that did not list the machine as billed; 0 = no such read yet.
    `left_bytes`, `left_usd_per_month`: storage that stays on the machine's platform."""

    verb: Known[str] = None
    machine: Known[str] = None
    approved: Known[Approved] = None
    results: Known[str] = None
    done: Known[bool] = None
    released_at: Known[float] = None
    gone_at: Known[float] = None
    left_bytes: Known[int] = None
    left_usd_per_month: Known[float] = None


def give_up(verdict: Verdict, accepted_loss: str) -> Verdict:
    """The verdict of G5 after a person accepted the loss of the results."""
    if not accepted_loss or verdict.state == State.PASS:
        return verdict
    return replace(verdict, state=State.WARN, fact=f"{verdict.fact}; {accepted_loss}", fix="")


def _copy_checked(differing: tuple[str, ...]) -> Judged:
    return judged(not differing, differing=listed(differing))


def _result_count(saved: int, expected: int, promised: tuple[str, ...]) -> Judged:
    """A promised file that the command never wrote ends the run as partial: a warning, nothing is lost by the end."""
    good, worse = saved >= expected and not promised, State.WARN if saved >= expected else State.FAIL
    return judged(good, worse, saved=str(saved), expected=str(expected), missing=listed(promised))


def _copy_elsewhere(copies: tuple[str, ...]) -> Judged:
    return judged(bool(copies), copies=listed(copies))


def _load_check(not_loading: tuple[str, ...]) -> Judged:
    return judged(not not_loading, failed=listed(not_loading))


def _provenance(made_by: str, code: str) -> Judged:
    return judged(made_by == code, made=short_hash(made_by), run_code=short_hash(code))


def _all_verified(verified: int, files: int) -> Judged:
    return judged(verified == files, verified=str(verified), files=str(files))


def _approved(verb: str, machine: str, approved: Approved, results: str) -> Judged:
    """An approval counts for one verb, one machine and the manifest that the person has seen."""
    same_end = (approved.verb, approved.machine) == (verb, machine)
    fits = same_end and (approved.accepts_loss or approved.results == results)
    by = "not approved"
    if approved.actor:
        other = f"{approved.actor} approved {approved.verb} of {approved.machine}, or it had other results"
        by = f"approved by {approved.actor}" if fits else other
    return judged(bool(approved.actor) and fits, verb=verb, machine=machine, approval=by)


def _verb_done(verb: str, machine: str, done: bool) -> Judged:
    return judged(done, verb=verb, machine=machine, done="done" if done else "not done yet")


def _meter_stopped(machine: str, released_at: float, gone_at: float) -> Judged:
    """Only a read after the request counts: the listing of before still had the machine, or had not got it yet."""
    good = 0 < released_at <= gone_at
    text = "a later read shows that it bills no more" if good else "no later read shows that it bills no more"
    return judged(good, meter=f"{machine}: {text}")


def _storage_left(left_bytes: int, usd: float) -> Judged:
    return judged(not left_bytes or not usd, State.WARN, size=size_text(left_bytes), price=money_text(usd))


RESULTS_RULES: Rules = {
    "copy_checked": Rule(("differing",), _copy_checked),
    "result_count": Rule(("saved", "expected", "promised"), _result_count),
    "copy_elsewhere": Rule(("copies",), _copy_elsewhere),
    "load_check": Rule(("not_loading",), _load_check),
    "provenance": Rule(("made_by", "code"), _provenance),
    "all_verified": Rule(("verified", "expected"), _all_verified),
}
TEARDOWN_RULES: Rules = {
    "approved": Rule(("verb", "machine", "approved", "results"), _approved),
    "verb_done": Rule(("verb", "machine", "done"), _verb_done),
    "meter_stopped": Rule(("machine", "released_at", "gone_at"), _meter_stopped),
    "storage_left": Rule(("left_bytes", "left_usd_per_month"), _storage_left),
}
