"""What no log may hold, and the one place that takes it out: every text of a line passes here, tracebacks too.

Hidden are our own tokens, secrets and nonces, keys that show their maker, whatever stands behind a name that says that
it is a secret, the names and passwords in addresses, and addresses that are themselves credentials, such as a
webhook's. A text is cut before it is looked through, and where it was cut the last word goes, which could be half a
secret. Each rule runs only where one of its words occurs, and all take time in proportion to the text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from supervisor.domain.access.secret_texts import MAKERS, looks_secret

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
_PRIVATE = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}-----|\Z)", re.DOTALL
)
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
    for _, pattern in MAKERS:
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
