"""Bad input: each case is refused with its code, nothing of it is stored or repeated, and readers still work."""

from __future__ import annotations

import json
from typing import Any

import pytest

from supervisor.contract.heartbeat import encode
from tests.services.bed import Bed, Client, beat

GOOD = {"command": ["python", "train.py"]}
SECRET = "planted-secret-value"
READERS = (
    "/v1/runs", "/v1/runs/healthy", "/v1/runs/healthy/attempts", "/v1/runs/healthy/events", "/v1/runs/healthy/logs",
    "/v1/events", "/livez", "/readyz?verbose", "/v1/doctor",
)  # fmt: skip


STAGED = {"from": "https://files.test/x.tar", "to": "sets/x.tar", "sha256": "0" * 64}


def spec(**fields: Any) -> bytes:
    return json.dumps({"spec": {**GOOD, **fields}}).encode()


def raw(text: str) -> bytes:
    """A spec with this JSON text as its budget, which json.dumps would not write."""
    return b'{"spec":{"command":"x","limits":{"budget_usd":%s}}}' % text.encode()


INVALID, JSON, TIMEOUTS = (422, "INVALID_REQUEST"), (400, "INVALID_JSON"), (422, "INVALID_TIMEOUTS")
SUBMITS: dict[str, tuple[bytes, tuple[int, str]]] = {
    "empty body": (b"", JSON),
    "no JSON": (b"spec: {}", JSON),
    "cut JSON": (b'{"spec":{"command":"x"', JSON),
    "not UTF-8": (b'{"spec":{"command":"\xff\xfe"}}', JSON),
    "two documents": (spec() + spec(), JSON),
    "depth 900": (b'{"spec":' + b'{"env":' * 900 + b"1" + b"}" * 901, JSON),
    "depth 900 in a list": (b"[" * 900 + b"]" * 900, JSON),
    "lone surrogate": (b'{"spec":{"command":"\\ud800"}}', JSON),
    "lone surrogate as a key": (b'{"spec":{"command":"x","env":{"\\udfff":"1"}}}', JSON),
    "a list": (b"[]", INVALID),
    "a number": (b"7", INVALID),
    "null": (b"null", INVALID),
    "no spec": (b"{}", INVALID),
    "spec null": (b'{"spec":null}', INVALID),
    "no command": (b'{"spec":{}}', INVALID),
    "empty command": (spec(command=""), INVALID),
    "blank command": (spec(command="  "), INVALID),
    "command without words": (spec(command=[]), INVALID),
    "command of numbers": (spec(command=[1, 2]), INVALID),
    "command with NUL": (spec(command=["a\x00b"]), INVALID),
    "shell text with NUL": (spec(command="a\x00b"), INVALID),
    "command of 191 KB": (spec(command="x" * (191 * 1024)), INVALID),
    "command of 1,025 words": (spec(command=["x"] * 1025), INVALID),
    "unknown field": (spec(comand="x"), INVALID),
    "scratch outside": (spec(scratch=["../x"]), INVALID),
    "scratch outside in the middle": (spec(scratch=["a/../../x"]), INVALID),
    "scratch of the system": (spec(scratch=["/etc/*"]), INVALID),
    "scratch of the system with more slashes": (spec(scratch=["//./usr/lib/x"]), INVALID),
    "scratch from a wildcard": (spec(scratch=["/*/x"]), INVALID),
    "scratch of a whole folder of the root": (spec(scratch=["/data/"]), INVALID),
    "scratch of everything": (spec(scratch=["/"]), INVALID),
    "scratch of nothing": (spec(scratch=["./"]), INVALID),
    "empty scratch": (spec(scratch=[""]), INVALID),
    "scratch with two stars": (spec(scratch=["a/**/x"]), INVALID),
    "scratch with NUL": (spec(scratch=["a\x00b"]), INVALID),
    "scratch of 17 globs": (spec(scratch=[str(number) for number in range(17)]), INVALID),
    "scratch of 513 characters": (spec(scratch=["x" * 513]), INVALID),
    "scratch as a text": (spec(scratch="cache/*"), INVALID),
    "staged file outside": (spec(stage=[{**STAGED, "to": "../x"}]), INVALID),
    "staged file at an absolute path": (spec(stage=[{**STAGED, "to": "/etc/x"}]), INVALID),
    "staged file without a hash": (spec(stage=[{"from": STAGED["from"], "to": "x"}]), INVALID),
    "staged file from another computer's disk": (spec(stage=[{**STAGED, "from": "file:///etc/passwd"}]), INVALID),
    "staged file with a password": (spec(stage=[{**STAGED, "from": "https://me:pw@files.test/x"}]), INVALID),
    "two staged files of one name": (spec(stage=[STAGED, STAGED]), INVALID),
    "a staged file in another": (spec(stage=[STAGED, {**STAGED, "to": STAGED["to"] + "/y"}]), INVALID),
    "unknown field of limits": (spec(limits={"max_atempts": 3}), INVALID),
    "unknown field beside spec": (json.dumps({"spec": GOOD, "run-id": "a"}).encode(), INVALID),
    "NaN": (raw("NaN"), INVALID),
    "Infinity": (raw("Infinity"), INVALID),
    "-Infinity": (raw("-Infinity"), INVALID),
    "1e999": (raw("1e999"), INVALID),
    "budget 0": (raw("0"), INVALID),
    "budget as text": (raw('"5"'), INVALID),
    "budget true": (raw("true"), INVALID),
    "2**63": (spec(limits={"max_attempts": 2**63}), INVALID),
    "10**400": (spec(limits={"max_attempts": 10**400}), INVALID),
    "a fraction as a count": (spec(limits={"max_attempts": 1.5}), INVALID),
    "negative seconds": (spec(limits={"max_runtime_s": -1}), INVALID),
    "a thousand years": (spec(limits={"machine_max_s": 3.2e10}), INVALID),
    "deadline without a zone": (spec(limits={"deadline": "2030-01-01T00:00:00"}), INVALID),
    "deadline as a number": (spec(limits={"deadline": 1893456000}), INVALID),
    "deadline beyond the calendar": (spec(limits={"deadline": "9999-12-31T23:59:59-12:00"}), INVALID),
    "deadline in the past": (spec(limits={"deadline": "2020-01-01T00:00:00Z"}), INVALID),
    "silence below three beats": (spec(stall={"silence_s": 5}), TIMEOUTS),
    "kept for two days": (spec(on_success="keep", keep_s=172_800), INVALID),
    "on_success unknown": (spec(on_success="burn"), INVALID),
    "on_failure ask": (spec(on_failure="ask"), INVALID),
    "65 labels": (spec(labels={f"k{n}": "v" for n in range(65)}), INVALID),
    "label with =": (spec(labels={"a=b": "v"}), INVALID),
    "label with NUL": (spec(labels={"a": "v\x00"}), INVALID),
    **{
        f"label with U+{ord(char):04X}": (spec(labels={"a": f"v{char}w"}), INVALID)
        for char in "\n\t\x1b\x7f\x85\x9b\u061c\u200b\u200f\u2028\u202e\u2066\ufeff"
    },
    "label of 300 characters": (spec(labels={"a": "v" * 300}), INVALID),
    "label number": (spec(labels={"a": 1}), INVALID),
    "env name with blank": (spec(env={"A B": SECRET}), INVALID),
    "env value number": (spec(env={"A": 1}), INVALID),
    "env of 200 KB": (spec(env={f"A{n}": "x" * 30_000 for n in range(7)}), INVALID),
    "env of the agent": (spec(env={"SPOT_RUN_ID": SECRET}), INVALID),
    "65 zones": (spec(zones=[f"z{n}" for n in range(65)]), INVALID),
    "a zone twice": (spec(zones=["local-a", "local-a"]), INVALID),
    "unknown zone": (spec(zones=[SECRET]), INVALID),
    "unknown shape": (spec(shapes=["cpux"]), INVALID),
    "unknown provider": (spec(provider="gcp"), INVALID),
    "results outside": (spec(results=[{"path": "../secrets/*"}]), INVALID),
    "results absolute": (spec(results=[{"path": "/etc/passwd"}]), INVALID),
    "broken pattern": (spec(retry={"log_patterns": ["("]}), INVALID),
    "a jump that ends the run": (spec(watch={"loss": {"spike": "stop"}}), INVALID),
    "a metric without a word": (spec(watch={"loss": {}}), INVALID),
    "a metric with another word": (spec(watch={"loss": {"flat": "alert"}}), INVALID),
    "nine metrics": (spec(watch={f"m{n}": {"nan": "alert"} for n in range(9)}), INVALID),
    "a metric of two lines": (spec(watch={"a\nb": {"nan": "alert"}}), INVALID),
    "a metric without a name": (spec(watch={"": {"nan": "alert"}}), INVALID),
    "a metric with a long name": (spec(watch={"x" * 65: {"nan": "alert"}}), INVALID),
    "exit code 0": (spec(retry={"exit_codes": [0]}), INVALID),
    "run id in capitals": (json.dumps({"run_id": "Digits", "spec": GOOD}).encode(), INVALID),
    "run id of one letter": (json.dumps({"run_id": "a", "spec": GOOD}).encode(), INVALID),
    "run id with line break": (json.dumps({"run_id": "digits\n", "spec": GOOD}).encode(), INVALID),
    "run id of 64": (json.dumps({"run_id": "a" * 64, "spec": GOOD}).encode(), INVALID),
    "run id with path": (json.dumps({"run_id": "a/../b", "spec": GOOD}).encode(), INVALID),
    "1 MB and more": (b" " * 1_000_001, (413, "BODY_TOO_LARGE")),
}
QUERIES: dict[str, tuple[int, str]] = {
    "/v1/runs?pagesize=5": INVALID,
    "/v1/runs?page_size=-1": INVALID,
    "/v1/runs?page_size=x": INVALID,
    "/v1/runs?page_size=" + "9" * 5000: INVALID,
    "/v1/runs?page_size=1&page_size=2": INVALID,
    "/v1/runs?cursor=abc": (400, "CURSOR_INVALID"),
    "/v1/runs?cursor=" + "A" * 40: (400, "CURSOR_INVALID"),
    "/v1/runs?status=runing": INVALID,
    "/v1/runs?label=noequals": INVALID,
    "/v1/runs?label=a%00=b": INVALID,
    "/v1/runs?zone=%00": INVALID,
    "/v1/runs?q=%00": INVALID,
    "/v1/runs?created_after=yesterday": INVALID,
    "/v1/runs?created_after=2027-01-01T00:00:00": INVALID,
    "/v1/runs/healthy?verbose=1": INVALID,
    "/v1/runs/healthy/events?after=-1": INVALID,
    "/v1/runs/healthy/events?after=9223372036854775808": INVALID,
    "/v1/runs/healthy/events?limit=0": INVALID,
    "/v1/runs/healthy/events?limit=1001": INVALID,
    "/v1/runs/healthy/logs?attempt=0": INVALID,
    "/v1/runs/healthy/logs?attempt=99": (404, "RUN_NOT_FOUND"),
    "/v1/runs/healthy/logs?offset=-5": INVALID,
    "/v1/runs/healthy/logs?offset=9223372036854775808": INVALID,
    "/v1/runs/healthy/logs?limit=0": INVALID,
    "/v1/runs/nobody": (404, "RUN_NOT_FOUND"),
    "/v1/runs/no%00body/logs": (404, "RUN_NOT_FOUND"),
    "/v1/runs/%ED%A0%80/events": (404, "RUN_NOT_FOUND"),
    "/v1/runs/..%2f..%2fetc/attempts": (404, "NOT_FOUND"),
}
POSTS: dict[str, tuple[str, bytes, tuple[int, str]]] = {
    "stop nobody": ("/v1/runs/nobody/stop", b"", (404, "RUN_NOT_FOUND")),
    "stop NUL": ("/v1/runs/a%00b/stop", b"", (404, "RUN_NOT_FOUND")),
    "resume nobody": ("/v1/runs/nobody/resume", b"{}", (404, "RUN_NOT_FOUND")),
    "resume unknown field": ("/v1/runs/healthy/resume", b'{"replace":true}', INVALID),
    "approve empty": ("/v1/runs/healthy/approve", b"{}", INVALID),
    "approve no reason": ("/v1/runs/healthy/approve", b'{"machine_id":"a","accept_loss":"  "}', INVALID),
    "approve NUL": ("/v1/runs/healthy/approve", b'{"machine_id":"a\\u0000"}', INVALID),
    "approve hidden reason": ("/v1/runs/healthy/approve", b'{"machine_id":"a","accept_loss":"a\\u202eb"}', INVALID),
    "approve hidden machine": ("/v1/runs/healthy/approve", b'{"machine_id":"a\\u202e"}', (409, "NOTHING_TO_APPROVE")),
    "approve no hash": ("/v1/runs/healthy/approve", b'{"machine_id":"a","results_sha256":"x"}', INVALID),
    "kill without a run": ("/v1/dev/kill", b"{}", INVALID),
    "notice of a year": ("/v1/dev/preempt", b'{"run_id":"healthy","notice_s":1e9}', INVALID),
    "stockout of a number": ("/v1/dev/stockout", b'{"zones":[1]}', INVALID),
    "beat that is none": ("/v1/runs/healthy/heartbeat", b"{", INVALID),
    "beat of depth 900": ("/v1/runs/healthy/heartbeat", b"[" * 900, INVALID),
    "beat of 10**18 steps": ("/v1/runs/healthy/heartbeat", encode(beat("healthy", step=10**18)), INVALID),
    "beat NaN": ("/v1/runs/healthy/heartbeat", b'{"steps_per_s":NaN}', INVALID),
    "beat of another run": ("/v1/runs/healthy/heartbeat", encode(beat("other")), INVALID),
    "beat without its nonce": (
        "/v1/runs/healthy/heartbeat",
        encode(beat("healthy", nonce="x")),
        (403, "NONCE_REFUSED"),
    ),
    "beat for NUL": ("/v1/runs/a%00b/heartbeat", b"{", INVALID),
    "beat for a surrogate": ("/v1/runs/%ED%A0%80/heartbeat", encode(beat("healthy")), INVALID),
    "beat of 11 KB": ("/v1/runs/healthy/heartbeat", b" " * 11_000, (413, "BODY_TOO_LARGE")),
}
KINDS = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx", None]


@pytest.fixture
def guarded(any_bed: Bed) -> Any:
    """A client beside a healthy run; at the end everything must be as it was, and every reader must answer."""
    any_bed.submit("healthy")
    any_bed.train("healthy")
    before = any_bed.run("healthy")
    client = Client(any_bed.services)
    yield client
    assert any_bed.run("healthy") == before
    told = [client.get(path) for path in READERS]
    assert [answer.status_code for answer in told] == [200] * len(READERS)
    assert [run["run_id"] for run in told[0].json()["runs"]] == ["healthy"], "nothing of it was stored"


def refused(answer: Any, expected: tuple[int, str], case: str) -> str | None:
    found = (answer.status_code, answer.json().get("code"))
    if found != expected:
        return f"{case}: {found} instead of {expected}: {answer.text[:300]}"
    return f"{case}: repeats what was sent" if SECRET in answer.text else None


def test_submits(guarded: Client) -> None:
    """One test for the whole table: a database for each case would take minutes."""
    headers = {"content-type": "application/json", "idempotency-key": "one"}
    wrong = [
        refused(guarded.post("/v1/runs", content=content, headers=headers), expected, case)
        for case, (content, expected) in SUBMITS.items()
    ]
    assert len(wrong) >= 60
    assert not any(wrong), "\n".join(filter(None, wrong))


def test_queries(guarded: Client) -> None:
    wrong = [refused(guarded.get(path), expected, path[:60]) for path, expected in QUERIES.items()]
    assert not any(wrong), "\n".join(filter(None, wrong))


@pytest.mark.parametrize("query", ["runs?zone=", "runs?owner=", "runs?q=", "events?actor=", "events?owner="])
def test_a_filter_with_hidden_characters_finds_nothing(guarded: Client, query: str) -> None:
    told = guarded.get(f"/v1/{query}a%E2%80%AE%C2%9B")
    assert told.status_code == 200, told.text
    assert not any(told.json()[name] for name in ("runs", "events") if name in told.json())


def test_posts(guarded: Client) -> None:
    headers = {"content-type": "application/json"}
    wrong = [
        refused(guarded.post(path, content=content, headers=headers), expected, case)
        for case, (path, content, expected) in POSTS.items()
    ]
    assert not any(wrong), "\n".join(filter(None, wrong))


@pytest.mark.parametrize("kind", KINDS)
def test_content_types(client: Client, bed: Bed, kind: str | None) -> None:
    headers = {} if kind is None else {"content-type": kind}
    told = client.post("/v1/runs", content=spec(), headers=headers)
    assert (told.status_code, told.json()["code"]) == (415, "UNSUPPORTED_MEDIA_TYPE")
    assert client.post(
        "/v1/runs", content=spec(), headers={"content-type": "application/JSON; charset=utf-8"}
    ).is_success


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"comand": "x"}, "did you mean command?"),
        ({"results": ["model.npz"]}, "must have fields of its own: path, min_count, verify"),
        ({"limits": 3}, "must have fields of its own: max_runtime_s, deadline"),
        ({"secrets": ["TOKEN"]}, "must have a value for each name"),
        ({"secrets": {"K": "gcp:projects/p/secrets/k"}}, "gcp:projects/PROJECT/secrets/SECRET/versions/VERSION"),
        ({"image": "r/train: 1"}, "such as REGISTRY/NAME:TAG, without spaces"),
        ({"labels": {"a": "\u202e"}}, "marks of writing direction or other hidden characters"),
        ({"venv": ".venv"}, "must be the whole path of a virtual environment"),
        ({"limits": {"max_atempts": 3}}, "did you mean max_attempts?"),
        ({"stall": {"poll": 3}}, "did you mean polls?"),
        ({"results": [{"path": "a", "mincount": 3}]}, "did you mean min_count?"),
        ({"retry": {"exit_code": [3]}}, "did you mean exit_codes?"),
    ],
)
def test_the_refusal_of_a_misspelled_field_names_the_right_one(
    client: Client, given: dict[str, Any], meant: str
) -> None:
    told = client.post("/v1/runs", content=spec(**given), headers={"content-type": "application/json"}).json()
    assert meant in told["errors"][-1]["detail"]
    assert told["errors"][-1]["pointer"].startswith("#/spec/")


def test_odd_but_valid_input_is_accepted_and_every_reader_shows_it(client: Client, bed: Bed) -> None:
    odd = {
        "command": ["python", "-c", "print('\u202e \U0001f600 \x1b[31m <script>')", ""],
        "env": {"A": "\n\t\x7f", "B": ""},
        "labels": {"k": "", "a.b/c": "<!channel> \U0001f600"},
        "limits": {"budget_usd": 1e-9, "deadline": "9999-12-31T23:59:59Z", "wait_for_capacity_s": 0},
        "results": [{"path": "**/*.pt"}],
        "workdir": "/data/ä ö",
    }
    told = client.post("/v1/runs", json={"run_id": "healthy", "spec": odd})
    assert told.status_code == 201, told.text
    assert [client.get(path).status_code for path in READERS] == [200] * len(READERS)
    assert client.post("/v1/runs", json={"run_id": "healthy", "spec": odd}).status_code == 200, "the same spec"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"max_attempts": 3}, "#/spec/max_attempts is not known; did you mean limits.max_attempts?"),
        ({"run-id": "x"}, "#/spec/run-id is not known; did you mean run_id, beside spec?"),
        ({"On-Success": "x"}, "#/spec/On-Success is not known; did you mean on_success?"),
        ({"frobnicate": 1}, "#/spec/frobnicate is not known."),
        ({"on_success": "kep"}, "#/spec/on_success must be release, keep or ask; did you mean keep?"),
        ({"race": 3}, "#/spec/race must be 1 or 2."),
        ({"on_success": ["keep"]}, "#/spec/on_success must be release, keep or ask."),
        ({"zones": "local-a"}, "#/spec/zones must be a list, such as [a, b]."),
        ({"spot": "yes"}, "#/spec/spot must be true or false."),
        ({"env": {"A": 1}}, "#/spec/env/A must be a text; in YAML put it in quotes."),
        ({"limits": {"max_runtime_s": "4h"}}, "max_runtime_s must be a number of seconds, such as 3600 for an hour."),
        ({"limits": {"deadline": "2h"}}, "deadline must be a time with its zone, such as 2026-01-31T12:00:00Z."),
        ({"limits": {"deadline": "2026-01-31T12:00:00"}}, "time with its zone, such as 2026-01-31T12:00:00Z."),
        ({"watch": {"loss": {"nan": "end"}}}, "#/spec/watch/loss/nan must be alert or stop."),
        (
            {"watch": {"loss": {"spike": "stop"}}},
            "a jump ends no run, because one outlier is no proof: use `spike: alert`, or `nan: stop`.",
        ),
        ({"limits": {"max_attempts": "ten"}}, "#/spec/limits/max_attempts must be a whole number."),
    ],
)
def test_a_refusal_says_what_to_write_instead(client: Client, fields: dict[str, Any], reason: str) -> None:
    answer = client.post("/v1/runs", content=spec(**fields), headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert answer.json()["detail"].endswith(reason)


@pytest.mark.parametrize(("zones", "pointer"), [([0], "#/zones/0"), ([1, [""]], "#/zones/1/0"), ([{}], "#/zones/0")])
def test_a_wrong_choice_of_zones_is_named_by_its_place_alone(client: Client, zones: list[Any], pointer: str) -> None:
    """Broken variant: `#/zones/0/constrained-int` and `#/zones/0/function-after[unique(), list[...]]`."""
    told = client.post("/v1/what-if", json={"spec": {"command": ["x"]}, "zones": zones})
    assert told.status_code == 422
    assert [each["pointer"] for each in told.json()["errors"]] == [pointer]
