"""Secrets for the command: received by standard input, or fetched from the cloud.

Most come by standard input: one JSON object {name: value}, complete, before the agent writes its identity. They do not
come by the environment, which any process of the same user can read in /proc as long as the agent runs, and not by
job.json, which is on the disk. An input that ends early means that the process that started the agent died meanwhile:
the agent refuses to start and leaves no trace, so the same launch can start it again.

The machine fetches others itself, with its own account: `gcp:projects/P/secrets/S/versions/V`. The error text about an
unreadable secret names it and the service's response, and contains nothing of a value.

A platform that brings secrets as files names their folder in SPOT_SECRETS_DIR: one file for each, with its name.
"""

from __future__ import annotations

import base64
import json
import os
import re
from typing import Any, Dict, Iterable, Mapping, Optional
from urllib.parse import quote

from supervisor.agent.machine.masking import MIN_CHARS
from supervisor.agent.store.googleapi import GoogleApi, Retries, RetryPolicy, account_for, error_text
from supervisor.agent.store.httpclient import HttpClient, Request, Response, Unreachable
from supervisor.contract.heartbeat import NO_SECRET, NO_START

MAX_BYTES = 1 << 25
STDIN = 0
ENDPOINT = "https://secretmanager.googleapis.com"
RETRY_FOR_S = 60.0
DENIED_FOR_S = 180.0  # a new role takes minutes to reach the service; after this time a 403 is final
_REFERENCE = re.compile(r"gcp:(projects/[^/]+/secrets/[^/]+/versions/[^/]+)")


class SecretsMissing(Exception):
    """The text names secrets and contains no value."""


def read_secrets(names: Iterable[str], descriptor: int = STDIN) -> Dict[str, str]:
    """name -> value, for exactly `names`. Reads nothing when there are none. Raises SecretsMissing.

    Afterwards the descriptor leads to /dev/null: no child can read it again.
    """
    wanted = sorted(names)
    if not wanted:
        return {}
    try:
        with open(os.dup(descriptor), "rb") as source:
            data = source.read(MAX_BYTES)
        devnull = os.open(os.devnull, os.O_RDONLY)
        os.dup2(devnull, descriptor, inheritable=False)
        os.close(devnull)
    except OSError as error:
        text = "standard input cannot be read (%s); it should bring %s" % (error, ", ".join(wanted))
        raise SecretsMissing(text) from None
    values = _parsed(data)
    missing = [name for name in wanted if not isinstance(values.get(name), str)]
    if missing:
        raise SecretsMissing("standard input ended before it brought %s" % ", ".join(missing))
    return {name: values[name] for name in wanted}


def _parsed(data: bytes) -> Dict[str, Any]:
    """Empty for anything but a JSON object. The input may be a part of a value, so no error text repeats it."""
    try:
        values = json.loads(data)
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}


class SecretRefused(Exception):
    """The text is for a person, and contains no value. `left`: the beat's word for it."""

    left = NO_SECRET


class SecretUnavailable(SecretRefused):
    """The run is not at fault: another machine, or this one later, may read it."""

    left = NO_START


def secrets_in(folder: str, names: Iterable[str]) -> Dict[str, str]:
    """name -> value, of the file with that name. Raises SecretRefused for the first unavailable one."""
    values = {}
    for name in sorted(names):
        try:
            with open(os.path.join(folder, name), "rb") as source:
                data = source.read(MAX_BYTES)
        except OSError as error:
            raise SecretRefused("secret %s: its file cannot be read: %s" % (name, error.strerror)) from None
        values[name] = _checked(_text(data), "secret %s" % name, "its file")
    return values


def fetch_secrets(
    references: Mapping[str, str],
    endpoint: Optional[str],
    authorities: Optional[str] = None,
    policy: Optional[RetryPolicy] = None,
) -> Dict[str, str]:
    """name -> value. `endpoint`: None = Google's. Raises SecretRefused for the first unavailable one."""
    if not references:
        return {}
    endpoint = endpoint or ENDPOINT
    policy = policy or RetryPolicy(RETRY_FOR_S)
    api = GoogleApi(HttpClient(endpoint, authorities=authorities), account_for(endpoint), policy)
    try:
        return {name: _fetched(api, name, references[name], policy) for name in sorted(references)}
    finally:
        api.close()


def _fetched(api: GoogleApi, name: str, reference: str, policy: RetryPolicy) -> str:
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        raise SecretRefused("secret %s: %s is no reference that a machine can read" % (name, reference))
    try:
        response = _get(api, "/v1/%s:access" % quote(match.group(1), safe="/"), policy)
    except Unreachable as error:
        raise SecretUnavailable("secret %s: %s was not answered: %s" % (name, match.group(1), error)) from None
    if response.status != 200:
        raise SecretRefused("secret %s: %s cannot be read: %s" % (name, match.group(1), error_text(response)))
    return _checked(_value(response), "secret %s" % name, match.group(1))


def _checked(value: Optional[str], secret: str, source: str) -> str:
    """Raises SecretRefused for a value that is no text, or that cannot be masked."""
    if value is None:
        raise SecretRefused("%s: %s is not a text" % (secret, source))
    if len(value.strip()) < MIN_CHARS:
        text = "%s: %s holds fewer than %d characters, which cannot be masked"
        raise SecretRefused(text % (secret, source, MIN_CHARS))
    return value


def _get(api: GoogleApi, path: str, policy: RetryPolicy) -> Response:
    """Raises Unreachable."""
    retries = Retries(RetryPolicy(DENIED_FOR_S, policy.sleep, policy.monotonic))
    while True:
        response = api.call(Request("GET", path))
        if response.status != 403:
            return response
        try:
            retries.wait(error_text(response))
        except Unreachable:
            return response


def _value(response: Response) -> Optional[str]:
    """None for a response that has no value."""
    try:
        return _text(base64.b64decode(json.loads(response.body)["payload"]["data"], validate=True))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _text(data: bytes) -> Optional[str]:
    """Without one line break at its end, which a secret from a file has. None for a value that no environment variable
    can hold."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    value = text[:-1] if text.endswith("\n") else text
    return None if "\x00" in value else value
