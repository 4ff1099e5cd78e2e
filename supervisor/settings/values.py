"""Single values of the settings: parsed from text or TOML by their type, with bounds; and close misses of names.

Every refusal names the setting, the origin of its value, and what would be accepted.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

from supervisor.domain.errors import SettingsRefused

LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("plain", "json")
ENDPOINT = "_endpoint"  # settings with this ending are addresses; empty = the service's own
LONGEST_S = 10 * 366 * 86400.0
LARGEST_COUNT = 1_000_000
WORD = r"[a-z0-9][a-z0-9._-]{0,62}"
MIXED_WORD = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
Number = TypeVar("Number", int, float)
Argv = tuple[str, ...]  # the words of a command; no shell reads them
TRUE, FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


@dataclass(frozen=True, slots=True)
class Rules:
    """Bounds of settings, by their names. `empty`: texts that may be empty. `zero`: seconds that may be 0. `counts`:
    (lowest, highest) of whole numbers, else 1 to LARGEST_COUNT. `pairs`: the syntax of pairs, in words. `texts`: the
    pattern of the second half of a pair of texts. `mixed_case`: lists, and pairs of texts, whose names may have
    upper-case letters."""

    empty: frozenset[str] = frozenset()
    zero: frozenset[str] = frozenset()
    counts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    pairs: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    mixed_case: frozenset[str] = frozenset()


CORE = Rules(
    empty=frozenset(
        {"admin_token", "alert_url", "alert_secret", "public_url", "dashboard_url", "default_image", "record_file"}
    ),
    zero=frozenset(
        {
            "gpu_timeout_s",
            "recovery_backoff_s",
            "wait_for_capacity_s",
            "stop_grace_s",
            "rest_s",
            "upload_reserve_s",
            "patrol_every_s",
        }
    ),
    counts={
        "port": (0, 65535),
        "metrics_per_run": (0, 1000),
        "rate_per_s": (0, 100_000),  # 0 = no limit
        "max_parallel_runs": (0, LARGEST_COUNT),
        "max_parallel_per_owner": (0, LARGEST_COUNT),
        "results_save_max_mb": (0, 1_000_000),  # 0 = results are saved only at the end
    },
)


class _Malformed(ValueError):
    """Its text is what would be accepted."""


def read_toml(path: Path, names: Iterable[str]) -> dict[str, object]:
    """The settings in a TOML file. Raises SettingsRefused if it cannot be read or contains an unknown name."""
    import tomllib

    try:
        values: dict[str, object] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsRefused(f"cannot read the settings file {path}: {error}", {"path": str(path)}) from None
    for name in values:
        if name not in names:
            near = close_miss(name, names)
            hint = f"; did you mean {near}?" if near else "; `spot config show` lists all settings"
            raise SettingsRefused(f"{path}: {name} is not a setting{hint}", {"path": str(path), "name": name})
    return values


def close_miss(name: str, names: Iterable[str]) -> str | None:
    """The known name that `name` probably means: nearly the same letters, or the same letters in another order."""
    from difflib import get_close_matches

    names = list(names)
    same_letters = (other for other in names if sorted(other) == sorted(name))
    return next(iter(get_close_matches(name, names, n=1, cutoff=0.8)), next(same_letters, None))


def parse(name: str, annotation: str, raw: object, origin: str, rules: Rules = CORE) -> object:
    """The value of setting `name`. Raises SettingsRefused."""
    try:
        return _PARSERS[annotation](name, raw, rules)
    except _Malformed as error:
        # The value itself is not repeated: a URL may contain a password.
        raise SettingsRefused(f"{name} ({origin}): expected {error}", {"name": name, "origin": origin}) from None


def _text(name: str, raw: object, rules: Rules) -> str:
    may_be_empty = name in rules.empty or name.endswith(ENDPOINT)
    if may_be_empty and isinstance(raw, str) and not raw.strip():
        return ""
    if not isinstance(raw, str) or not raw.strip() or "\x00" in raw:
        raise _Malformed("a text that is not empty")
    return raw.strip()


def _path(name: str, raw: object, rules: Rules) -> Path:
    return raw if isinstance(raw, Path) else Path(_text(name, raw, rules))


def _number(name: str, raw: object, rules: Rules) -> float:
    lowest = "0 or more" if name in rules.zero else "more than 0"
    value = _parsed(float, raw) if isinstance(raw, int | float | str) else None
    if value is None or not 0 <= value <= LONGEST_S or (value == 0 and name not in rules.zero):
        raise _Malformed(f"a number of seconds, {lowest} and at most {LONGEST_S:g}")
    return value


def _parsed(number: Callable[[Any], Number], raw: int | float | str) -> Number | None:
    """None = no such number."""
    try:
        return None if isinstance(raw, bool) else number(raw)
    except (TypeError, ValueError, OverflowError):
        return None


def _optional_number(name: str, raw: object, rules: Rules) -> float | None:
    return None if raw in ("", "none") else _number(name, raw, rules)


def _count(name: str, raw: object, rules: Rules) -> int:
    lowest, highest = rules.counts.get(name, (1, LARGEST_COUNT))
    value = _parsed(int, raw) if isinstance(raw, int | str) else None
    if value is None or not lowest <= value <= highest:
        raise _Malformed("a whole number from %d to %d" % (lowest, highest))
    return value


def _yes_no(name: str, raw: object, rules: Rules) -> bool:
    if isinstance(raw, bool):
        return raw
    word = raw.strip().lower() if isinstance(raw, str) else None
    if word not in (*TRUE, *FALSE):
        raise _Malformed("true or false")
    return word in TRUE


def _words(name: str, raw: object, rules: Rules) -> tuple[str, ...]:
    parts = raw.replace(",", " ").split() if isinstance(raw, str) else raw
    if not isinstance(parts, list | tuple) or not parts:
        raise _Malformed("one or more names, as a list or separated by commas")
    pattern, letters, port = WORD, "lower-case letters", ""
    if name in rules.mixed_case:
        pattern, letters = MIXED_WORD, "letters"
    if name == "webhook_allow_hosts":
        pattern, port = WORD + r"(:[0-9]{1,5})?", ", with :PORT or without"
    for part in parts:
        if not isinstance(part, str) or not re.fullmatch(pattern, part):
            raise _Malformed(f"names of {letters}, digits, dots, dashes and underscores{port}")
    if len(set(parts)) != len(parts):
        raise _Malformed("names that differ from each other")
    return tuple(parts)


def _argv(name: str, raw: object, rules: Rules) -> tuple[str, ...]:
    """The words of a command; of a text its words as a shell would split them."""
    import shlex

    try:
        words = shlex.split(raw) if isinstance(raw, str) else raw
    except ValueError:
        words = None
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) and "\0" not in word for word in words):
        raise _Malformed("the words of a command, as a list of texts")
    return tuple(words)


def _pairs(raw: object, expected: str) -> dict[str, object]:
    """A TOML table, or `name=value,name=value`."""
    if isinstance(raw, dict):
        return dict(raw)
    if not isinstance(raw, str):
        raise _Malformed(expected)
    pairs: dict[str, object] = {}
    for part in raw.replace(",", " ").split():
        key, _, value = part.partition("=")
        if not key or not value:
            raise _Malformed(expected)
        pairs[key] = value
    return pairs


def _counts(name: str, raw: object, rules: Rules) -> dict[str, int]:
    return {
        key: 0 if value in (0, "0") and not isinstance(value, bool) else _count(name, value, rules)
        for key, value in _pairs(raw, rules.pairs[name]).items()
    }


def _prices(name: str, raw: object, rules: Rules) -> dict[str, tuple[float, float]]:
    expected = _Malformed("shape=spot/on-demand pairs in $ per hour, such as cpu=0.10/0.30")
    prices = {}
    for shape, value in _pairs(raw, str(expected)).items():
        parts = value.split("/") if isinstance(value, str) else value
        if not isinstance(parts, list | tuple) or len(parts) != 2:
            raise expected
        spot_usd, on_demand_usd = (_parsed(float, part) for part in parts)
        if spot_usd is None or on_demand_usd is None or not (0 <= spot_usd <= 1e6 and 0 <= on_demand_usd <= 1e6):
            raise expected
        prices[shape] = (spot_usd, on_demand_usd)
    return prices


def _texts(name: str, raw: object, rules: Rules) -> dict[str, str]:
    texts, word = {}, MIXED_WORD if name in rules.mixed_case else WORD
    for key, value in _pairs(raw, rules.pairs[name]).items():
        if not isinstance(value, str) or not rules.texts[name].fullmatch(value) or not re.fullmatch(word, key):
            raise _Malformed(rules.pairs[name])
        texts[key] = value
    return texts


_PARSERS: Mapping[str, Callable[[str, object, Rules], object]] = {
    "Path": _path,
    "str": _text,
    "int": _count,
    "bool": _yes_no,
    "float": _number,
    "float | None": _optional_number,
    "tuple[str, ...]": _words,
    "Argv": _argv,
    "Mapping[str, int]": _counts,
    "Mapping[str, str]": _texts,
    "Mapping[str, tuple[float, float]]": _prices,
}


def check_words(log_level: str, log_format: str, machine_prefix: str) -> None:
    """Settings with a few allowed words. Raises SettingsRefused."""
    for name, value, allowed in (("log_level", log_level, LOG_LEVELS), ("log_format", log_format, LOG_FORMATS)):
        if value not in allowed:
            raise SettingsRefused("{} = {}: expected {}".format(name, value, " or ".join(allowed)), {"name": name})
    if not re.fullmatch(r"[a-z][a-z0-9-]{0,19}", machine_prefix):
        raise SettingsRefused(
            f"machine_prefix = {machine_prefix}: expected a lower-case letter, then up to 19 letters, digits or dashes"
        )


def check_database(database_url: str) -> None:
    """The database must be of a known kind. Raises SettingsRefused, without the value, which may contain a secret."""
    if not database_url.startswith(("sqlite:///", "postgresql://", "postgresql+psycopg://")):
        raise SettingsRefused("database_url: expected sqlite:///PATH or postgresql+psycopg://USER@HOST/NAME")


def safe_address(url: str) -> SplitResult | None:
    """The parts of an address that a credential may be sent to: https, or http on this computer; else None."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return None
    safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
    return parts if safe and host and "@" not in parts.netloc else None


def check_own_url(name: str, url: str) -> None:
    """Check an address that tokens are sent to. Raises SettingsRefused."""
    parts = safe_address(url)
    if url and (parts is None or parts.query or parts.fragment):
        raise SettingsRefused(
            f"{name}: expected https://HOST, or http:// with a loopback address; tokens are sent there", {"name": name}
        )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_keys(name: str, table: Mapping[str, object], allowed_name: str, allowed: tuple[str, ...]) -> None:
    """Every key of `table` must be one of `allowed`. Raises SettingsRefused."""
    for key in table:
        if key not in allowed:
            raise SettingsRefused(
                "{} names {}, which is not one of {} ({})".format(name, key, allowed_name, ", ".join(allowed)),
                {"name": name, "key": key},
            )
