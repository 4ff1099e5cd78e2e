"""One tree of errors. `code` is stable and part of the API; api/errors.py maps it to an HTTP status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class SpotError(Exception):
    """`detail` says what happened and what the user can do, `meta` holds each dynamic value of that text. `errors`:
    (JSON pointer, what is wrong there)."""

    code = "INTERNAL"

    def __init_subclass__(cls, code: str = "") -> None:
        cls.code = code or cls.code

    def __init__(self, detail: str, meta: Mapping[str, object] | None = None, errors: Sequence[tuple[str, str]] = ()):
        super().__init__(detail)
        self.detail = detail
        self.meta = dict(meta or {})
        self.errors = tuple(errors)


class InvalidRequest(SpotError, code="INVALID_REQUEST"):
    """The request is not valid; nothing was stored."""


class Unauthorized(SpotError, code="UNAUTHORIZED"):
    """The request has no token, or no valid one; the text does not say which."""


class TokenNotFound(SpotError, code="TOKEN_NOT_FOUND"):
    """There is no token with this id."""


class InvalidTimeouts(InvalidRequest, code="INVALID_TIMEOUTS"):
    """Two limits contradict each other; the text gives both numbers (RULES section 4)."""


class UnknownPrice(InvalidRequest, code="PRICE_UNKNOWN"):
    """A budget needs a known price, and this placement has none."""


class DataElsewhere(InvalidRequest, code="DATA_ELSEWHERE"):
    """The spec requires the data in the machines' region, and it is in another one; the text names both."""


class SecretInSpec(InvalidRequest, code="SECRET_IN_SPEC"):
    """A spec contains a text that looks like a secret; the error names the field and not the value."""


class CodeRefused(InvalidRequest, code="CODE_REFUSED"):
    """The code bundle breaks a rule, or the command cannot start from it."""


class UnknownAfter(InvalidRequest, code="AFTER_UNKNOWN"):
    """`after` names a run that does not exist, or that the caller may not see."""


class AfterCycle(InvalidRequest, code="AFTER_CYCLE"):
    """The run would wait for itself; the text names the runs in between."""


class ImageBuildRefused(InvalidRequest, code="IMAGE_BUILD_REFUSED"):
    """The folder or the request for its image is not valid; nothing was sent."""


class ImageBuildFailed(SpotError, code="IMAGE_BUILD_FAILED"):
    """No build put an image into the registry; the text has the cause and the fix."""


class CodeNotFound(SpotError, code="CODE_NOT_FOUND"):
    """The store has no bundle of this name (any more)."""


class CursorInvalid(InvalidRequest, code="CURSOR_INVALID"):
    """The cursor of a page was changed, or belongs to another filter or database."""


class SpendUnbounded(InvalidRequest, code="SPEND_UNBOUNDED"):
    """Nothing bounds what the run may cost, and its token has a cap; the text says what to add."""


class KeyReused(InvalidRequest, code="IDEMPOTENCY_KEY_REUSED"):
    """The Idempotency-Key was used before with another body."""


class NotFound(SpotError, code="RUN_NOT_FOUND"):
    """There is no such run, or the caller may not see it."""


class OldRunNotFound(SpotError, code="OLD_RUN_NOT_FOUND"):
    """The address has no run of the older runner, or that run has no checkpoint."""


class OldRunUnreadable(SpotError, code="OLD_RUN_UNREADABLE"):
    """The supervisor's account may not read the older run; the text names the account and the role."""


class EvidenceNotFound(SpotError, code="EVIDENCE_NOT_FOUND"):
    """There is no evidence of that attempt; the text says whether it is still to come."""


class Conflict(SpotError, code="CONFLICT"):
    """The database differs from what the request expects; nothing was changed."""


class RunActive(Conflict, code="RUN_ACTIVE"):
    """The run is live and has another spec; the text names the differences."""


class OldRunAlive(Conflict, code="OLD_RUN_ALIVE"):
    """The older run may still train, and two must not write the same run; the text names the evidence."""


class OldRunThere(Conflict, code="OLD_RUN_THERE"):
    """A run of the older runner in the same store has this name; the text says how to import it."""


class ImportRunning(Conflict, code="IMPORT_RUNNING"):
    """The same import is in progress."""


class RunCompleted(Conflict, code="RUN_COMPLETED"):
    """The run is completed, and only a resume with `rerun` restarts it."""


class RunIdTaken(Conflict, code="RUN_ID_TAKEN"):
    """Another run has this run id."""


class TooManyActiveRuns(Conflict, code="TOO_MANY_ACTIVE_RUNS"):
    """The owner has reached the token's limit of active runs; the text has the limit."""


class OverDayCap(Conflict, code="OVER_DAY_CAP"):
    """The runs of the token could spend more in a day than its cap; the text has the figures."""


class OverRunCap(Conflict, code="OVER_RUN_CAP"):
    """The run could spend more than the token allows a run; the text has both figures."""


class PlanRequired(Conflict, code="PLAN_REQUIRED"):
    """The token starts runs with a plan only, and the request has none."""


class PlanRefused(Conflict, code="PLAN_REFUSED"):
    """The plan is not valid for this request: expired, used, of another token, or of another spec."""


class PlanPriceAbove(Conflict, code="PLAN_PRICE_ABOVE"):
    """A price is above the price of the plan now, or not known any more; the text has both prices."""


class RunStopping(Conflict, code="RUN_STOPPING"):
    """The run is stopping."""


class RunEnded(Conflict, code="RUN_ENDED"):
    """The run is terminal, and the request needs a live run."""


class SpecDiffers(Conflict, code="SPEC_DIFFERS"):
    """A resume has another spec and not `replace_spec`."""


class CellFixed(Conflict, code="CELL_FIXED"):
    """The first submit fixes a run's store; its provider may change only within the cell of that store."""


class StopNewer(Conflict, code="STOP_NEWER"):
    """A .stop marker is newer than the resume: stop wins."""


class NothingToRetry(Conflict, code="NOTHING_TO_RETRY"):
    """The run does not wait for a next try."""


class NothingKept(Conflict, code="NOTHING_KEPT"):
    """The run keeps no machine that could be deleted now."""


class NothingToPaste(Conflict, code="NOTHING_TO_PASTE"):
    """The run waits for no notebook in which a person pastes its cell."""


class NothingToDrill(Conflict, code="NOTHING_TO_DRILL"):
    """The run has no training that could be drilled now."""


class NothingToApprove(Conflict, code="NOTHING_TO_APPROVE"):
    """The run has no machine that waits for an approval."""


class ApprovalMismatch(Conflict, code="APPROVAL_MISMATCH"):
    """The machine or the results differ from those that the person has seen."""


class VerbNotOffered(Conflict, code="VERB_NOT_OFFERED"):
    """The machine is not given back in this way."""


class CheckNotWaivable(Conflict, code="CHECK_NOT_WAIVABLE"):
    """The check belongs to a gate that no waiver passes: only an approval does."""


class PullRequired(Conflict, code="PULL_REQUIRED"):
    """The run requires a pull of its results before its machine is released; the text has the command."""


class PullMismatch(Conflict, code="PULL_MISMATCH"):
    """The pulled results differ from the run's results."""


class FileUnknown(SpotError, code="FILE_NOT_FOUND"):
    """The run has no readable file of this name."""


class FileChanged(Conflict, code="FILE_CHANGED"):
    """The file changed while it was read."""


class RangeRefused(SpotError, code="RANGE_NOT_SATISFIABLE"):
    """The requested range begins behind the end of the file."""


class SyncConflict(Conflict, code="SYNC_CONFLICT"):
    """The code of the run was changed since the client read it."""


class CommandRefused(Conflict, code="COMMAND_REFUSED"):
    """No command can run beside the run's own now."""


class CommandNotFound(SpotError, code="COMMAND_NOT_FOUND"):
    """The run has no command with this id."""


class KeyInFlight(Conflict, code="IDEMPOTENCY_KEY_IN_FLIGHT"):
    """The first request with this Idempotency-Key is still in progress."""


class PurgeRefused(Conflict, code="PURGE_REFUSED"):
    """A machine of the run may still write; the text names it."""


class PurgeRunning(Conflict, code="PURGE_RUNNING"):
    """The files of the run are being deleted."""


class FilesPurged(SpotError, code="FILES_PURGED"):
    """The files of the run were deleted on request; the text says when."""


class Forbidden(SpotError, code="FORBIDDEN"):
    """The caller may not do this."""


class NonceRefused(Forbidden, code="NONCE_REFUSED"):
    """The beat does not have the nonce of its try."""


class DevRefused(Forbidden, code="DEV_REFUSED"):
    """Disasters are for the local provider only."""


class NotSupportedHere(SpotError, code="NOT_SUPPORTED"):
    """The provider of this run does not support the request."""


class ConfirmNeeded(Conflict, code="CONFIRM_NEEDED"):
    """The request costs real work or money, and needs a confirmation."""


class Unavailable(SpotError, code="UNAVAILABLE"):
    """A part that the request needs is unavailable; nothing was changed, and a retry is safe."""


class SchemaMismatch(SpotError, code="SCHEMA_MISMATCH"):
    """The database's schema is not the one of this version; the text has the command to run."""


class DatabaseNew(SpotError, code="DATABASE_NEW"):
    """A new database was about to be created beside a folder or store of another supervisor id."""


class DatabaseOther(SpotError, code="DATABASE_OTHER"):
    """The data folder belongs to another database."""


class DataDirHeld(SpotError, code="DATA_DIR_HELD"):
    """Another daemon serves this data folder; the text has its pid."""


class SettingsRefused(SpotError, code="SETTINGS_REFUSED"):
    """A setting is unknown, malformed, or contradicts another one; the text has both numbers."""


class VersionDiffers(SpotError, code="PRECONDITION_FAILED"):
    """The run has changed since the caller read it."""


class CountDiffers(Conflict, code="COUNT_DIFFERS"):
    """The number of matching runs differs from the number that the caller has seen."""


class WebhookNotFound(SpotError, code="WEBHOOK_NOT_FOUND"):
    """There is no webhook with this id, or the caller may not see it."""


class DeliveryNotFound(SpotError, code="DELIVERY_NOT_FOUND"):
    """The webhook has no delivery with this id."""


class IncidentNotFound(SpotError, code="INCIDENT_NOT_FOUND"):
    """There is no incident with this number, or none of its runs is the caller's."""


class IncidentClosed(Conflict, code="INCIDENT_CLOSED"):
    """The incident was closed before."""


class UrlRefused(InvalidRequest, code="URL_REFUSED"):
    """Messages may not go to this address; the text says why, and not where it leads."""


class TooManyWebhooks(Conflict, code="TOO_MANY_WEBHOOKS"):
    """The owner has reached the limit of webhooks."""


class BaseNotFound(SpotError, code="BASE_NOT_FOUND"):
    """There is no base of this name."""


class BaseNotReady(Conflict, code="BASE_NOT_READY"):
    """The base is still being prepared, has failed, or is being deleted; the text says which."""


class BaseInUse(Conflict, code="BASE_IN_USE"):
    """A live run uses the base, or prepares it; the text names it."""


class TicketRefused(Forbidden, code="TICKET_REFUSED"):
    """The text is no ticket of this supervisor, or its launch does not exist."""


class TicketExpired(SpotError, code="TICKET_EXPIRED"):
    """The ticket was valid until a time that is past."""


class TicketUsed(Conflict, code="TICKET_USED"):
    """Another notebook has claimed the launch of this ticket."""


class LaunchOver(Conflict, code="LAUNCH_OVER"):
    """The launch of this ticket has ended, or its run is being stopped."""


class HandoverRefused(Conflict, code="HANDOVER_REFUSED"):
    """The provider refuses the launch at its claim; the text says why."""


class PassRefused(Forbidden, code="PASS_REFUSED"):
    """The pass does not open this object, or the text is no pass of this supervisor."""


class PassExpired(SpotError, code="PASS_EXPIRED"):
    """The pass was valid until a time that is past; a beat brings a new one."""


class ObjectUnknown(SpotError, code="OBJECT_MISSING"):
    """No object has this key."""


class ObjectDiffers(SpotError, code="PRECONDITION_FAILED"):
    """The object does not have the generation that the request names; nothing was changed."""


class ObjectsFull(SpotError, code="STORE_FULL"):
    """The object store has no space for this write; the old object is untouched."""


class ObjectsAway(SpotError, code="STORE_UNAVAILABLE"):
    """The object store did not respond, or not clearly: this says nothing about whether the object exists."""
