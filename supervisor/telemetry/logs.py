"""Names of log fields, each defined once, the two shapes of a log line, and what no log may hold.

A line has an action (what was done or seen, in one word), ids, and a sentence:
    LOG.info("Attempt 3 ended: preempted.", extra={telemetry.ACTION: "attempt_ended", telemetry.RUN_ID: run.run_id})
Plain lines are for a terminal, JSON lines for whoever collects them; both carry the same fields. A line that is written
while a request is handled, in whichever thread, carries that request's id and who asked.

Every text of a line is redacted, tracebacks too. Hidden are our own tokens, secrets and nonces, keys that show their
maker, whatever stands behind a name that says that it is a secret, the names and passwords in addresses, and addresses
that are themselves credentials, such as a webhook's. A text is cut before it is looked through, and where it was cut
the last word goes, which could be half a secret. Each rule runs only where one of its words occurs, and all take time
in proportion to the text.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar, Token
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import IO
from urllib.parse import urlsplit

from supervisor.domain.texts import SECRET_FORMS, looks_secret, visible

DOTS = "•••"
LINE_MAX = 65536  # characters of one text
OWN_MIN = 8
DEEPEST = 6  # levels of lists and mappings in one field

_ENV = "(?-i:(?:KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|COOKIE)[A-Z0-9_]{0,32}|_PAT|_PWD|_DSN|PASS)"
_WORD = (
    "(?:api|access|private|signing|secret|encryption)[-_]?key|token|secret|passw(?:or)?d|passphrase|credentials?"
    "|nonce|authorization|cookie"
)
_QUOTED = r"""\\{1,3}["'][^"'\\]*|b?"(?:[^"\\]|\\.)*"?|b?'(?:[^'\\]|\\.)*'?"""
_NAMED = re.compile(
    rf"((?:{_ENV}|{_WORD})\\{{0,3}}[\"']?(?:=(?=[^\s\"'])|\s{{0,2}}[=:]\s{{0,2}}(?=b?\\{{0,3}}[\"'])))"
    rf"(?!(?:None|null|true|false)\b)(?:{_QUOTED}|[^\s,;&)}}\]\"']+)",
    re.IGNORECASE,
)
_NAME = re.compile(rf"(?:{_WORD})\Z", re.IGNORECASE)
_HEADER = re.compile(
    r"((?:authorization|cookie|x-(?:goog-)?api-key)[\"']?\s{0,2}[:=]\s{0,2})[^\r\n\"']+", re.IGNORECASE
)
_BEARER = re.compile(r"(bearer\s{1,3})[^\s\"',]{16,}", re.IGNORECASE)
_OURS = re.compile(r"(?<![A-Za-z0-9])(sup_|whsec_)[A-Za-z0-9+/=_-]{8,}")
_PRIVATE = re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}-----|\Z)", re.DOTALL)
_USER = re.compile(r"(://)[^\s/?#\"']{1,256}@")
_URL = re.compile(r"https?://[^\s\"'<>\\]+", re.IGNORECASE)
_RANDOM = re.compile(r"(?=[^0-9]*[0-9])(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9_~-]{20,}\Z")
# Where the path itself is what lets one write.
_HOOKS = re.compile(r"hooks\.slack|discord(?:app)?\.com\Z|webhook|\.logic\.azure\.|hooks?\.")
_HOOK_PATH = re.compile(r"webhook|/hooks?/", re.IGNORECASE)


def _url(found: re.Match[str]) -> str:
    try:
        parts = urlsplit(found[0])
        host = (parts.hostname or "").lower()
    except ValueError:  # looks like an address and is none
        return f"{found[0].partition('://')[0]}://{DOTS}"
    path, query, known = parts.path, parts.query, host in ("localhost", "::1") or host.startswith("127.")
    if not known and path.strip("/") and (_HOOKS.search(host) or _HOOK_PATH.search(path)):
        path = f"/{DOTS}"
    elif not known:
        path = "/".join(DOTS if _RANDOM.match(part) else part for part in path.split("/"))
    if query:
        query = "&".join(_query_value(pair, known) for pair in query.split("&"))
    fragment = "#" + (DOTS if _RANDOM.match(parts.fragment) else parts.fragment) if parts.fragment else ""
    if (path, query) == (parts.path, parts.query) and fragment[1:] == parts.fragment:
        return found[0]
    return f"{parts.scheme}://{parts.netloc}{path}{'?' + query if query else ''}{fragment}"


def _query_value(pair: str, known: bool) -> str:
    name, equals, value = pair.partition("=")
    secret = looks_secret(name) or name.lower() in ("sig", "signature", "code", "pass")
    return f"{name}={DOTS}" if equals and value and (secret or (not known and _RANDOM.match(value))) else pair


def _makers(text: str) -> str:
    for _, pattern in SECRET_FORMS:
        text = pattern.sub(DOTS, text)
    return text


# (what occurs, in lower case, where the rule may find something; the rule). Longer things first: a name in front of a
# hidden value would hide the dots again.
_RULES: tuple[tuple[tuple[str, ...], Callable[[str], str]], ...] = (
    (("private key-----",), lambda text: _PRIVATE.sub(DOTS, text)),
    (("sup_", "whsec_"), lambda text: _OURS.sub(rf"\1{DOTS}", text)),
    (("sk-", "hf_", "gh", "glpat-", "akia", "asia", "xox", "aiza"), _makers),
    (("://",), lambda text: _URL.sub(_url, _USER.sub(rf"\1{DOTS}@", text))),
    (("bearer",), lambda text: _BEARER.sub(rf"\1{DOTS}", text)),
    (("authorization", "cookie", "api-key"), lambda text: _HEADER.sub(rf"\1{DOTS}", text)),
    (
        ("key", "token", "secret", "pass", "credential", "auth", "cookie", "nonce", "_pat", "_pwd", "_dsn"),
        lambda text: _NAMED.sub(rf"\1{DOTS}", text) if "=" in text or ":" in text else text,
    ),
)

# Too short and too plain for any of the rules, as most words of a line are: ids, kinds, zones.
_PLAIN = re.compile(r"(?:[A-Za-z0-9.-]{0,14}|[A-Za-z0-9]{15,19})\Z")

_own: tuple[str, ...] = ()


def hide(*texts: str) -> None:
    """From now on these are hidden wherever they stand: secrets of this process that look like nothing special. Short
    ones are not, and references to a place are none."""
    global _own  # noqa: PLW0603 - a process has one log
    _own = tuple(text for text in texts if len(text) >= OWN_MIN and not text.startswith("file:"))


def hidden(text: str) -> str:
    """`text` with dots in the place of secrets, LINE_MAX characters at most. What is none stays as it is."""
    for own in _own:
        text = text.replace(own, DOTS)
    if _PLAIN.match(text):
        return text
    if len(text) > LINE_MAX:
        text = _cut(text)
    low = text.lower()
    for words, rule in _RULES:
        for word in words:
            if word in low:
                text = rule(text)
                break
    return text


def _cut(text: str) -> str:
    kept = text[:LINE_MAX]
    space = max(kept.rfind(" ", -4096), kept.rfind("\n", -4096))
    return kept[: space if space >= 0 else -4096] + "…"


def hidden_field(name: str, value: object, depth: int = 0) -> object:
    """A field of a line, as JSON can hold it: a text that its name calls a secret is hidden whole."""
    if isinstance(value, str):
        return DOTS if value and is_secret(name) else hidden(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no NaN and no Infinity: a reader must never choke on a line
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth >= DEEPEST:
        return "…"
    if isinstance(value, Mapping):
        return {hidden(str(key)): hidden_field(str(key), item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [hidden_field(name, item, depth + 1) for item in value]
    return DOTS if is_secret(name) else hidden(_said(value))


@lru_cache(maxsize=256)  # names of fields are few
def is_secret(name: str) -> bool:
    """Its value is hidden whatever it looks like. Capitals are variables of an environment."""
    return _NAME.search(name) is not None or (name.isupper() and looks_secret(name))


def _said(value: object) -> str:
    try:
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    except Exception as error:  # noqa: BLE001 - a thing that cannot be told must not cost the line
        return f"({type(error).__name__} in telling a {type(value).__name__})"


# Log fields.
ACTION = "action"
RUN_ID = "run_id"
ATTEMPT = "attempt"
MACHINE = "machine"
PROVIDER = "provider"
ZONE = "zone"
CELL = "cell"
EPOCH = "epoch"
EVENT = "event"
EVENT_ID = "event_id"
SEQUENCE = "sequence"
COUNT = "count"
REQUEST_ID = "request_id"
OWNER = "owner"
ACTOR = "actor"
TOKEN_ID = "token_id"  # noqa: S105 - which token, not the token
OPERATION = "operation"
STATUS = "status"
DURATION_S = "duration_s"
METHOD = "method"
PATH = "path"
DETAIL = "detail"
ERROR = "error"
REASON = "reason"
CHANNEL = "channel"
STEP_S = "step_s"

# Libraries that tell of every request or job: httpx with full URLs, which may be credentials; apscheduler with a
# warning for each poll that falls into a tick that was woken earlier.
_QUIET = {
    "httpx": logging.WARNING,
    "httpcore": logging.WARNING,
    "uvicorn.access": logging.WARNING,
    "uvicorn.error": logging.WARNING,
    "alembic": logging.WARNING,
    "apscheduler": logging.ERROR,
}
_BREAKS = re.compile(r'[ "=\t]')  # what a value may not hold without quotes
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}


@dataclass(slots=True)
class Asked:
    """The request that is being handled. `actor` and `token_id` "" = not known, or not yet."""

    request_id: str
    actor: str = ""
    token_id: str = ""


_ASKED: ContextVar[Asked | None] = ContextVar("asked", default=None)


def begin_request(request_id: str) -> Token[Asked | None]:
    """From here on lines carry this id: in this task, and in threads that its context is handed to."""
    return _ASKED.set(Asked(request_id))


def end_request(begun: Token[Asked | None]) -> None:
    _ASKED.reset(begun)


def asked_by(actor: str, token_id: str) -> None:
    """Who sent the request that is being handled; without one nothing happens."""
    asked = _ASKED.get()
    if asked is not None:
        asked.actor, asked.token_id = actor, token_id


class _OfRequest(logging.Filter):
    """Adds the request to a line; what the line says itself stays."""

    def filter(self, record: logging.LogRecord) -> bool:
        asked = _ASKED.get()
        if asked is not None:
            told = vars(record)
            told.setdefault(REQUEST_ID, asked.request_id)
            told.setdefault(ACTOR, asked.actor)
            told.setdefault(TOKEN_ID, asked.token_id)
        return True


def configure(level: str = "info", log_format: str = "plain", stream: IO[str] | None = None) -> None:
    """Send the process's log to `stream` (None = standard error), replacing earlier handlers."""
    logging.basicConfig(level=level.upper(), handlers=[handler(log_format, stream)], force=True)
    for name, least in _QUIET.items():
        logging.getLogger(name).setLevel(max(least, logging.getLogger().level))


def handler(log_format: str, stream: IO[str] | None = None) -> logging.Handler:
    """One that writes to `stream` (None = standard error)."""
    made = logging.StreamHandler(stream)
    made.setFormatter(JsonFormatter() if log_format == "json" else PlainFormatter())
    made.addFilter(_OfRequest())
    return made


def _fields(record: logging.LogRecord) -> Iterator[tuple[str, object]]:
    """The fields given by `extra`, the action first, empty ones left out."""
    extra = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    if ACTION in extra:
        yield ACTION, extra.pop(ACTION)
    yield from ((name, value) for name, value in extra.items() if value not in (None, ""))


def _message(record: logging.LogRecord) -> str:
    """A sentence and values that do not fit are told as they are: logging itself would print them past us."""
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001 - whatever a value does when it is told
        return f"{record.msg} (with {len(record.args or ())} values that do not fit)"


def _time(record: logging.LogRecord) -> str:
    second = int(record.created)
    return f"{_second(second)}.{int((record.created - second) * 1000):03d}Z"


@lru_cache(maxsize=2)
def _second(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": hidden(_message(record)),
        }
        line.update((name, hidden_field(name, value)) for name, value in _fields(record))
        if record.exc_info:
            line["exception"] = hidden(self.formatException(record.exc_info))
        return json.dumps(line)


class PlainFormatter(logging.Formatter):
    """`time LEVEL action: message  field=value …`; a record is one line, whatever its message holds."""

    def format(self, record: logging.LogRecord) -> str:
        fields = dict(_fields(record))
        action = fields.pop(ACTION, None)
        message = hidden(_message(record))
        said = message if action is None else f"{hidden_field(ACTION, action)}: {message}"
        given = "".join(f" {name}={_quoted(hidden_field(name, value))}" for name, value in fields.items())
        line = f"{_time(record)} {record.levelname:<7} {said}{given}"
        line = _one_line(line[:LINE_MAX])
        return f"{line}\n{visible(hidden(self.formatException(record.exc_info)))}" if record.exc_info else line


def _quoted(value: object) -> str:
    text = str(value)
    return json.dumps(text) if _BREAKS.search(text) else text


def _one_line(text: str) -> str:
    """Control characters could forge a second line or move the reader's cursor."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
