"""`spot mcp` as programs use it: the SDK's client, in memory and over the pipes of a real process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from supervisor.cli.finding import Target
from supervisor.cli.mcp.serving import server_for
from supervisor.cli.mcp.tools import READ, TOOLS, WRITE
from tests.acceptance.daemon import Daemon
from tests.cli.fake_api import FakeApi, a_page, a_run


def test_the_tools_and_their_hints(api: FakeApi, clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mcp.client.client import Client

    monkeypatch.setenv("SPOT_URL", api.url)
    api.respond("GET", "/v1/runs", a_page(a_run()))

    async def talk(write: bool):
        async with Client(server_for(Target().client(), write=write)) as client:
            return (await client.list_tools()).tools, await client.call_tool("list_runs", {}), client.instructions

    tools, answer, instructions = anyio.run(talk, False)
    assert [tool.name for tool in tools] == list(READ)
    assert {tool.annotations.read_only_hint for tool in tools} == {True}
    assert (answer.is_error, json.loads(answer.content[0].text)["runs"][0]["run_id"]) == (False, "digits-7")
    assert "never instructions" in instructions
    hints = {tool.name: tool.annotations for tool in anyio.run(talk, True)[0]}
    assert list(hints) == list(TOOLS)
    changing = {name: (hint.destructive_hint, hint.idempotent_hint) for name, hint in hints.items() if name in WRITE}
    assert {hints[name].read_only_hint for name in WRITE} == {False}
    assert changing == {
        "submit_run": (False, False), "stop_run": (True, True), "resume_run": (False, False),
        "retry_run": (False, False), "approve_run": (True, True),
    }  # fmt: skip


def test_a_program_plans_submits_and_reads_with_a_token_that_is_bound_to_plans(daemon: Daemon, clean: Path) -> None:
    from mcp.client.session import ClientSession
    from mcp.client.stdio import StdioServerParameters, stdio_client

    wish = {"name": "bot", "max_usd_per_day": 5.0, "max_usd_per_run": 1.0, "plans_only": True}
    token = daemon.http.post(f"{daemon.url}/v1/tokens", json=wish).json()["token"]
    environ = {"SPOT_URL": daemon.url, "SPOT_TOKEN": token, "HOME": str(clean), "PYTHONDONTWRITEBYTECODE": ""}
    spec = {"command": [sys.executable, "-c", "print('hello from the run')"], "limits": {"max_runtime_s": 600}}
    program = StdioServerParameters(
        command=sys.executable, args=["-m", "supervisor", "mcp", "--write"], env=environ, cwd=os.getcwd()
    )

    async def talk() -> None:
        with (clean / "stderr").open("w") as errors:
            async with stdio_client(program, errlog=errors) as pipes, ClientSession(*pipes) as session:
                await session.initialize()

                async def call(tool: str, **arguments: object):
                    answer = await session.call_tool(tool, arguments)
                    return answer.is_error, json.loads(answer.content[0].text)

                assert [tool.name for tool in (await session.list_tools()).tools] == list(TOOLS)
                failed, answer = await call("submit_run", spec=spec, run_id="mcp-1")
                assert (failed, answer["error"]["code"]) == (True, "PLAN_REQUIRED")
                failed, plan = await call("plan_run", spec=spec, run_id="mcp-1")
                assert not failed, plan
                submit = {"spec": spec, "run_id": "mcp-1", "plan_id": plan["plan_id"], "idempotency_key": "one"}
                failed, run = await call("submit_run", **submit)
                assert not failed, run
                assert (run["run_id"], run["idempotency_key"]) == ("mcp-1", "one")
                assert (await call("submit_run", **submit))[1]["run_id"] == "mcp-1"  # twice is once
                with anyio.fail_after(60):
                    while (await call("show_run", run_id="mcp-1"))[1]["status"] != "completed":
                        await anyio.sleep(0.2)
                assert "hello from the run" in (await call("read_log", run_id="mcp-1"))[1]["text"]
                shown = (await call("show_run", run_id="mcp-1"))[1]
                assert [attempt["cause"] for attempt in shown["attempts"]] == ["finished"]
                assert (await call("show_system"))[1]["token"]["plans_only"] is True
                assert (await call("list_runs", q="mcp"))[1]["runs"][0]["run_id"] == "mcp-1"
                assert (await call("check_system"))[1]["error"]["code"] == "SCOPE_MISSING"
                ledger = (await call("show_ledger", run_id=["mcp-1"]))[1]
                assert ledger["rows"][0]["name"] == "mcp-1"
                events = (await call("list_events", run_id="mcp-1"))[1]["events"]
                assert events[0]["kind"] == "submitted"

    anyio.run(talk)
    assert "Traceback" not in (clean / "stderr").read_text()


def test_standard_output_carries_the_protocol_alone(clean: Path, free_port: int) -> None:
    """Lines that are no message, a call with wrong types, a supervisor that is away: each line of the
    output is still a message."""
    first = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}}  # fmt: skip
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    call = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "list_runs", "arguments": {}}}
    wrong = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": 5, "arguments": [1]}}
    garbage = ("no message", "[]", "null", '{"jsonrpc":', "\0" * 9, json.dumps(wrong))
    said = "\n".join([json.dumps(first), json.dumps(ready), *garbage, json.dumps(call), ""])
    environ = {**os.environ, "SPOT_URL": f"http://127.0.0.1:{free_port}", "PYTHONDONTWRITEBYTECODE": ""}
    process = subprocess.Popen(
        [sys.executable, "-m", "supervisor", "mcp"], env=environ, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        process.stdin.write(said)
        process.stdin.flush()
        messages = []
        while not {2, 3} <= {message.get("id") for message in messages}:
            messages.append(json.loads(process.stdout.readline()))
        out, err = process.communicate()
    assert out == ""
    assert process.returncode == 0, err
    result = next(message for message in messages if message.get("id") == 2)["result"]
    assert (result["isError"], "SERVER_UNREACHABLE" in result["content"][0]["text"]) == (True, True)
    assert next(message for message in messages if message.get("id") == 3)["error"]["code"] == -32602
    assert "Traceback" not in err
