"""submit, stop, resume, approve, dev: the requests, the questions before them, and the output."""

import io
import json
from pathlib import Path

import pytest

from supervisor.cli import output
from supervisor.cli.runs import control
from tests.cli.fake_api import a_page, a_run, serve_run, submitted


def a_verb(name: str, stops: str, undo: str, left: str, leaves=(), usual=False):
    return {
        "verb": name, "usual": usual, "leaves": list(leaves), "stops_meter": {"text": stops}, "undo": {"text": undo},
        "left_usd_per_gb_month": {"text": left},
    }  # fmt: skip


TEARDOWN = {"host": None, "how": "release", "confirms": False, "verbs": [a_verb("release", "yes", "no", "nothing")]}
ON_A_HOST = {
    "host": "gpu1", "how": "command", "confirms": True,
    "verbs": [
        a_verb("terminate", "yes", "no", "nothing", usual=True),
        a_verb("stop", "partly", "yes", "$0.20 per GB and month", ["disk"]),
    ],
}  # fmt: skip


class TestSubmit:
    def test_a_command_runs_in_this_folder(self, accepting, spot) -> None:
        ended = spot("submit", "--", "python", "train.py", "--epochs", "3", "--")
        assert ended.lines == ["digits-7  ○ pending  Accepted."]
        assert submitted(accepting) == {
            "spec": {"workdir": str(Path.cwd()), "command": ["python", "train.py", "--epochs", "3", "--"]},
            "replace_spec": False,
            "rerun": False,
        }

    def test_a_file_holds_the_spec_and_a_flag_wins(self, accepting, spot, tmp_path: Path) -> None:
        file = tmp_path / "train.yaml"
        file.write_text(
            "run_id: digits-7\ncommand: python train.py\nworkdir: code\nenv: {A: '1', B: '2'}\nshapes: [gpu]\n"
            "limits: {max_attempts: 3, deadline: 2030-01-01T02:00:00+02:00}\nstall: {polls: 4}\n"
        )
        ended = spot(
            "submit", str(file), "-e", "B=3", "-l", "team=vision", "--shape", "big", "--shape", "small",
            "--zone", "z-1", "--max-runtime", "1h30m", "--wait", "2h", "--budget", "12.5", "--result", "*.pt",
            "--allow-on-demand", "--replace-spec", "--keep", "10m", "--on-success", "keep",
        )  # fmt: skip
        assert ended.code == 0
        assert submitted(accepting) == {
            "run_id": "digits-7", "replace_spec": True, "rerun": False,
            "spec": {
                "command": "python train.py", "workdir": str(tmp_path / "code"), "env": {"A": "1", "B": "3"},
                "labels": {"team": "vision"}, "shapes": ["big", "small"], "zones": ["z-1"], "allow_on_demand": True,
                "results": [{"path": "*.pt"}], "stall": {"polls": 4}, "keep_s": 600.0, "on_success": "keep",
                "limits": {"max_attempts": 3, "deadline": "2030-01-01T00:00:00Z", "max_runtime_s": 5400.0,
                           "wait_for_capacity_s": 7200.0, "budget_usd": 12.5},
            },
        }  # fmt: skip

    def test_the_file_s_folder_is_the_default_workdir_and_null_asks_for_none(self, accepting, spot, tmp_path) -> None:
        file = tmp_path / "train.yaml"
        for text, workdir in (
            ("command: x\n", str(tmp_path)),
            ("command: x\nworkdir: null\n", None),
            ("command: x\nworkdir: /elsewhere\n", "/elsewhere"),
            ("command: x\nprovider: gce\n", None),
        ):
            file.write_text(text)
            assert spot("submit", str(file)).code == 0
            assert submitted(accepting)["spec"].get("workdir") == workdir

    def test_run_id_and_command_of_the_line_win_over_the_file(self, accepting, spot, tmp_path: Path) -> None:
        file = tmp_path / "train.yaml"
        file.write_text("run_id: a-file\ncommand: x\n")
        spot("submit", str(file), "--run-id", "a-flag", "--on-demand", "--", "y", "z")
        body = submitted(accepting)
        assert (body["run_id"], body["spec"]["command"], body["spec"]["spot"]) == ("a-flag", ["y", "z"], False)

    def test_standard_input(self, accepting, spot, monkeypatch) -> None:
        monkeypatch.setattr("sys.stdin", io.StringIO("command: x\n"))
        assert spot("submit", "-").code == 0
        assert submitted(accepting)["spec"] == {"command": "x", "workdir": str(Path.cwd())}

    def test_a_shell_text(self, accepting, spot) -> None:
        spot("submit", "--shell", "python a.py && python b.py")
        assert submitted(accepting)["spec"]["command"] == "python a.py && python b.py"

    @pytest.mark.parametrize(
        ("words", "code"),
        [
            (["submit"], "COMMAND_MISSING"),
            (["submit", "--"], "COMMAND_MISSING"),
            (["submit", "--shell", "x", "--", "y"], "COMMAND_TWICE"),
            (["submit", "absent.yaml"], "SPEC_UNREADABLE"),
        ],
    )
    def test_what_cannot_be_submitted_is_not_sent(self, accepting, spot, words: list[str], code: str) -> None:
        ended = spot(*words)
        assert ended.code == 2
        assert f"({code})" in ended.err
        assert accepting.requests == []

    @pytest.mark.parametrize(
        ("text", "where"),
        [
            ("- a\n- b\n", "does not hold the fields of a run"),
            ("command: [x\n", "is not YAML"),
            ("command: x\nlimits: {budget_usd: .nan}\n", "/limits/budget_usd is not a finite number"),
            ("command: x\nlabels: {1: one}\n", "the key 1 in /labels is not a text"),
            ("command: x\nlabels: {day: 2030-01-01}\n", "/labels/day is a date; put it in quotes"),
            ("run_id: 7\ncommand: x\n", "run_id is not a text"),
            ("command: !!binary aGk=\n", "/command is a bytes"),
            ("command: x\nlimits: {max_attempts: 1, max_attempts: 2}\n", "the key 'max_attempts' appears twice"),
            ("command: &a [*a]\n", "refers to itself"),
            ("command: !!python/object/apply:os.system ['true']\n", "is not YAML"),
        ],
    )
    def test_a_file_that_is_no_spec_is_refused_with_its_place(self, accepting, spot, tmp_path, text, where) -> None:
        file = tmp_path / "train.yaml"
        file.write_text(text)
        ended = spot("submit", str(file))
        assert ended.code == 2
        assert where in ended.err
        assert accepting.requests == []

    def test_each_submit_has_its_own_key_and_a_lost_response_repeats_it(self, accepting, spot) -> None:
        given = accepting.responses[("POST", "/v1/runs")]
        accepting.responses[("POST", "/v1/runs")] = [(0, None), given]
        assert spot("submit", "--", "x").code == 0
        first, again = (request for request in accepting.requests if request.method == "POST")
        assert first.headers["idempotency-key"] == again.headers["idempotency-key"]
        assert first.body == again.body
        spot("submit", "--", "x")
        assert accepting.requests[-1].headers["idempotency-key"] != first.headers["idempotency-key"]

    def test_warnings_and_forms(self, accepting, spot) -> None:
        accepting.respond("POST", "/v1/runs", {**a_run(), "warnings": ["image is ignored."], "differs": []}, 201)
        ended = spot("submit", "-o", "name", "--", "x")
        assert (ended.out, ended.err) == ("digits-7\n", "warning: image is ignored.\n")
        assert json.loads(spot("submit", "-o", "json", "--", "x").out)["run_id"] == "digits-7"

    def test_watch_continues_to_the_end(self, accepting, spot) -> None:
        serve_run(accepting, a_run(status="failed", status_text="It failed."))
        ended = spot("submit", "--watch", "--", "x")
        assert ended.code == 3
        assert ended.lines[-1] == "✗ failed  It failed."


def test_secrets_are_sent_as_references(accepting, spot, tmp_path: Path) -> None:
    file = tmp_path / "train.yaml"
    file.write_text("command: x\nsecrets: {A: 'env:OLD', B: 'env:B'}\n")
    given = ("--secret", "HF_TOKEN", "--secret", "A=env:NEW", "--secret", "K=file:keys/../k")
    assert spot("submit", str(file), *given).code == 0
    assert submitted(accepting)["spec"]["secrets"] == {
        "A": "env:NEW", "B": "env:B", "HF_TOKEN": "env:HF_TOKEN", "K": f"file:{Path.cwd()}/k",
    }  # fmt: skip


@pytest.mark.parametrize("written", ["HF_TOKEN=hush-hush", "HF_TOKEN=file:", "=env:hush", "HF_TOKEN=vault:hush"])
def test_a_value_in_the_place_of_a_reference_is_not_repeated(accepting, spot, written: str) -> None:
    ended = spot("submit", "--secret", written, "--", "x")
    assert ended.code == 2
    assert "NAME=file:PATH" in ended.err
    assert "hush" not in ended.err
    assert accepting.requests == []


class TestStop:
    def test_a_named_run_is_stopped_without_a_question(self, api, spot) -> None:
        api.respond("POST", "/v1/runs/digits-7/stop", a_run(status="stopping", status_text="Stop asked for."), 202)
        ended = spot("stop", "digits-7")
        assert ended.lines == ["digits-7  ◌ stopping  Stop asked for."]
        assert api.bodies("/v1/runs/digits-7/stop") == [{}]

    def test_without_a_name_and_a_terminal_it_must_be_said(self, api, spot) -> None:
        api.respond("GET", "/v1/runs", a_page(a_run()))
        api.respond("POST", "/v1/runs/digits-7/stop", a_run(status="stopping"), 202)
        ended = spot("stop")
        assert ended.code == 2
        assert "Stop digits-7? Add --yes" in ended.err
        assert api.bodies("/v1/runs/digits-7/stop") == []
        assert spot("stop", "--yes").code == 0

    def test_a_no_at_the_question_changes_nothing(self, api, spot, monkeypatch) -> None:
        api.respond("GET", "/v1/runs", a_page(a_run()))
        monkeypatch.setattr(output, "confirmed", lambda question, yes: False)
        ended = spot("stop")
        assert ended.code == 130
        assert api.bodies("/v1/runs/digits-7/stop") == []


def test_resume(api, spot, tmp_path: Path) -> None:
    api.respond("POST", "/v1/runs/digits-7/resume", a_run(status="pending", status_text="Resumed."), 202)
    assert spot("resume", "digits-7").lines == ["digits-7  ○ pending  Resumed."]
    file = tmp_path / "other.yaml"
    file.write_text("command: y\n")
    spot("resume", "digits-7", "--spec", str(file), "--replace-spec", "--rerun")
    assert api.bodies("/v1/runs/digits-7/resume") == [
        {"replace_spec": False, "rerun": False},
        {"replace_spec": True, "rerun": True, "spec": {"command": "y", "workdir": str(tmp_path)}},
    ]


def test_a_conflict_is_told(api, spot) -> None:
    api.refuse("POST", "/v1/runs/digits-7/resume", 409, "RUN_STOPPING", "digits-7 is still stopping.")
    ended = spot("resume", "digits-7", "--no-wait")
    assert (ended.code, ended.err) == (6, "error: digits-7 is still stopping.     (RUN_STOPPING)\n")


def still_stopping(api, times: int) -> None:
    problem = {"detail": "digits-7 is still stopping.", "code": "RUN_STOPPING"}
    resumed = a_run(status="pending", status_text="Resumed.")
    api.responses[("POST", "/v1/runs/digits-7/resume")] = [(409, problem)] * times + [(202, resumed)]


def test_a_run_that_is_stopping_is_resumed_when_it_has_stopped(api, spot) -> None:
    still_stopping(api, 3)
    ended = spot("resume", "digits-7")
    assert (ended.code, ended.lines) == (0, ["digits-7  ○ pending  Resumed."])
    assert ended.err == "digits-7 is still stopping and is resumed when it has stopped. Ctrl-C leaves.\n"
    assert len(api.bodies("/v1/runs/digits-7/resume")) == 4


def test_one_can_leave_while_it_stops(api, spot, monkeypatch) -> None:
    def leave(_: float) -> None:
        raise KeyboardInterrupt

    still_stopping(api, 3)
    monkeypatch.setattr(control.time, "sleep", leave)
    ended = spot("resume", "digits-7")
    assert ended.code == 130
    assert "spot resume digits-7" in ended.err
    assert len(api.bodies("/v1/runs/digits-7/resume")) == 1


def test_fields_of_the_api_are_flags_here(api, spot) -> None:
    text = "digits-7 is completed. Say rerun to start it over. Send replace_spec to go on."
    api.refuse("POST", "/v1/runs/digits-7/resume", 409, "RUN_COMPLETED", text)
    said = spot("resume", "digits-7").err
    assert "Use --rerun to start it over. Use --replace-spec to go on." in said


class TestApprove:
    RUN = a_run(
        status="awaiting_teardown", status_text="Results verified (3 files, 412 MB).", results_manifest_sha256="a" * 64
    )

    def test_what_is_sent_is_what_was_shown(self, api, spot) -> None:
        api.respond("GET", "/v1/runs/digits-7", self.RUN)
        api.respond("GET", "/v1/runs/digits-7/teardown", TEARDOWN)
        api.respond("POST", "/v1/runs/digits-7/approve", self.RUN, 202)
        ended = spot("approve", "digits-7", "--yes")
        assert ended.code == 0
        assert "Results verified" in ended.err
        assert "local:12345678:42:99" in ended.err
        assert "$0.30/h" in ended.err
        assert api.bodies("/v1/runs/digits-7/approve") == [
            {"machine_id": "local:12345678:42:99", "results_sha256": "a" * 64}
        ]

    def test_a_host_is_given_back_by_the_verb_that_was_shown(self, api, spot) -> None:
        api.respond("GET", "/v1/runs/digits-7", self.RUN)
        api.respond("GET", "/v1/runs/digits-7/teardown", ON_A_HOST)
        api.respond("POST", "/v1/runs/digits-7/approve", self.RUN, 202)
        ended = spot("approve", "digits-7", "--yes", "--verb", "stop")
        shown = [" ".join(line.split()) for line in ended.err.splitlines()]
        assert "VERB STOPS THE BILL LEAVES UNDO STILL BILLED" in shown
        assert "terminate (usual) yes nothing known no nothing" in shown
        assert "stop partly disk yes $0.20 per GB and month" in shown
        assert "Done by: a command of the settings; a later read confirms it." in shown
        spot("approve", "digits-7", "--yes", "--meter-stopped")
        seen = {"machine_id": "local:12345678:42:99", "results_sha256": "a" * 64}
        assert api.bodies("/v1/runs/digits-7/approve") == [{**seen, "verb": "stop"}, {**seen, "meter_stopped": True}]

    def test_the_question_names_the_verb_and_the_host(self) -> None:
        ask = control._teardown_question
        assert ask(TEARDOWN, "id-1", None, False) == "Release id-1?"
        assert ask(ON_A_HOST, "id-1", None, False) == "Terminate gpu1?"
        assert ask(ON_A_HOST, "id-1", "stop", False) == "Stop gpu1?"
        assert ask(ON_A_HOST, "id-1", None, True) == "Have you seen that gpu1 is billed no more?"

    def test_a_machine_is_never_let_go_unasked(self, api, spot) -> None:
        api.respond("GET", "/v1/runs/digits-7", self.RUN)
        api.respond("GET", "/v1/runs/digits-7/teardown", TEARDOWN)
        ended = spot("approve", "digits-7")
        assert ended.code == 2
        assert api.bodies("/v1/runs/digits-7/approve") == []

    def test_a_loss_is_accepted_with_its_reason(self, api, spot) -> None:
        api.respond("GET", "/v1/runs/digits-7", a_run(results_manifest_sha256=None))
        api.respond("POST", "/v1/runs/digits-7/approve", a_run(), 202)
        spot("approve", "digits-7", "-y", "--accept-loss", "not needed")
        assert api.bodies("/v1/runs/digits-7/approve") == [
            {"machine_id": "local:12345678:42:99", "results_sha256": None, "accept_loss": "not needed"}
        ]

    def test_a_lost_host_is_written_off_with_a_reason_and_only_when_asked(self, api, spot) -> None:
        api.respond("GET", "/v1/runs/digits-7", a_run())
        api.respond("POST", "/v1/runs/digits-7/write-off", a_run())
        assert spot("approve", "digits-7", "--write-off", "it burned").code == 2
        assert api.bodies("/v1/runs/digits-7/write-off") == []
        ended = spot("approve", "digits-7", "-y", "--write-off", "it burned")
        assert "What is on its host only is given up" in ended.err
        assert api.bodies("/v1/runs/digits-7/write-off") == [
            {"machine_id": "local:12345678:42:99", "reason": "it burned"}
        ]

    def test_a_run_without_a_machine(self, api, spot) -> None:
        api.respond("GET", "/v1/runs/digits-7", a_run(machine_id=None, status="completed"))
        ended = spot("approve", "digits-7", "-y")
        assert ended.code == 1
        assert "NOTHING_TO_APPROVE" in ended.err


def test_disasters(api, spot) -> None:
    for name in ("preempt", "kill", "freeze", "stockout"):
        api.respond("POST", f"/v1/dev/{name}", {"done": name}, 202)
    assert spot("dev", "preempt", "digits-7", "--notice", "5s").code == 0
    assert spot("dev", "kill", "digits-7").code == 0
    assert spot("dev", "freeze", "digits-7").code == 0
    assert (
        spot("dev", "stockout", "local-a", "local-b", "--for", "1m").out
        == "There is no capacity in local-a, local-b.\n"
    )
    assert spot("dev", "stockout", "local-a", "--for", "0").out == "There is capacity in local-a again.\n"
    assert [request.body for request in api.requests] == [
        {"run_id": "digits-7", "notice_s": 5.0}, {"run_id": "digits-7"}, {"run_id": "digits-7"},
        {"zones": ["local-a", "local-b"], "for_s": 60.0}, {"zones": ["local-a"], "for_s": 0.0},
    ]  # fmt: skip


AT = "2026-11-26T03:00:00.000Z"


def _drilled(verdict: "str | None", text: str, going_on: bool = False, drilled_at: "str | None" = None):
    row = {"going_on": going_on, "verdict": verdict, "text": text, "drilled_at": drilled_at}
    return {**row, "notices": [], "rounds": []}


class TestDrill:
    @pytest.mark.parametrize(("verdict", "code"), [("survives", 0), ("fails", 1), ("not_drilled", 1)])
    def test_it_waits_for_the_verdict(self, api, spot, monkeypatch, verdict: str, code: int) -> None:
        monkeypatch.setattr(control, "DRILL_POLL_S", 0.0)
        going = a_run(status="running", drill=_drilled(None, "not drilled yet; a drill is going on", True))
        over = a_run(status="running", drill=_drilled(verdict, "survives a 30 s notice: yes", drilled_at=AT))
        api.respond("POST", "/v1/runs/digits-7/drill", going, 202)
        api.respond_in_turn("GET", "/v1/runs/digits-7", going, over)
        ended = spot("drill", "digits-7", "--wait")
        assert ended.code == code
        assert "survives a 30 s notice: yes" in ended.err

    @pytest.mark.parametrize("status", ["running", "failed"])
    def test_a_verdict_of_an_earlier_drill_is_not_that_of_this_one(self, api, spot, monkeypatch, status: str) -> None:
        """Broken variant: exit 0 by an older "survives", after a preemption had ended this drill."""
        monkeypatch.setattr(control, "DRILL_POLL_S", 0.0)
        old = "survives", "survives a 30 s notice: yes"
        api.respond("POST", "/v1/runs/digits-7/drill", a_run(status="running", drill=_drilled(*old, True, AT)), 202)
        api.respond_in_turn("GET", "/v1/runs/digits-7", a_run(status=status, drill=_drilled(*old, False, AT)))
        ended = spot("drill", "digits-7", "--wait")
        assert ended.code == 1
        assert "spot events digits-7 says why" in ended.err

    def test_without_wait_it_only_orders_one(self, api, spot) -> None:
        going = a_run(status="running", drill=_drilled(None, "not drilled yet; a drill is going on", True))
        api.respond("POST", "/v1/runs/digits-7/drill", going, 202)
        assert spot("drill", "digits-7").code == 0
        assert [request.method for request in api.requests if request.path.endswith("/digits-7")] == []
