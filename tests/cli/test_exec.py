"""`spot exec` and `spot shell` against prepared responses: output as it comes, exit codes, folders, refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from supervisor.cli.exits import AUTH, CONFLICT, FAILED, USAGE
from supervisor.cli.machines import login
from tests.cli.conftest import Ended
from tests.cli.fake_api import FakeApi

RUN = "/v1/runs/digits-7"
SENT: dict[str, Any] = {
    "run_id": "digits-7", "command_id": "ab" * 8, "kind": "exec", "state": "waiting", "text": "", "exit_code": None,
    "signal": None, "timed_out": False, "ran_s": None, "output": "", "dropped_bytes": 0, "folder": "", "files": None,
}  # fmt: skip
DONE = {**SENT, "state": "done", "exit_code": 0, "folder": "/work/code"}


@pytest.fixture
def spot(api: FakeApi, run_cli: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    monkeypatch.setattr(login, "POLL_S", 0.0)
    api.respond("POST", f"{RUN}/commands", SENT, 201)
    return lambda name, *words: run_cli(name, "--url", api.url, *words)


def becomes(api: FakeApi, *results: dict[str, Any]) -> None:
    api.respond_in_turn("GET", f"{RUN}/commands/{'ab' * 8}", *results)


def test_output_comes_while_it_runs_and_the_exit_code_is_its_own(api: FakeApi, spot: Callable[..., Ended]) -> None:
    becomes(
        api, SENT, {**SENT, "state": "running", "output": "one\n"}, {**DONE, "output": "one\ntwo\n", "exit_code": 3}
    )
    ended = spot("exec", "--timeout", "5", "digits-7", "--", "sh", "-c", "ls -l")
    assert (ended.code, ended.out) == (3, "one\ntwo\n")
    assert api.bodies(f"{RUN}/commands") == [{"command": ["sh", "-c", "ls -l"], "folder": "", "timeout_s": 5.0}]


@pytest.mark.parametrize(
    ("result", "code", "words"),
    [
        ({**DONE, "exit_code": None, "signal": 9}, 137, ""),
        ({**DONE, "exit_code": None}, 128, ""),  # a result that a training wrote
        ({**DONE, "exit_code": None, "signal": 15, "timed_out": True}, 124, "It was ended after 60 s (--timeout)."),
        ({**DONE, "dropped_bytes": 5000}, 0, "5,000 more bytes are not kept"),
        ({**SENT, "state": "refused", "text": "ls: command not found"}, FAILED, "ls: command not found"),
        ({**SENT, "state": "lost", "text": "its machine ended"}, FAILED, "COMMAND_LOST"),
    ],
)
def test_each_end_has_its_code(
    api: FakeApi, spot: Callable[..., Ended], result: dict[str, Any], code: int, words: str
) -> None:
    becomes(api, result)
    ended = spot("exec", "digits-7", "--", "ls")
    assert ended.code == code
    assert words in ended.err


def test_refusals(api: FakeApi, spot: Callable[..., Ended]) -> None:
    assert spot("exec", "digits-7").code == USAGE
    api.refuse("POST", f"{RUN}/commands", 409, "COMMAND_REFUSED", "digits-7 is waiting: nothing can run beside it.")
    ended = spot("exec", "digits-7", "--", "ls")
    assert (ended.code, "is waiting" in ended.err) == (CONFLICT, True)
    api.refuse("POST", f"{RUN}/commands", 403, "SCOPE_MISSING", "This needs a token with the scope runs:exec.")
    ended = spot("exec", "digits-7", "--", "ls")
    assert ended.code == AUTH
    assert "--scope runs:exec" in ended.err


def test_a_shell_is_line_by_line(api: FakeApi, spot: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    lines: Iterator[str] = iter(["ls", "", "cd lib", "ls", "cd missing", "ls", "cd", "exit"])
    prompts: list[str] = []

    def typed(prompt: str) -> str:
        prompts.append(prompt)
        return next(lines)

    def result(request: Any) -> tuple[int, Any]:
        body = api.requests[-2].body
        assert body is not None
        if body["folder"].endswith("missing"):
            return 200, {**SENT, "state": "refused", "text": "it does not exist"}
        return 200, {**DONE, "output": f"{body['command'][-1]}\n", "folder": body["folder"] or "/work/code"}

    monkeypatch.setattr("builtins.input", typed)
    api.responses[("GET", f"{RUN}/commands/{'ab' * 8}")] = result
    ended = spot("shell", "digits-7")
    assert (ended.code, ended.out) == (0, "ls\nls\nls\n")
    sent = [(body["command"][-1], body["folder"]) for body in api.bodies(f"{RUN}/commands") if body is not None]
    code, lib = "/work/code", "/work/code/lib"
    assert sent == [
        ("pwd", ""), ("ls", code), ("pwd", lib), ("ls", lib), ("pwd", f"{lib}/missing"), ("ls", lib), ("pwd", ""),
    ]  # fmt: skip
    assert prompts[0] == f"digits-7:{code}$ "
    assert prompts[-1] == f"digits-7:{code}$ "
    assert "does not exist" in ended.err
