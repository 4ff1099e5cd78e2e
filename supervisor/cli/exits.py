"""Exit codes and the one error of the command line: what happened, its stable code, and what to do next."""

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
NEEDS_PERSON = 9  # `wait` and `watch`: the run cannot go on before a person has done something
DETACHED = 130

_BY_HTTP_STATUS = {
    400: USAGE, 413: USAGE, 415: USAGE, 422: USAGE, 401: AUTH, 403: AUTH, 404: NOT_FOUND, 410: NOT_FOUND,
    409: CONFLICT, 412: CONFLICT, 428: CONFLICT, 504: TIMEOUT,
}  # fmt: skip


class CliError(Exception):
    """Ends the command with `exit_code`. `hints` are commands or sentences that help, one a line."""

    def __init__(self, text: str, exit_code: int = FAILED, code: str = "", hints: tuple[str, ...] = ()):
        super().__init__(text)
        self.text = text
        self.exit_code = exit_code
        self.code = code
        self.hints = hints


class Unreachable(CliError):
    """No answer came. `sent`: the request may have reached the supervisor, so only a safe one may be repeated."""

    def __init__(self, text: str, hints: tuple[str, ...] = (), sent: bool = False):
        super().__init__(text, UNREACHABLE, "SERVER_UNREACHABLE", hints)
        self.sent = sent


class Problem(CliError):
    """The supervisor's own answer was an error (application/problem+json). `errors`: (pointer, what is wrong)."""

    def __init__(self, status: int, code: str, detail: str, errors: tuple[tuple[str, str], ...] = ()):
        super().__init__(detail, exit_code_of(status), code)
        self.status = status
        self.errors = errors


def exit_code_of(status: int) -> int:
    """The exit code for an HTTP status that is not a success."""
    return _BY_HTTP_STATUS.get(status, FAILED)
