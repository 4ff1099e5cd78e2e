"""One tree of errors. `code` is stable and part of the API; the HTTP status is mapped once, in api/errors.py.

A Conflict answers a request that states what its caller has seen, where the database holds something else. Nothing was
changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class SpotError(Exception):
    """Says what happened and what the user can do. `meta` holds every dynamic value of the text."""

    code = "INTERNAL"

    def __init__(self, detail: str, meta: Mapping[str, object] | None = None, errors: Sequence[tuple[str, str]] = ()):
        super().__init__(detail)
        self.detail = detail
        self.meta = dict(meta or {})
        self.errors = tuple(errors)  # (JSON pointer, what is wrong there)


class InvalidRequest(SpotError):
    """The request cannot be accepted as it is; nothing was stored."""

    code = "INVALID_REQUEST"


class Unauthorized(SpotError):
    """No token, or none that is valid here; the text does not say which."""

    code = "UNAUTHORIZED"


class TokenNotFound(SpotError):
    code = "TOKEN_NOT_FOUND"


class InvalidTimeouts(InvalidRequest):
    """Two limits contradict each other; the text gives both numbers (RULES section 4)."""

    code = "INVALID_TIMEOUTS"


class UnknownPrice(InvalidRequest):
    """A budget cannot be kept on a placement whose price is unknown."""

    code = "PRICE_UNKNOWN"


class DataElsewhere(InvalidRequest):
    """The run wants its data in its machines' region, and it lies in another one; the text names both."""

    code = "DATA_ELSEWHERE"


class SecretInSpec(InvalidRequest):
    """A spec holds what looks like the value of a secret; the text names the place and not the value."""

    code = "SECRET_IN_SPEC"


class CodeRefused(InvalidRequest):
    """The code bundle breaks a rule, or the command cannot be started from it."""

    code = "CODE_REFUSED"


class ImageBuildRefused(InvalidRequest):
    """The folder, or what was said of its image, cannot be built; nothing was sent."""

    code = "IMAGE_BUILD_REFUSED"


class ImageBuildFailed(SpotError):
    """No way led to an image in the registry; the text says why, and what mends it."""

    code = "IMAGE_BUILD_FAILED"


class CodeNotFound(SpotError):
    """No bundle of this name is stored (any more)."""

    code = "CODE_NOT_FOUND"


class CursorInvalid(InvalidRequest):
    code = "CURSOR_INVALID"


class KeyReused(InvalidRequest):
    """The same Idempotency-Key came with another body."""

    code = "IDEMPOTENCY_KEY_REUSED"


class NotFound(SpotError):
    code = "RUN_NOT_FOUND"


class OldRunNotFound(SpotError):
    """Nothing of the older runner lies at that address, or no checkpoint."""

    code = "OLD_RUN_NOT_FOUND"


class OldRunUnreadable(SpotError):
    """The supervisor's account may not read there; the text names the account and the role."""

    code = "OLD_RUN_UNREADABLE"


class EvidenceNotFound(SpotError):
    """Nothing was kept of that attempt; the text says whether it will come."""

    code = "EVIDENCE_NOT_FOUND"


class Conflict(SpotError):
    code = "CONFLICT"


class RunActive(Conflict):
    """The run is live and was submitted with another spec; the text names what differs."""

    code = "RUN_ACTIVE"


class OldRunAlive(Conflict):
    """The old run may still be going on, and two must not train the same; the text names the sign."""

    code = "OLD_RUN_ALIVE"


class OldRunThere(Conflict):
    """A new run has the name of a run of the older runner in the same store; the text says how to take it over."""

    code = "OLD_RUN_THERE"


class ImportRunning(Conflict):
    """The same import is under way."""

    code = "IMPORT_RUNNING"


class RunCompleted(Conflict):
    code = "RUN_COMPLETED"


class RunIdTaken(Conflict):
    code = "RUN_ID_TAKEN"


class TooManyActiveRuns(Conflict):
    """The owner has as many runs that are not over as the token allows; the text has the number."""

    code = "TOO_MANY_ACTIVE_RUNS"


class RunStopping(Conflict):
    code = "RUN_STOPPING"


class RunEnded(Conflict):
    """The run is terminal: what was asked of it can only be asked of a live one."""

    code = "RUN_ENDED"


class SpecDiffers(Conflict):
    """A resume brings another spec and did not say `replace_spec`."""

    code = "SPEC_DIFFERS"


class CellFixed(Conflict):
    """The store of a run is fixed at its first submit; its provider may change only within that store's cell."""

    code = "CELL_FIXED"


class StopNewer(Conflict):
    """A .stop marker newer than the resume was found: stop wins."""

    code = "STOP_NEWER"


class NothingToRetry(Conflict):
    """The run does not wait for a next try."""

    code = "NOTHING_TO_RETRY"


class NothingToApprove(Conflict):
    code = "NOTHING_TO_APPROVE"


class ApprovalMismatch(Conflict):
    """What the person has seen is not what is there now."""

    code = "APPROVAL_MISMATCH"


class PullRequired(Conflict):
    """The run wants its results pulled before its machine is released; the text holds the command."""

    code = "PULL_REQUIRED"


class PullMismatch(Conflict):
    """What was pulled is not what the run has now."""

    code = "PULL_MISMATCH"


class FileUnknown(SpotError):
    """The run has no file of this name that can be read from outside."""

    code = "FILE_NOT_FOUND"


class FileChanged(Conflict):
    """The file became another one while it was being read."""

    code = "FILE_CHANGED"


class RangeRefused(SpotError):
    """The asked range lies behind the end of the file."""

    code = "RANGE_NOT_SATISFIABLE"


class KeyInFlight(Conflict):
    code = "IDEMPOTENCY_KEY_IN_FLIGHT"


class PurgeRefused(Conflict):
    """A machine of the run may still write; the text names it."""

    code = "PURGE_REFUSED"


class PurgeRunning(Conflict):
    """The run's files are being deleted."""

    code = "PURGE_RUNNING"


class FilesPurged(SpotError):
    """A person had the run's files deleted; the text says when."""

    code = "FILES_PURGED"


class Forbidden(SpotError):
    code = "FORBIDDEN"


class NonceRefused(Forbidden):
    """A beat without the nonce of its try."""

    code = "NONCE_REFUSED"


class DevRefused(Forbidden):
    """Disasters are injected on the local provider only."""

    code = "DEV_REFUSED"


class NotSupportedHere(SpotError):
    """The place where this run's machines are has no such thing."""

    code = "NOT_SUPPORTED"


class ConfirmNeeded(Conflict):
    """What was asked for costs real work or money, and nobody has said that this is meant."""

    code = "CONFIRM_NEEDED"


class Unavailable(SpotError):
    """A part the service needs is away; nothing was changed and the request can be repeated."""

    code = "UNAVAILABLE"


class SchemaMismatch(SpotError):
    """The database's schema is not the one this version knows; the text holds the command to run."""

    code = "SCHEMA_MISMATCH"


class DatabaseNew(SpotError):
    """A new database was about to be made beside a folder or store that belongs to another supervisor id."""

    code = "DATABASE_NEW"


class DatabaseOther(SpotError):
    """The database is not the one that this data folder belongs to."""

    code = "DATABASE_OTHER"


class DataDirHeld(SpotError):
    """Another daemon serves this data folder; the text names its pid."""

    code = "DATA_DIR_HELD"


class SettingsRefused(SpotError):
    """A setting is unknown, malformed, or contradicts another; the text gives both numbers."""

    code = "SETTINGS_REFUSED"


class VersionDiffers(SpotError):
    """The run has changed since the caller read it."""

    code = "PRECONDITION_FAILED"


class CountDiffers(Conflict):
    """Another number of runs match than the caller has seen."""

    code = "COUNT_DIFFERS"


class WebhookNotFound(SpotError):
    code = "WEBHOOK_NOT_FOUND"


class DeliveryNotFound(SpotError):
    code = "DELIVERY_NOT_FOUND"


class UrlRefused(InvalidRequest):
    """Messages may not go to this address; the text says why, and not where it leads."""

    code = "URL_REFUSED"


class TooManyWebhooks(Conflict):
    """Their owner has as many as one may have."""

    code = "TOO_MANY_WEBHOOKS"
