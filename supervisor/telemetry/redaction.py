"""Redaction: no text of a log line, and no recording, contains a secret.

Hidden are our own tokens, secrets and nonces, keys whose form shows who issued them, any value after a name that says
that it is secret, user names and passwords in addresses, and addresses that are themselves credentials, such as a
webhook's. A long text is cut first, and its last word is dropped, which could be half a secret.

Each rule runs only where one of its words occurs, and each takes time in proportion to the text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from supervisor.domain.texts import SECRET_FORMS, looks_secret

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
# Of a ticket and a pass only the signature is secret: which launch it opens may be read in a log.
_SIGNED = re.compile(r"(?<![A-Za-z0-9])((?:ticket|pass)_[a-z0-9-]{1,64}_[0-9.]{1,32}_[0-9]{1,12}_)[A-Za-z0-9]{8,}")
_PRIVATE = re.compile(r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}-----|\Z)", re.DOTALL)
_USER = re.compile(r"(://)[^\s/?#\"']{1,256}@")
_URL = re.compile(r"https?://[^\s\"'<>\\]+", re.IGNORECASE)
_RANDOM = re.compile(r"(?=[^0-9]*[0-9])(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9_~-]{20,}\Z")
# Hosts and paths where the path itself gives the right to write.
_HOOKS = re.compile(r"hooks\.slack|discord(?:app)?\.com\Z|webhook|\.logic\.azure\.|hooks?\.")
_HOOK_PATH = re.compile(r"webhook|/hooks?/", re.IGNORECASE)
# Too short and too plain for any rule, like most words of a line: ids, kinds, zones.
_PLAIN = re.compile(r"(?:[A-Za-z0-9.-]{0,14}|[A-Za-z0-9]{15,19})\Z")

_own: tuple[str, ...] = ()


def hide(*texts: str) -> None:
    """Hide these texts everywhere from now on: secrets of this process that have no recognizable form. Short ones are
    not hidden; a reference to a file is not a secret."""
    global _own  # noqa: PLW0603 - a process has one log
    _own = tuple(text for text in texts if len(text) >= OWN_MIN and not text.startswith("file:"))


def hidden(text: str) -> str:
    """`text` with dots in the place of secrets, at most LINE_MAX characters; otherwise unchanged."""
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


def hidden_field(name: str, value: object, depth: int = 0) -> object:
    """A field as JSON can hold it; a text whose name says that it is secret is hidden completely."""
    if isinstance(value, str):
        return DOTS if value and is_secret(name) else hidden(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no NaN and no Infinity
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth >= DEEPEST:
        return "…"
    if isinstance(value, Mapping):
        return {hidden(str(key)): hidden_field(str(key), item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [hidden_field(name, item, depth + 1) for item in value]
    return DOTS if is_secret(name) else hidden(_text(value))


@lru_cache(maxsize=256)  # there are few names of fields
def is_secret(name: str) -> bool:
    """True where the value must be hidden whatever its form. A name in capitals is a variable of an environment."""
    return _NAME.search(name) is not None or (name.isupper() and looks_secret(name))


def _text(value: object) -> str:
    try:
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    except Exception as error:  # noqa: BLE001 - a value that cannot be shown must not cost the line
        return f"({type(error).__name__} while showing a {type(value).__name__})"


def _cut(text: str) -> str:
    kept = text[:LINE_MAX]
    space = max(kept.rfind(" ", -4096), kept.rfind("\n", -4096))
    return kept[: space if space >= 0 else -4096] + "…"


def _issued(text: str) -> str:
    for _, pattern in SECRET_FORMS:
        text = pattern.sub(DOTS, text)
    return text


def _url(match: re.Match[str]) -> str:
    try:
        parts = urlsplit(match[0])
        host = (parts.hostname or "").lower()
    except ValueError:  # looks like an address and is not one
        return f"{match[0].partition('://')[0]}://{DOTS}"
    path, local = parts.path, host in ("localhost", "::1") or host.startswith("127.")
    if not local and path.strip("/") and (_HOOKS.search(host) or _HOOK_PATH.search(path)):
        path = f"/{DOTS}"
    elif not local:
        path = "/".join(DOTS if _RANDOM.match(part) else part for part in path.split("/"))
    query = "&".join(_query_value(pair, local) for pair in parts.query.split("&"))
    fragment = DOTS if _RANDOM.match(parts.fragment) else parts.fragment
    if (path, query, fragment) == (parts.path, parts.query, parts.fragment):
        return match[0]
    return f"{parts.scheme}://{parts.netloc}{path}{'?' + query if query else ''}{'#' + fragment if fragment else ''}"


def _query_value(pair: str, local: bool) -> str:
    name, equals, value = pair.partition("=")
    secret = looks_secret(name) or name.lower() in ("sig", "signature", "code", "pass")
    return f"{name}={DOTS}" if equals and value and (secret or (not local and _RANDOM.match(value))) else pair


# (words in lower case, one of which must occur; the rule). Longer matches come first: a name before a hidden value
# would hide the dots again.
_RULES: tuple[tuple[tuple[str, ...], Callable[[str], str]], ...] = (
    (("private key-----",), lambda text: _PRIVATE.sub(DOTS, text)),
    (("sup_", "whsec_"), lambda text: _OURS.sub(rf"\1{DOTS}", text)),
    (("ticket_", "pass_"), lambda text: _SIGNED.sub(rf"\1{DOTS}", text)),
    (("sk-", "hf_", "gh", "glpat-", "akia", "asia", "xox", "aiza"), _issued),
    (("://",), lambda text: _URL.sub(_url, _USER.sub(rf"\1{DOTS}@", text))),
    (("bearer",), lambda text: _BEARER.sub(rf"\1{DOTS}", text)),
    (("authorization", "cookie", "api-key"), lambda text: _HEADER.sub(rf"\1{DOTS}", text)),
    (
        ("key", "token", "secret", "pass", "credential", "auth", "cookie", "nonce", "_pat", "_pwd", "_dsn"),
        lambda text: _NAMED.sub(rf"\1{DOTS}", text) if "=" in text or ":" in text else text,
    ),
)
