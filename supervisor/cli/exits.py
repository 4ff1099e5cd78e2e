"""Exit codes, and the one error of the command line: what happened, its stable code, and what the user can do."""

from __future__ import annotations

OK = 0
FAILED = 1
USAGE = 2
RUN_FAILED = 3  # `wait` and `watch`: the run ended, but not completed
AUTH = 4
NOT_FOUND = 5
CONFLICT = 6
UNREACHABLE = 7
TIMEOUT = 8
NEEDS_PERSON = 9  # `wait` and `watch`: the run continues only after an action of the user
DETACHED = 130

_BY_HTTP_STATUS = {
    400: USAGE, 413: USAGE, 415: USAGE, 422: USAGE, 401: AUTH, 403: AUTH, 404: NOT_FOUND, 410: NOT_FOUND,
    409: CONFLICT, 412: CONFLICT, 428: CONFLICT, 504: TIMEOUT,
}  # fmt: skip


class CliError(Exception):
    """Ends the command with `exit_code`. `hints`: commands or sentences that help, one a line. `errors`: (JSON pointer,
    what is wrong there)."""

    errors: tuple[tuple[str, str], ...] = ()

    def __init__(self, text: str, exit_code: int = FAILED, code: str = "", hints: tuple[str, ...] = ()):
        super().__init__(text)
        self.text = text
        self.exit_code = exit_code
        self.code = code
        self.hints = hints


class Unreachable(CliError):
    """No response. `sent`: the request may have reached the supervisor, so only a safe request may be repeated."""

    def __init__(self, text: str, hints: tuple[str, ...] = (), sent: bool = False):
        super().__init__(text, UNREACHABLE, "SERVER_UNREACHABLE", hints)
        self.sent = sent


class Problem(CliError):
    """An error response of the supervisor (application/problem+json)."""

    def __init__(self, status: int, code: str, detail: str, errors: tuple[tuple[str, str], ...] = ()):
        super().__init__(detail, _BY_HTTP_STATUS.get(status, FAILED), code)
        self.status = status
        self.errors = errors
