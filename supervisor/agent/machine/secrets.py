"""Secrets on their way to the command, and the agent's own words without them.

Most come by standard input: one JSON object {name: value}, complete, before the agent says its name. Not by its
environment, which anybody of the same user reads in /proc for as long as it lives, and not by job.json, which lies on
the disk. An input that ends early means that whoever started the agent died meanwhile: the agent refuses to begin and
leaves no trace, so the same launch starts it again.

Others the machine reads itself, with its own account: `gcp:projects/P/secrets/S/versions/V`. The text about one that
cannot be read names it and the service's answer, and holds nothing of a value.

What the agent prints on standard error is kept by the provider, so it is masked, tracebacks included. Errors that
nobody caught go the same way, whichever thread they end: Python's own hooks know no masks.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import re
import sys
import threading
from types import TracebackType
from typing import Any, Dict, Iterable, Mapping, Optional, Type
from urllib.parse import quote

from supervisor.agent.machine.masking import MIN_CHARS, NOTHING, Masker
from supervisor.agent.store.googleapi import Effort, GoogleApi, Pace, account_for, said
from supervisor.agent.store.site import Answer, Site, Unreachable
from supervisor.contract.heartbeat import NO_SECRET, NO_START

MAX_BYTES = 1 << 25
STDIN = 0
ENDPOINT = "https://secretmanager.googleapis.com"
RETRY_FOR_S = 60.0
DENIED_FOR_S = 180.0  # a role that was just granted takes minutes to reach the service: 403 is final then
_REFERENCE = re.compile(r"gcp:(projects/[^/]+/secrets/[^/]+/versions/[^/]+)")
_FORM = "%(asctime)s %(levelname)s %(threadName)s: %(message)s"
_log = logging.getLogger("agent")


class SecretsMissing(Exception):
    """The text names secrets and holds no value."""


def read_secrets(names: Iterable[str], descriptor: int = STDIN) -> Dict[str, str]:
    """name -> value, for exactly `names`. Nothing is read when there are none. Raises SecretsMissing.

    The descriptor leads to nothing afterwards: no child may read it again.
    """
    wanted = sorted(names)
    if not wanted:
        return {}
    try:
        with open(os.dup(descriptor), "rb") as source:
            data = source.read(MAX_BYTES)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, descriptor, inheritable=False)
        os.close(nothing)
    except OSError as error:
        text = "standard input cannot be read (%s); it should bring %s" % (error, ", ".join(wanted))
        raise SecretsMissing(text) from None
    values = _parsed(data)
    missing = [name for name in wanted if not isinstance(values.get(name), str)]
    if missing:
        raise SecretsMissing("standard input ended before it brought %s" % ", ".join(missing))
    return {name: values[name] for name in wanted}


def _parsed(data: bytes) -> Dict[str, Any]:
    """Empty for everything that is no JSON object: what was there may be a part of a value, so nothing tells of it."""
    try:
        values = json.loads(data)
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}


class SecretRefused(Exception):
    """The text is for a person, and holds no value. `left`: the beat's word for it."""

    left = NO_SECRET


class SecretUnanswered(SecretRefused):
    """Nothing is wrong with the run: another machine, or this one later, may read it."""

    left = NO_START


def fetch_secrets(
    references: Mapping[str, str],
    endpoint: Optional[str],
    authorities: Optional[str] = None,
    pace: Optional[Pace] = None,
) -> Dict[str, str]:
    """name -> value. `endpoint`: None = Google's. Raises SecretRefused for the first that is not to be had."""
    if not references:
        return {}
    endpoint = endpoint or ENDPOINT
    site = Site(endpoint, authorities=authorities)
    pace = pace or Pace(RETRY_FOR_S)
    api = GoogleApi(site, account_for(endpoint), pace)
    try:
        return {name: _fetched(api, name, references[name], pace) for name in sorted(references)}
    finally:
        api.close()


def _asked(api: GoogleApi, path: str, pace: Pace) -> Answer:
    """Raises Unreachable."""
    effort = Effort(Pace(DENIED_FOR_S, pace.pause, pace.monotonic))
    while True:
        answer = api.call("GET", path)
        if answer.status != 403:
            return answer
        try:
            effort.again(said(answer))
        except Unreachable:
            return answer


def _fetched(api: GoogleApi, name: str, reference: str, pace: Pace) -> str:
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        raise SecretRefused("secret %s: %s is no reference that a machine can read" % (name, reference))
    try:
        answer = _asked(api, "/v1/%s:access" % quote(match.group(1), safe="/"), pace)
    except Unreachable as error:
        raise SecretUnanswered("secret %s: %s was not answered: %s" % (name, match.group(1), error)) from None
    if answer.status != 200:
        raise SecretRefused("secret %s: %s cannot be read: %s" % (name, match.group(1), said(answer)))
    value = _value(answer)
    if value is None:
        raise SecretRefused("secret %s: %s is not a text" % (name, match.group(1)))
    if len(value.strip()) < MIN_CHARS:
        text = "secret %s: %s holds fewer than %d characters, which cannot be masked"
        raise SecretRefused(text % (name, match.group(1), MIN_CHARS))
    return value


def _value(answer: Answer) -> Optional[str]:
    """Without one line break at its end, as in a secret of a file. None for what no environment variable can hold."""
    try:
        data = base64.b64decode(json.loads(answer.body)["payload"]["data"], validate=True).decode("utf-8")
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    value = data[:-1] if data.endswith("\n") else data
    return None if "\x00" in value else value


class MaskingFormatter(logging.Formatter):
    def __init__(self, masker: Masker, form: str = _FORM) -> None:
        super().__init__(form)
        self._masker = masker

    def format(self, record: logging.LogRecord) -> str:
        return self._masker.text(super().format(record))


def open_console(masker: Masker = NOTHING) -> None:
    """Once at the start, and again when there is something to mask."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(MaskingFormatter(masker))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    sys.excepthook = _uncaught
    threading.excepthook = _uncaught_in_thread


def _uncaught(kind: Type[BaseException], error: BaseException, trace: Optional[TracebackType]) -> None:
    _log.critical("the agent ends by an error of its own", exc_info=(kind, error, trace))


def _uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None and args.exc_type is not SystemExit:
        _log.critical("a thread ended by an error", exc_info=(args.exc_type, args.exc_value, args.exc_traceback))
