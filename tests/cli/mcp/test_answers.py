"""What a call of a tool sends and answers, against the fake API: short, bounded, without secrets, and errors with what
to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from supervisor.cli.files.local_inputs import HASH
from supervisor.cli.finding import Target
from supervisor.cli.mcp import serving
from supervisor.cli.mcp.tools import TOOLS
from tests.cli.fake_api import FakeApi, a_page, a_run, accept_submits, an_event, serve_run

KEY = "sk-ant-api03-" + "Ab1" * 30


@pytest.fixture
def call(api: FakeApi, clean, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SPOT_URL", api.url)
    client = Target().client()

    def work(name: str, write: bool = False, **arguments: Any) -> Any:
        text, failed = serving.answer(client, name, arguments, write=write)
        assert len(text) <= serving.ANSWER_MAX
        parsed = json.loads(text)
        assert failed == ("error" in parsed)
        return parsed.get("error", parsed)

    return work


def test_a_page_of_runs_and_how_to_go_on(call, api: FakeApi) -> None:
    api.respond("GET", "/v1/runs", a_page(a_run(), cursor="c2"))
    answer = call("list_runs", status=["running"], page_size=7)
    assert api.requests[-1].query == {"status": ["running"], "page_size": ["7"]}
    assert answer["runs"][0]["run_id"] == "digits-7"
    assert (answer["next_cursor"], 'cursor="c2"' in answer["next"]) == ("c2", True)
    assert "stall" not in answer["runs"][0]  # no field of the table
    assert all(value is not None for value in answer["runs"][0].values())


def test_a_run_has_its_attempts_and_their_causes(call, api: FakeApi) -> None:
    serve_run(api, a_run())
    answer = call("show_run", run_id="digits-7")
    assert [attempt.get("cause") for attempt in answer["attempts"]] == ["preempted", None]
    assert answer["attempts"][0]["evidence"] == "notice of 30 s"


def test_a_page_that_is_too_long_is_requested_again_with_half_the_records(call, api: FakeApi) -> None:
    def page(request: Any) -> tuple[int, Any]:
        size = int(request.query["limit"][0])
        return 200, {"events": [an_event(n % 60, "waiting", "w" * 1400) for n in range(1, size + 1)], "complete": False}

    api.responses[("GET", "/v1/runs/digits-7/events")] = page
    answer = call("list_events", run_id="digits-7", limit=40)
    assert [request.query["limit"] for request in api.requests] == [["40"], ["20"], ["10"]]
    assert [event["id"] for event in answer["events"]] == list(range(1, 11))
    assert answer["next"] == "more events: the same arguments and after=10"


def test_a_list_without_pages_is_cut_and_says_so(call, api: FakeApi) -> None:
    rows = [{"name": f"run-{n}", "billed_usd": n, "note": "x" * 4000} for n in range(200)]
    api.respond("GET", "/v1/ledger", {"by": "run", "rows": rows, "total": {"billed_usd": 9}, "complete": True})
    answer = call("show_ledger", by="run")
    assert answer["rows"][-1].endswith(" more")
    assert answer["rows"][0]["note"].endswith("more characters)")
    assert answer["total"] == {"billed_usd": 9}


def test_a_log_is_read_from_its_end_and_its_secrets_are_dots(call, api: FakeApi) -> None:
    log = {"attempt": 1, "text": f"step 1\nHF key {KEY}\n", "offset": 90, "next_offset": 200, "complete": False}
    api.respond("GET", "/v1/runs/digits-7/logs", log)
    answer = call("read_log", run_id="digits-7")
    assert api.requests[-1].query == {"tail": ["100"], "limit": ["12000"]}
    assert "step 1" in answer["text"]
    assert KEY not in json.dumps(answer)
    assert answer["next"] == "earlier lines: tail=100, before=90; what follows: offset=200"
    call("read_log", run_id="digits-7", q="loss", ignore_case=True)
    assert api.requests[-1].query == {"q": ["loss"], "ignore_case": ["true"]}


def test_the_environment_of_a_spec_hides_what_its_name_calls_a_secret(call, api: FakeApi) -> None:
    spec = {"command": ["x"], "env": {"WANDB_API_KEY": "abc", "EPOCHS": "3"}, "secrets": {"HF_TOKEN": "env:HF_TOKEN"}}
    api.respond("GET", "/v1/runs/digits-7/spec", {"run_id": "digits-7", "generation": 1, "spec": spec, "withheld": []})
    shown = call("show_spec", run_id="digits-7")["spec"]
    assert (shown["env"]["WANDB_API_KEY"], shown["env"]["EPOCHS"]) == (serving.DOTS, "3")
    assert shown["secrets"] == {"HF_TOKEN": "env:HF_TOKEN"}  # a reference, no secret


def test_a_submit_carries_a_key_and_returns_it(call, api: FakeApi) -> None:
    accept_submits(api)
    answer = call("submit_run", write=True, spec={"command": ["python", "train.py"]}, run_id="digits-7")
    sent = api.requests[-1]
    assert sent.headers["idempotency-key"] == answer["idempotency_key"]
    assert sent.body == {"spec": {"command": ["python", "train.py"]}, "run_id": "digits-7"}
    again = call("submit_run", write=True, spec={"command": ["x"]}, idempotency_key="mine", plan_id="plan_" + "a" * 50)
    assert (api.requests[-1].headers["idempotency-key"], again["idempotency_key"]) == ("mine", "mine")
    assert api.requests[-1].body["plan_id"] == "plan_" + "a" * 50


def test_a_lost_response_is_asked_for_again_with_the_same_key(call, api: FakeApi) -> None:
    api.responses[("POST", "/v1/runs")] = [(200, None), (201, {**a_run(), "warnings": [], "differs": []})]
    answer = call("submit_run", write=True, spec={"command": ["x"]})
    keys = [request.headers["idempotency-key"] for request in api.requests]
    assert keys == [answer["idempotency_key"]] * 2
    api.respond("POST", "/v1/runs", None)
    error = call("submit_run", write=True, spec={"command": ["x"]}, idempotency_key="mine")
    assert (error["code"], 'idempotency_key="mine"' in error["what_to_do"][0]) == ("SERVER_UNREACHABLE", True)


def test_a_plan_is_no_submit(call, api: FakeApi) -> None:
    plan = {"would": "create", "plan_id": "plan_" + "a" * 50, "plan_expires_at": "2026-01-01T00:15:00Z", "launch": {}}
    api.respond("POST", "/v1/runs", plan)
    answer = call("plan_run", spec={"command": ["x"]})
    assert api.requests[-1].query == {"validate_only": ["true"]}
    assert answer["plan_id"] == plan["plan_id"]
    assert answer["next"].startswith("submit_run (with --write)")
    api.refuse("POST", "/v1/runs", 409, "PLAN_REQUIRED", "This token starts a run only with a plan.")
    error = call("submit_run", write=True, spec={"command": ["x"]})
    assert (error["code"], "call plan_run" in error["what_to_do"][-1]) == ("PLAN_REQUIRED", True)


def test_a_plan_measures_a_folder_of_code_and_sends_none_of_it(call, api: FakeApi, clean: Path) -> None:
    (clean / "work").mkdir()
    (clean / "work" / "train.py").write_text("print(1)\n")
    api.respond("POST", "/v1/runs", {"would": "create", "plan_id": None})

    def unknown(request: Any) -> tuple[int, Any]:
        return 404, {"title": "Not Found", "detail": "There is no such bundle.", "code": "CODE_NOT_FOUND"}

    ordinary = api.response_to
    api.response_to = lambda request: unknown(request) if "/v1/code/" in request.path else ordinary(request)
    call("plan_run", spec={"command": ["python", "train.py"], "code": str(clean / "work")})
    assert [request.method for request in api.requests] == ["GET", "POST"]
    plan = api.requests[-1]
    assert plan.query == {"validate_only": ["true"], "code_follows": ["true"]}
    assert HASH.match(plan.body["spec"]["code"])
    error = call("plan_run", spec={"command": ["x"], "code": str(clean / "nowhere")})
    assert (error["code"], "is not a folder" in error["text"]) == ("CODE_REFUSED", True)


def test_a_write_is_refused_without_write(call, api: FakeApi) -> None:
    error = call("stop_run", run_id="digits-7")
    assert (error["code"], api.requests) == ("READ_ONLY", [])
    assert "spot mcp --write" in error["what_to_do"][0]
    assert call("show_runs")["what_to_do"] == ["did you mean show_run?"]


@pytest.mark.parametrize(
    ("name", "arguments", "at"),
    [
        ("show_run", {}, "#"),
        ("show_run", {"run_id": "../etc"}, "#/run_id"),
        ("list_runs", {"page_size": 5000}, "#/page_size"),
        ("list_runs", {"page": 2}, "#"),
        ("submit_run", {"spec": "train.py"}, "#/spec"),
        ("submit_run", {"spec": {}, "idempotency_key": "a\nb"}, "#/idempotency_key"),
    ],
)
def test_a_wrong_argument_is_refused_before_any_request(call, api: FakeApi, name, arguments, at) -> None:
    error = call(name, write=True, **arguments)
    assert (error["code"], error["errors"][0]["at"], api.requests) == ("INVALID_REQUEST", at, [])
    assert "describe_spec" in error["what_to_do"][-1]


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ({"loss": float("nan")}, "INVALID_REQUEST"),
        ({"env": {"A": "\ud800"}}, "INVALID_REQUEST"),
        ({"code": "a" * 5000}, "CODE_REFUSED"),
        ({"code": "\0"}, "CODE_REFUSED"),
    ],
)
def test_what_no_request_can_carry_is_no_defect_of_ours(call, api: FakeApi, spec, code) -> None:
    assert (call("plan_run", spec=spec)["code"], api.requests) == (code, [])


def test_half_a_secret_in_a_wrong_argument_is_hidden_too(call) -> None:
    """The message about a long value is cut: redacted after the cut, the start of this key was shown."""
    error = call("show_run", run_id="x " * 140 + KEY)
    assert "sk-ant" not in json.dumps(error)


def test_a_long_refusal_is_cut_too(call, api: FakeApi) -> None:
    errors = [{"pointer": f"#/spec/env/{n}", "detail": "\0" * 2000} for n in range(40)]
    problem = {"title": "Bad", "detail": "d" * 9000, "code": "INVALID_REQUEST", "errors": errors}
    api.respond("GET", "/v1/runs/digits-7", problem, 422)
    assert call("show_run", run_id="digits-7")["code"] == "INVALID_REQUEST"


def test_a_large_environment_is_cut_and_its_names_do_not_switch_the_redaction_off(call, api: FakeApi) -> None:
    env = {"plan_id": KEY, "files_url": KEY} | {f"{'N' * 120}{n}": "v" for n in range(254)}
    spec = {"command": ["x"], "env": env}
    api.respond("GET", "/v1/runs/digits-7/spec", {"run_id": "digits-7", "generation": 1, "spec": spec, "withheld": []})
    shown = call("show_spec", run_id="digits-7")["spec"]["env"]
    assert (shown["plan_id"], shown["files_url"]) == (serving.DOTS, serving.DOTS)
    assert shown["…"].endswith(" more")


def test_an_error_has_the_code_and_the_text_of_the_api(call, api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    api.refuse("GET", "/v1/runs/no-run", 404, "RUN_NOT_FOUND", "There is no run no-run.")
    error = call("show_run", run_id="no-run")
    assert (error["code"], error["text"]) == ("RUN_NOT_FOUND", "There is no run no-run.")
    assert "list_runs" in error["what_to_do"][0]
    api.refuse("GET", "/v1/doctor", 403, "SCOPE_MISSING", "This needs the scope admin.")
    assert "spot token create NAME --scope admin" in call("check_system")["what_to_do"][0]
    monkeypatch.setenv("SPOT_TOKEN", "sup_wrong")
    api.refuse("GET", "/v1/runs", 401, "UNAUTHORIZED", "No valid token.")
    error = call("list_runs")
    assert (error["code"], "SPOT_TOKEN" in error["what_to_do"][0]) == ("UNAUTHORIZED", True)


def test_a_server_that_does_not_respond_is_an_answer(clean, free_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPOT_URL", f"http://127.0.0.1:{free_port}")
    text, failed = serving.answer(Target().client(), "list_runs", {}, write=False)
    error = json.loads(text)["error"]
    assert (failed, error["code"]) == (True, "SERVER_UNREACHABLE")
    assert "spot up" in error["what_to_do"][0]


def test_a_defect_is_an_answer_without_a_traceback(call, api: FakeApi, caplog: pytest.LogCaptureFixture) -> None:
    api.respond("GET", "/v1/runs", {"no": "runs"})
    error = call("list_runs")
    assert (error["code"], "Traceback" in json.dumps(error)) == ("INTERNAL", False)
    assert "KeyError" in caplog.text


def test_a_system_that_is_not_ready_says_so(call, api: FakeApi) -> None:
    api.respond("GET", "/readyz", {"ready": False, "checks": [{"name": "database", "ok": False, "fact": "away"}]}, 503)
    answer = call("show_system")
    assert answer["checks"] == [{"name": "database", "ok": False, "fact": "away"}]
    assert answer["ready"] is False


def test_causes_and_fields_are_explained_without_a_request(call, api: FakeApi) -> None:
    assert "took its spot machine back" in call("explain_cause", cause="preempted")["meaning"]
    assert "gpu_oom" in call("explain_cause")["causes"]
    assert "did you mean preempted?" in call("explain_cause", cause="preemted")["what_to_do"]
    assert call("describe_spec", field="limits")["schema"]["properties"]["budget_usd"]
    assert {"command", "limits", "code"} <= call("describe_spec")["fields"].keys()
    assert api.requests == []


def test_without_the_sdk_one_line_says_what_installs_it(run_cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "mcp.server.stdio", None)
    ended = run_cli("mcp", "--url", "http://127.0.0.1:1")
    assert (ended.code, ended.out) == (2, "")
    assert "pip install 'spot-supervisor[mcp]'" in ended.err
    assert len(ended.err.splitlines()) == 1


def test_each_tool_has_an_answer_for_a_refusal(call, api: FakeApi) -> None:
    """No tool assumes more of a response than that it is a problem."""
    for name, tool in TOOLS.items():
        if tool.operation:
            needed = {"run_id": "digits-7", "spec": {"command": ["x"]}, "machine_id": "m"}
            given = {each: needed[each] for each, required in tool.arguments.items() if required}
            assert call(name, write=True, **given)["code"] == "NOT_FOUND", name
