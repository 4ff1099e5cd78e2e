"""Secrets that the machine reads itself, with its own account: `gcp:projects/P/secrets/S/versions/V`.

What is said of one that cannot be read names it and the service's answer, and holds nothing of a value.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Dict, Mapping, Optional
from urllib.parse import quote

from supervisor.agent.machine.masking import MIN_CHARS
from supervisor.agent.store.googleapi import Effort, GoogleApi, Pace, account_for, said
from supervisor.agent.store.site import Answer, Site, Unreachable
from supervisor.contract.heartbeat import NO_SECRET, NO_START

ENDPOINT = "https://secretmanager.googleapis.com"
RETRY_FOR_S = 60.0
DENIED_FOR_S = 180.0  # a role that was just granted takes minutes to reach the service: 403 is final then
_REFERENCE = re.compile(r"gcp:(projects/[^/]+/secrets/[^/]+/versions/[^/]+)")


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
    found = _REFERENCE.fullmatch(reference)
    if found is None:
        raise SecretRefused("secret %s: %s is no reference that a machine can read" % (name, reference))
    try:
        answer = _asked(api, "/v1/%s:access" % quote(found.group(1), safe="/"), pace)
    except Unreachable as error:
        raise SecretUnanswered("secret %s: %s was not answered: %s" % (name, found.group(1), error)) from None
    if answer.status != 200:
        raise SecretRefused("secret %s: %s cannot be read: %s" % (name, found.group(1), said(answer)))
    value = _value(answer)
    if value is None:
        raise SecretRefused("secret %s: %s is not a text" % (name, found.group(1)))
    if len(value.strip()) < MIN_CHARS:
        text = "secret %s: %s holds fewer than %d characters, which cannot be masked"
        raise SecretRefused(text % (name, found.group(1), MIN_CHARS))
    return value


def _value(answer: Answer) -> Optional[str]:
    """Without one line break at its end, as in a secret of a file. None for what no environment variable can hold."""
    try:
        data = base64.b64decode(json.loads(answer.body)["payload"]["data"], validate=True).decode("utf-8")
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    value = data[:-1] if data.endswith("\n") else data
    return None if "\x00" in value else value
