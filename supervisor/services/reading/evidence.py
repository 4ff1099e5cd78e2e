"""What was kept of a run's attempts: the evidence of one attempt, and the facts of all of them.

Evidence says why an attempt ended and on which readings that rests. Facts say what each attempt ran on (code, versions,
packages, GPUs, seeds), and where two attempts differ. The loop and the agents write both to the object store
(lifecycle/evidence composes the evidence and compares the facts); here they are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NotRequired, cast

from pydantic import Field
from typing_extensions import TypedDict

from supervisor.contract import runfiles
from supervisor.domain.attempt import Attempt
from supervisor.domain.errors import EvidenceNotFound, Unavailable
from supervisor.domain.run import Run
from supervisor.lifecycle.evidence import attempt_evidence as evidence
from supervisor.lifecycle.evidence import facts as known_facts
from supervisor.ports.objectstore import ObjectMissing, ObjectStore, StoreUnavailable
from supervisor.services.parts import Parts
from supervisor.services.reading.queries import Queries
from supervisor.services.runs.purge import refuse_purged
from supervisor.services.runs.spec_secrets import shown_spec
from supervisor.services.views.attempt_view import CommandEnd
from supervisor.services.views.formats import Json
from supervisor.services.views.run_view import CauseWord
from supervisor.wording.figures import clip

COMPARED_ATTEMPTS = 3  # before this one: each costs a request

ChangedPackage = TypedDict("ChangedPackage", {"was": str, "is": str})


class DifferingPackages(TypedDict):
    """Lines in the format of `pip freeze`, 20 at most in all; `left_out` counts the others."""

    changed: list[ChangedPackage]
    added: list[str]
    removed: list[str]
    left_out: int


DifferingFact = TypedDict(
    "DifferingFact",
    {
        "attempt": int,
        "against": int,
        "fact": str,
        "was": str | None,
        "is": str | None,
        "packages": DifferingPackages | None,
    },
)
DifferingFact.__doc__ = (
    "`against`: the last attempt before it whose facts are known. `packages` null: only the hashes are known to differ."
)


class AttemptFacts(TypedDict):
    attempt: int
    generation: int
    cause: CauseWord
    facts: Annotated[
        Mapping[str, Any] | None,
        Field(description="As the agent wrote them. A missing fact was not found out; null was: there is none."),
    ]


class RunFacts(TypedDict):
    """What a paper needs, of the 200 newest attempts."""

    run_id: str
    spec: Mapping[str, Any]
    command: str | list[str]
    code: str | None
    image: str | None
    attempts: list[AttemptFacts]
    differs: list[DifferingFact]


class EvidenceReadings(TypedDict):
    """Source, value and age of the readings on which the end and the release of the machine rest."""

    end: list[str]
    release: list[str]


class EvidenceMachine(TypedDict):
    name: str
    machine_id: str
    provider: str
    zone: str
    shape: str
    spot: bool


class EvidenceExit(CommandEnd):
    """`oom_kills` null: the kernel's counter could not be read. `disk_full`: the folder without space, with figures."""

    after_work: NotRequired[
        Annotated[bool, Field(description="the command failed after its last step, and its results were there")]
    ]
    in_setup: NotRequired[Annotated[bool, Field(description="the setup ended so, and the command was not started")]]


class EvidenceBeat(TypedDict):
    at: str
    sequence: int
    phase: str
    step: int | None
    total: int | None
    checkpoint_step: int | None
    stall_polls: int
    message: str
    metrics: dict[str, float]
    telemetry: dict[str, Any] | None


class Evidence(TypedDict):
    """`agent` null: `agent_missing` says why. Secrets are masked at their source."""

    version: int
    run_id: str
    generation: int
    attempt: int
    launch_id: str
    machine: EvidenceMachine
    started_at: str | None
    ended_at: str | None
    gone_at: str | None
    cause: CauseWord
    detail: str
    exit: EvidenceExit | None
    step_last: int | None
    step_kept: int | None
    readings: EvidenceReadings
    beat: Annotated[EvidenceBeat | None, Field(description="The last beat that the loop followed.")]
    agent: Annotated[
        dict[str, Any] | None,
        Field(
            description="What the agent wrote on a stall or at the end: exit, oom_kills, boot, disks, telemetry, "
            "processes, and of a stall the threads. Names may be added."
        ),
    ]
    agent_missing: str
    log_tail: Annotated[list[str], Field(description="At most 200 lines of at most 1000 characters.")]
    console: Annotated[str | None, Field(description="Key of the machine's console in the object store.")]


def show_facts(parts: Parts, queries: Queries, run_id: str) -> RunFacts:
    """`facts` of an attempt: as its agent wrote them, null when it has written none (yet). Only the newest facts carry
    the list of packages, the others its hash. Raises NotFound, StoreUnavailable."""
    run = queries.find(run_id)
    spec = shown_spec(parts.store.spec(run.key))
    attempts = parts.store.attempts(run.key)[-known_facts.ATTEMPTS_READ :]
    facts_of = [_facts(parts.objects, run.run_id, attempt.number) for attempt in attempts]
    numbers = [attempt.number for attempt in attempts]
    newest = max((at for at, facts in enumerate(facts_of) if facts is not None), default=None)
    return {
        "run_id": run.run_id,
        "spec": spec,
        "command": spec["command"],
        "code": spec.get("code"),
        "image": spec.get("image"),
        "attempts": [
            {
                "attempt": attempt.number,
                "generation": attempt.generation,
                "cause": attempt.cause,
                "facts": _shown(facts, with_packages=at == newest),
            }
            for at, (attempt, facts) in enumerate(zip(attempts, facts_of, strict=True))
        ],
        "differs": cast(list[DifferingFact], known_facts.differences(list(zip(numbers, facts_of, strict=True)))),
    }


def _facts(objects: ObjectStore, run_id: str, attempt: int) -> Json | None:
    try:
        chunks = objects.read(runfiles.facts(run_id, attempt), 0, known_facts.MAX_BYTES + 1)
        return known_facts.parse(b"".join(chunks))
    except ObjectMissing:
        return None


def differences_of(parts: Parts, run: Run, attempts: Sequence[Attempt], attempt: Attempt) -> tuple[Sequence[Json], str]:
    """(where the facts of this attempt differ from those of the last one before it that has some, why they could not be
    read)."""
    earlier = [each.number for each in attempts if each.number < attempt.number][-COMPARED_ATTEMPTS:]
    try:
        facts = _facts(parts.objects, run.run_id, attempt.number) if earlier else None
        for number in reversed(earlier if facts is not None else ()):
            before = _facts(parts.objects, run.run_id, number)
            if before is not None:
                return known_facts.differences([(number, before), (attempt.number, facts)]), ""
    except StoreUnavailable:
        return (), "the object store does not respond"
    return (), ""


def _shown(facts: Json | None, *, with_packages: bool) -> Json | None:
    if facts is None or with_packages:
        return facts
    return {name: value for name, value in facts.items() if name != "packages"}


def show_evidence(parts: Parts, queries: Queries, run_id: str, number: str) -> Evidence:
    """`number`: of the attempt. Raises NotFound, EvidenceNotFound (which says whether it will come), FilesPurged,
    Unavailable."""
    run = queries.find(run_id)
    return cast(Evidence, kept_document(parts, run, find_attempt(parts, run, number)))


def kept_document(parts: Parts, run: Run, attempt: Attempt) -> Json:
    """The evidence of an attempt as it was kept, of any version. Raises EvidenceNotFound (which says whether it will
    come), FilesPurged, Unavailable."""
    about = {"run_id": run.run_id, "attempt": attempt.number}
    try:
        key = runfiles.evidence(run.run_id, attempt.number)
        raw = b"".join(parts.objects.read(key, 0, evidence.MAX_BYTES + 1))
    except ObjectMissing:
        refuse_purged(run, attempt)
        raise EvidenceNotFound(_why(run, attempt), about) from None
    except StoreUnavailable as error:
        reason = f"The evidence of {run.run_id} cannot be read now. Try again."
        raise Unavailable(reason, {"run_id": run.run_id}) from error
    document = evidence.read(raw)
    if document is None:
        text = f"The evidence of attempt {attempt.number} of {run.run_id} is in the store, but damaged."
        raise EvidenceNotFound(text, about)
    return document


def find_attempt(parts: Parts, run: Run, number: str | int | None) -> Attempt:
    """`number`: any text from a path, or None = the newest. Raises EvidenceNotFound."""
    return attempt_of(run, parts.store.attempts(run.key), number)


def attempt_of(run: Run, attempts: Sequence[Attempt], number: str | int | None) -> Attempt:
    """As `find_attempt`, among all attempts of the run. Raises EvidenceNotFound."""
    wanted = run.attempt.number if number is None and run.attempt is not None else number
    for attempt in attempts:
        if str(attempt.number) == str(wanted):
            return attempt
    what = "no machine yet" if number is None else f"no attempt {clip(str(number), 20)}"
    raise EvidenceNotFound(f"{run.run_id} has {what}.", {"run_id": run.run_id})


def _why(run: Run, attempt: Attempt) -> str:
    if attempt.ended_at is None:
        return f"Attempt {attempt.number} of {run.run_id} is not over. Its evidence is kept when it ends."
    if run.settled:
        return f"No evidence of attempt {attempt.number} of {run.run_id} was kept, and none will come."
    return (
        f"The evidence of attempt {attempt.number} of {run.run_id} is not kept yet. Retry in a moment; what is still "
        f"missing then is added when the run ends."
    )
