"""Single functions of the start-up script: quoting, encoding, and final refusals."""

import json
import subprocess
from urllib.parse import quote

import pytest

from supervisor.providers.gce.machines.instance import startup_script

FUNCTIONS, _, _FLOW = startup_script().partition('mkdir -p "$ROOT/run"\n')
TEXTS = [
    "",
    "plain",
    'a "b" \'c\' \\ \\" \\n & / % $(x) `y` ${z} !#',
    "\u00e9\u4e2d\U0001f600 \x7f \x01\t\r\nnext",
    "x" * 500,
    '"' * 300,
    "&" * 5,
]


def called(function: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = ["/bin/bash", "-c", FUNCTIONS + f'\n{function} "$@"', "startup", *arguments]
    return subprocess.run(command, capture_output=True, check=False)


@pytest.mark.parametrize("text", TEXTS)
def test_a_message_is_json_whatever_it_holds(text: str) -> None:
    read = json.loads(called("json", text).stdout)
    assert read == "".join(char if " " <= char <= "~" else " " * len(char.encode()) for char in text)[:290]


@pytest.mark.parametrize("text", ['a "b" \\', "\u00e9/\u4e2d"])
def test_a_name_is_json_to_the_byte(text: str) -> None:
    assert json.loads(called("quoted", text).stdout) == text


@pytest.mark.parametrize("text", [*TEXTS[1:4], "team/agents/0.pyz", "~-._%2F"])
def test_a_name_in_a_url_is_encoded_to_the_byte(text: str) -> None:
    assert called("percent", text).stdout.decode() == quote(text, safe="")


@pytest.mark.parametrize(
    "words",
    [
        "manifest for digits:7 not found: manifest unknown: manifest unknown",
        "no matching manifest for linux/amd64 in the manifest list entries",
        "invalid reference format",
    ],
)
def test_some_refusals_are_for_good(words: str) -> None:
    assert called("is_final", f"Error response from daemon: {words}").returncode == 0


@pytest.mark.parametrize(
    "words",
    [
        "Get https://registry.example/v2/: net/http: TLS handshake timeout",
        "dial tcp: lookup registry.example on 169.254.169.254:53: no such host",
        # New permissions take time: these are retried for three minutes.
        "pull access denied for digits, repository does not exist or may require 'docker login'",
        "unauthorized: authentication required",
        'denied: Permission "artifactregistry.repositories.downloadArtifacts" denied on resource',
        "denied: Quota exceeded for quota metric 'Requests per project per region'",
        "toomanyrequests: You have reached your pull rate limit",
        "x509: certificate signed by unknown authority",
        "unexpected EOF",
        "received unexpected HTTP status: 503 Service Unavailable",
        "permission denied while trying to connect to the Docker daemon socket",
    ],
)
def test_others_are_not(words: str) -> None:
    assert called("is_final", f"Error response from daemon: {words}").returncode == 1
