"""What a session says of itself, what it gets for its ticket, what it lacks; and what its cell shows."""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from supervisor.agent.machine.processes import own_identity
from supervisor.agent.notebook import claiming, watching
from supervisor.agent.notebook.cell import table
from supervisor.agent.notebook.claiming import Refused, claimed, job_of, session_facts, store_problem
from supervisor.agent.notebook.session import _claimant as claimant_in
from supervisor.agent.notebook.session import without_kernel
from supervisor.agent.notebook.watching import View, agent_state, last_words
from supervisor.agent.store.door.client import DoorPass
from supervisor.agent.store.googleapi import RetryPolicy
from supervisor.contract import heartbeat, notebook
from supervisor.contract.heartbeat import Beat, Exit
from supervisor.contract.stores.folder import FolderStore
from tests.agent.bench import RUN, ManualClock
from tests.cloud.web import Request, Reset, Response
from tests.fakes.door import DoorFake
from tests.notebooks.machine import colab_variables, kaggle_variables

ME = "0123456789abcdef" * 2
AT_ONCE = RetryPolicy(0.0)


@pytest.fixture
def door(tmp_path: Path) -> Iterator[DoorFake]:
    made = DoorFake(FolderStore.create(tmp_path / "objects"))
    made.job = {"run_id": RUN, "launch_id": "1.1.1", "machine_max_s": 30_000.0, "nonce": "secret"}
    yield made
    made.close()


# --- the session ------------------------------------------------------------------------------------------------------


def test_the_session_of_kaggle_is_the_number_in_its_containers_name() -> None:
    facts = session_facts(kaggle_variables("352993764"))
    assert (facts["platform"], facts["id"], facts["kaggle_kernel_run_type"]) == ("kaggle", "352993764", "Batch")
    without = {**kaggle_variables(), "KAGGLE_CONTAINER_NAME": "another-form"}
    assert "id" not in session_facts(without)


def test_other_notebooks_are_named_by_their_host() -> None:
    facts = session_facts(colab_variables())
    assert (facts["platform"], facts["id"]) == ("colab", os.uname().nodename)
    assert session_facts({})["platform"] == "jupyter"


@pytest.mark.parametrize("variables", [kaggle_variables(), colab_variables()])
def test_no_token_of_the_platform_and_nothing_long_leaves_the_session(variables: dict[str, str]) -> None:
    facts = session_facts({**variables, "COLAB_BACKEND_VERSION": "x" * 5000, "HF_TOKEN": "hf_token"})
    assert "token" not in json.dumps(facts)
    assert max(map(len, facts.values())) <= claiming.FACT_CHARS
    assert json.dumps(facts).isascii()


def test_what_belongs_to_the_kernel_does_not_go_on_to_the_training() -> None:
    kernel = {"MPLBACKEND": "module://matplotlib_inline.backend_inline", "JPY_PARENT_PID": "1", "SPOT_RUN_ID": "other"}
    stays = {"KAGGLE_USER_SECRETS_TOKEN": "t", "CUDA_VISIBLE_DEVICES": "0", "PATH": "/bin", "MPLBACKENDS": "x"}
    assert without_kernel({**kernel, **stays}) == stays


# --- the claim --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ticket", "claimant", "over", "words"),
    [
        ("ticket-1", "f" * 32, False, "another session has used the ticket"),
        ("ticket-2", ME, False, "too old"),
        ("ticket-9", ME, False, "does not know the ticket"),
        ("ticket-1", ME, True, "does not wait for this session"),
    ],
)
def test_each_refusal_has_its_words(door: DoorFake, ticket: str, claimant: str, over: bool, words: str) -> None:
    door.tickets.update({"ticket-1": ME, "ticket-2": ""})
    door.expired.add("ticket-2")
    door.over = over
    with pytest.raises(Refused, match=words):
        claimed(door.url, ticket, claimant, {}, AT_ONCE)


def test_a_lost_response_is_the_same_claim_again(door: DoorFake) -> None:
    lost = [1]

    def trouble(request: Request) -> Response | None:
        if request.raw_path == "/v1/claims" and lost:
            lost.clear()
            door._routed(request)
            raise Reset
        return None

    door.trouble = trouble
    clock = ManualClock()
    claim = claimed(door.url, "ticket-1", ME, {"platform": "x"}, RetryPolicy(60.0, clock.sleep, clock))
    assert (claim["run_id"], len(door.claims)) == (RUN, 2)
    assert door.claims[0] == door.claims[1]


def test_a_session_keeps_the_name_that_it_has_given_itself(tmp_path: Path) -> None:
    path = str(tmp_path / "claimant")
    assert claimant_in(path) == claimant_in(path) != claimant_in(path + "2")
    (tmp_path / "claimant").write_text("torn")
    with pytest.raises(OSError, match="not the name"):
        claimant_in(path)


@pytest.mark.parametrize("answer", [Response(200, b"<html>"), Response(200, {"job": {}}), Response(404, b"x")])
def test_an_answer_that_is_no_claim_starts_nothing(door: DoorFake, answer: Response) -> None:
    door.trouble = lambda request: answer
    with pytest.raises(Refused, match="claim"):
        claimed(door.url, "ticket-1", ME, {}, AT_ONCE)


def test_without_network_or_encryption_there_is_no_claim(door: DoorFake) -> None:
    with pytest.raises(Refused, match="neither https nor on this machine"):
        claimed("http://example.com", "ticket-1", ME, {}, AT_ONCE)
    door.close()
    with pytest.raises(Refused, match="the session has no network to the supervisor"):
        claimed(door.url, "ticket-1", ME, {}, AT_ONCE)


def test_the_job_ends_before_the_session_does(door: DoorFake, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = claimed(door.url, "ticket-1", ME, {}, AT_ONCE)
    job = job_of(claim, door.url, ME)
    assert (job["machine_id"], job["machine_max_s"], job["shows_beats"]) == (ME, 30_000.0, True)
    assert job["store_url"] == door.store_url
    monkeypatch.setattr(claiming, "session_age_s", lambda: 5000.0)
    claim["job"]["session_max_s"] = 43_200.0
    assert job_of(claim, door.url, ME)["machine_max_s"] == 30_000.0
    claim["job"]["session_max_s"] = 9000.0
    assert job_of(claim, door.url, ME)["machine_max_s"] == 4000.0
    claim["job"]["session_max_s"] = 4000.0
    assert job_of(claim, door.url, ME)["machine_max_s"] == claiming.LEAST_S


def test_the_age_of_a_session_is_that_of_its_first_process(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    ticks = 400 * os.sysconf("SC_CLK_TCK")
    (tmp_path / "1" / "stat").write_text(f"1 (tini) S {'0 ' * 18}{ticks} 0 0\n")
    (tmp_path / "uptime").write_text("1000.50 1.0\n")
    assert claiming.session_age_s(str(tmp_path)) == pytest.approx(600.5)
    assert claiming.session_age_s(str(tmp_path / "nothing")) == 0.0


@pytest.mark.parametrize(
    ("address", "problem"), [("http://127.0.0.1:1/upload?x=1", "no network to the object store"), (None, ""), (7, "")]
)
def test_a_bucket_out_of_reach_is_found_before_the_start(
    door: DoorFake, tmp_path: Path, address: Any, problem: str
) -> None:
    door.trouble = lambda request: Response(200, {"url": address}) if request.raw_path.endswith("/uploads") else None
    job = job_of(claimed(door.url, "ticket-1", ME, {}, AT_ONCE), door.url, ME)
    found = store_problem(job, DoorPass(str(tmp_path / "pass.json")), AT_ONCE)
    assert problem in found
    assert bool(problem) == bool(found)


@pytest.mark.parametrize("status", [401, 403, 500, 503])
def test_a_door_that_does_not_answer_is_no_reason_to_leave(door: DoorFake, tmp_path: Path, status: int) -> None:
    job = job_of(claimed(door.url, "ticket-1", ME, {}, AT_ONCE), door.url, ME)
    door.trouble = lambda request: Response(status, {})
    assert store_problem(job, DoorPass(str(tmp_path / "pass.json")), AT_ONCE) == ""


@pytest.mark.parametrize(
    ("cards", "unknown", "job", "words"),
    [
        ([], "", {}, ""),
        ([], "", {"gpus": 1}, "the session has no GPU"),
        ([], "the driver hangs", {"gpus": 1}, ""),
        (["Tesla T4"], "", {"gpus": 1, "gpu_model": "t4"}, ""),
        (["Tesla T4"], "", {"gpus": 2, "gpu_model": "T4"}, "was not taken"),
        (["Tesla P100-PCIE-16GB"], "", {"gpus": 1, "gpu_model": "T4"}, "was not taken"),
        (["Tesla P100-PCIE-16GB"], "", {"gpus": 1}, ""),
    ],
)
def test_what_cannot_be_read_is_not_missing(
    monkeypatch: pytest.MonkeyPatch, cards: list[str], unknown: str, job: dict[str, Any], words: str
) -> None:
    facts: dict[str, Any] = {} if unknown else {"gpus": cards}
    monkeypatch.setattr(claiming, "gpu_facts", lambda only: (facts, unknown))
    problem = claiming.accelerator_problem(job)
    assert words in problem
    assert bool(words) == bool(problem)


# --- what the cell shows ----------------------------------------------------------------------------------------------

BEAT = Beat(RUN, 1, "1.1.1", ME, "b" * 32, 7, heartbeat.TRAINING, "secret", step=1200, total=5000)


def test_a_line_says_state_step_loss_and_what_is_safe(tmp_path: Path) -> None:
    view, lines = View(str(tmp_path), print), []
    clock = time.strftime("%H:%M")
    lines.append(view.line(BEAT))
    beat = BEAT._replace(metrics={"loss": 0.42, "lr": 1e-4}, checkpoint_step=1000, message="checkpoint: waiting")
    lines.append(view.line(beat))
    restored = View(str(tmp_path), print).line(BEAT._replace(checkpoint_step=1000, resumed_from=1000))
    assert lines[0] == f"{clock} · training · step 1,200 of 5,000"
    assert lines[1].startswith(f"{clock} · training · step 1,200 of 5,000 · loss 0.42, lr 0.0001 · checkpoint ")
    assert lines[1].endswith(" safe · checkpoint: waiting")
    assert restored.endswith("checkpoint of step 1,000 safe")


def test_a_checkpoint_keeps_its_time_also_in_the_next_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(["14:01"] * 3 + ["14:07"] * 20)
    monkeypatch.setattr(watching, "_clock", lambda: next(clock))
    beat = BEAT._replace(checkpoint_step=1000)
    view = View(str(tmp_path), print)
    assert view.line(beat).endswith("checkpoint 14:01 safe")
    view._write(beat)
    assert view.line(beat).endswith("checkpoint 14:01 safe")
    assert View(str(tmp_path), print).line(beat).endswith("checkpoint 14:01 safe")
    assert view.line(beat._replace(checkpoint_step=2000)).endswith("checkpoint 14:07 safe")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"exit": Exit(0, None, False)}, "is done"),
        ({"exit": Exit(3, None, False, last_line="boom")}, "exit code 3: boom"),
        ({"exit": Exit(None, 15, True), "left": heartbeat.EXPIRED}, "the time of this session is over"),
        ({"left": heartbeat.STOPPED}, "it was stopped"),
        ({"left": heartbeat.NO_CODE, "message": "the code bundle is damaged"}, "not started: the code bundle"),
    ],
)
def test_the_last_words_say_how_it_ended(changes: dict[str, Any], words: str) -> None:
    assert words in last_words(BEAT._replace(phase=heartbeat.FINISHED, **changes))[0]
    assert last_words(BEAT) == []


def test_an_agent_that_ended_without_a_word_is_quoted(tmp_path: Path) -> None:
    lines: list[str] = []
    (tmp_path / "beat.json").write_bytes(heartbeat.encode(BEAT))
    (tmp_path / "console.log").write_text("MemoryError\n")
    (tmp_path / "agent.json").write_text(json.dumps({"pid": 2**22 - 1, "start_ticks": 1, "boot_id": "x"}))
    View(str(tmp_path), lines.append).watch()
    assert lines[-2].endswith("the agent ended without a last word; its own output ends with:")
    assert lines[-1].endswith("MemoryError")
    shown = (tmp_path / "notebook.json").read_text()
    assert "secret" not in shown
    html = table(json.loads(shown))
    assert '<progress max="5000" value="1200"' in html
    assert "<script" not in table({"note": "<script>"})


def test_only_the_very_process_is_the_agent(tmp_path: Path) -> None:
    assert agent_state(str(tmp_path)) is None
    me = own_identity()
    for ticks, boot, expected in [
        (me.start_ticks, me.boot_id, True),
        (1, me.boot_id, False),
        (me.start_ticks, "", False),
    ]:
        values = {"pid": me.pid, "start_ticks": ticks, "boot_id": boot}
        (tmp_path / "agent.json").write_text(json.dumps(values))
        assert agent_state(str(tmp_path)) is expected


@pytest.mark.parametrize("name", ["open", "stat_fields", "boot_id"])
def test_an_agent_that_cannot_be_read_has_not_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A notebook without free file descriptors: with the end of its cell the platform would end the session."""
    me = own_identity()
    values = {"pid": me.pid, "start_ticks": me.start_ticks, "boot_id": me.boot_id}
    (tmp_path / "agent.json").write_text(json.dumps(values))

    def unreadable(*_: object, **__: object) -> str:
        if name == "boot_id":
            return ""
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(watching, name, unreadable, raising=False)
    assert agent_state(str(tmp_path)) is True


def test_an_agent_whose_process_is_gone_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    me = own_identity()
    values = {"pid": me.pid, "start_ticks": me.start_ticks, "boot_id": me.boot_id}
    (tmp_path / "agent.json").write_text(json.dumps(values))
    for gone in (FileNotFoundError, ProcessLookupError):
        monkeypatch.setattr(watching, "stat_fields", Mock(side_effect=gone))
        assert agent_state(str(tmp_path)) is False


# --- the texts that a platform stores ---------------------------------------------------------------------------------


def test_a_cell_holds_its_values_as_they_are_whatever_they_contain() -> None:
    url, ticket = 'https://x.example/a"b', "t\"'\\ü{0}\n"
    source = notebook.cell(url + "/", ticket, "a" * 64, title="two\nlines\n__import__('os')")
    assert source.isascii()
    scope: dict[str, Any] = {}
    head = source.partition("FOLDER =")[0]
    assert all(
        line.startswith(("#", "import ", "SUPERVISOR", "TICKET", "SHA256")) for line in filter(None, head.split("\n"))
    )
    exec(compile(head, "cell", "exec"), scope)  # noqa: S102 - what is tested
    assert (scope["SUPERVISOR"], scope["TICKET"], scope["SHA256"]) == (url, ticket, "a" * 64)


def test_a_notebook_is_the_same_text_for_the_same_values() -> None:
    source = notebook.cell("https://x.example", "ticket", "a" * 64)
    first, again = notebook.notebook(source, "digits"), notebook.notebook(source, "digits")
    assert first == again
    assert "".join(json.loads(first)["cells"][1]["source"]) == source.strip()


def test_the_cell_runs_on_every_python_of_a_notebook() -> None:
    import ast

    ast.parse(notebook.cell("https://x.example", "t", "a" * 64), feature_version=(3, 8))
    assert sys.version_info >= (3, 8)
