"""Exit codes, and what is said when something is wrong: the fact, the code, what to do."""

import json
import os
from pathlib import Path

import pytest

from tests.cli.fake_api import a_page, a_run, serve_run


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, 2), (422, 2), (413, 2), (401, 4), (403, 4), (404, 5), (409, 6), (412, 6), (504, 8), (500, 1), (429, 1)],
)
def test_each_status_has_its_exit_code(api, spot, status: int, code: int) -> None:
    api.refuse("GET", "/v1/runs/digits-7", status, "SOME_CODE", "What happened.")
    ended = spot("show", "digits-7")
    assert (ended.code, ended.out) == (code, "")
    assert ended.err == "error: What happened.     (SOME_CODE)\n"


def test_wrong_fields_are_listed(api, spot, tmp_path: Path) -> None:
    errors = [{"pointer": "#/spec/zone", "detail": "is not known; did you mean zones?"}]
    api.refuse("POST", "/v1/runs", 422, "INVALID_REQUEST", "The body is refused.", errors=errors)
    file = tmp_path / "train.yaml"
    file.write_text("command: python train.py\nzone: a\n")
    ended = spot("submit", str(file))
    assert ended.code == 2
    assert ended.err.splitlines() == [
        f"error: {file}, line 2: The body is refused.     (INVALID_REQUEST)",
        "  #/spec/zone: is not known; did you mean zones?",
    ]


def test_what_the_text_has_said_is_not_listed_once_more(api, spot) -> None:
    said = "#/spec/zone is not known; did you mean zones?"
    errors = [{"pointer": "#/spec/zone", "detail": "is not known; did you mean zones?"}]
    api.refuse("POST", "/v1/runs", 422, "INVALID_REQUEST", f"The body is refused: {said}", errors=errors)
    ended = spot("submit", "--", "x")
    assert ended.err == f"error: The body is refused: {said}     (INVALID_REQUEST)\n"


def test_a_script_in_the_place_of_the_file_or_of_the_command(api, spot, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    for text in ('print("a: b")\nx = {1: [2}\n', "import os\n"):
        script.write_text(text)
        ended = spot("submit", str(script))
        assert (ended.code, api.requests) == (2, [])
        assert ended.err.splitlines()[-1] == f"  to run it: spot submit -- python {script}"
    ended = spot("submit", "python", "train.py")
    assert (ended.code, api.requests) == (2, [])
    assert "A command comes after --: spot submit -- python train.py" in ended.err


def test_a_refused_field_is_named_as_the_file_names_it(api, spot, tmp_path: Path) -> None:
    errors = [
        {"pointer": "#/spec/limits/max_runtim_s", "detail": "is not known; did you mean max_runtime_s?"},
        {"pointer": "#/spec/command/1", "detail": "must be a text; in YAML put it in quotes"},
        {"pointer": "#/spec/run-id", "detail": "is not known; did you mean run_id, beside spec?"},
    ]
    text = "The body is refused: #/spec/limits/max_runtim_s is not known; …"
    api.refuse("POST", "/v1/runs", 422, "INVALID_REQUEST", text, errors=errors)
    file = tmp_path / "train.yaml"
    file.write_text("command:\n- python\n- 3\nlimits:\n  max_runtim_s: 4\nrun-id: x\n")
    ended = spot("submit", str(file))
    assert ended.code == 2
    assert ended.err.splitlines() == [
        f"error: {file}, line 5: limits.max_runtim_s is not known; did you mean max_runtime_s?     (INVALID_REQUEST)",
        f"  {file}, line 3: command.1 must be a text; in YAML put it in quotes",
        f"  {file}, line 6: run-id is not known; did you mean run_id?",
    ]
    api.refuse("POST", "/v1/runs/digits-7/resume", 422, "INVALID_REQUEST", text, errors=errors[:1])
    assert f"{file}, line 5: limits.max_runtim_s is not known" in spot("resume", "digits-7", "--spec", str(file)).err


def test_a_command_under_a_misspelled_name_is_found(api, spot, tmp_path: Path) -> None:
    file = tmp_path / "train.yaml"
    for text, said in (
        ("run_id: x1\ncomand: x\n", f"{file}, line 2: comand is not known; did you mean command?"),
        ("Command: x\n", f"{file}, line 1: Command is not known; did you mean command?"),
        ("spec:\n  command: x\n", f"{file}, line 1: in a file the fields of a run stand at the top, not below spec."),
        ("zones: [a]\n", f"{file} names no command to run."),
    ):
        file.write_text(text)
        ended = spot("submit", str(file))
        assert (ended.code, ended.err) == (2, f"error: {said}     (COMMAND_MISSING)\n")
    assert api.bodies("/v1/runs") == []


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("submit --run_id x -- x", "Did you mean '--run-id'?"),
        ("submit --zones local-a -- x", "Did you mean '--zone'?"),
        ("submit --on-success kep -- x", "'kep' is not one of 'release', 'keep', 'ask'. Did you mean 'keep'?"),
        ("submit --escalate-to on-demand -- x", "Did you mean 'on_demand'?"),
        ("ls -o jsn", "Did you mean 'json'?"),
        ("ls --frobnicate", "No such option '--frobnicate'."),
        ("ls -o frobnicate", "'jsonl', 'name'."),
    ],
)
def test_a_misspelled_option_or_choice_is_answered_with_the_nearest(spot, words: str, hint: str) -> None:
    ended = spot(*words.split())
    assert ended.code == 2
    first, command = ended.err.splitlines()
    assert first.endswith(hint)
    assert command == f"  spot {words.split(maxsplit=1)[0]} --help"


def test_contradicting_limits_are_shown_with_the_file(api, spot, tmp_path: Path) -> None:
    file = tmp_path / "train.yaml"
    file.write_text("command: x\nstall: {boot_timeout_s: 600}\n")
    detail = "stall.boot_timeout_s = 600 is shorter than gpu_timeout_s + 300 = 1500 s: …"
    api.refuse("POST", "/v1/runs", 422, "INVALID_TIMEOUTS", detail)
    assert spot("submit", str(file)).err == f"error: {file}: {detail}     (INVALID_TIMEOUTS)\n"


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"title": 7}', b"null"])
def test_an_error_without_an_explanation_shows_its_status(api, spot, body: bytes) -> None:
    api.respond("GET", "/v1/runs/digits-7", body, status=500)
    ended = spot("show", "digits-7")
    assert ended.code == 1
    assert ended.err.startswith("error: ")


def test_something_else_at_that_address(api, spot) -> None:
    api.respond("GET", "/v1/runs/digits-7", b"<html>hello</html>")
    ended = spot("show", "digits-7")
    assert ended.code == 1
    assert "NOT_A_SUPERVISOR" in ended.err


def test_no_supervisor_at_the_given_address(run_cli) -> None:
    for url in ("http://127.0.0.1:1", "http://127.0.0.1:1/"):
        ended = run_cli("ls", "--url", url)
        assert ended.code == 7
        assert (
            "error: No supervisor responds at http://127.0.0.1:1 (connection refused).     (SERVER_UNREACHABLE)"
            in ended.err
        )
        assert "spot up" in ended.err


def test_an_address_that_is_none(run_cli) -> None:
    assert run_cli("ls", "--url", "ftp://x").code == 2
    assert run_cli("ls", "--url", "127.0.0.1:8787").code == 2


def test_a_supervisor_that_died_is_named_by_its_pid(run_cli, clean: Path, free_port: int) -> None:
    folder = clean / "data"
    folder.mkdir()
    (folder / "server.json").write_text(json.dumps({"url": f"http://127.0.0.1:{free_port}", "pid": 2**22 + 1}))
    ended = run_cli("ls", "--data-dir", str(folder))
    assert ended.code == 7
    assert f"(pid {2**22 + 1}) is not running any more; trainings continue without it" in ended.err
    assert f"spot up --data-dir {folder}" in ended.err


def test_the_server_file_leads_to_the_server(run_cli, api, clean: Path) -> None:
    folder = clean / "home/.local/state/spot-supervisor"
    folder.mkdir(parents=True)
    (folder / "server.json").write_text(json.dumps({"url": api.url, "pid": os.getpid()}))
    api.respond("GET", "/v1/runs", a_page(a_run()))
    assert run_cli("ls", "-o", "name").out == "digits-7\n"


def test_a_torn_server_file_is_no_server_file(run_cli, clean: Path, free_port: int, monkeypatch) -> None:
    monkeypatch.setenv("SPOT_PORT", str(free_port))
    (clean / "server.json").write_text('{"url": "http')
    ended = run_cli("ls", "--data-dir", str(clean))
    assert ended.code == 7
    assert f"http://127.0.0.1:{free_port}" in ended.err


def test_a_named_data_folder_wins_over_the_environment(spot, api, clean: Path, free_port: int, monkeypatch) -> None:
    monkeypatch.setenv("SPOT_PORT", str(free_port))
    assert spot("ls", "--data-dir", str(clean)).code == 7
    assert api.requests == []


def test_a_misspelt_setting_is_refused_where_it_matters(run_cli, monkeypatch) -> None:
    monkeypatch.setenv("SPOT_DATADIR", "/somewhere")
    ended = run_cli("ls")
    assert ended.code == 2
    assert "did you mean SPOT_DATA_DIR?     (SETTINGS_REFUSED)" in ended.err


def test_usage(spot) -> None:
    assert spot("sho").code == 2
    assert "Did you mean show?" in spot("sho").err
    for elsewhere, here in (("status", "show"), ("list", "ls"), ("delete", "stop"), ("build", "build-image")):
        assert f"There is no command '{elsewhere}'. Did you mean {here}?" in spot(elsewhere).err
    assert spot("ls", "--nonsense").code == 2
    assert spot("ls", "-o", "xml").code == 2
    assert spot("ls", "--since", "soon").code == 2
    assert spot("ls", "-l", "nolabel").code == 2
    assert spot("--help").code == 0
    assert spot("--version").out.startswith("spot, version ")


@pytest.mark.parametrize(
    "words",
    [
        ["stop", ""],
        ["stop", " ", "--yes"],
        ["resume", ""],
        ["show", ""],
        ["dev", "preempt", ""],
        ["submit", "--run-id", "", "--", "x"],
        ["submit", "--budget", "nan", "--", "x"],
        ["submit", "--budget", "inf", "--", "x"],
        ["submit", "--budget", "much", "--", "x"],
        ["ls", "--since", "99999999999h"],
        ["events", "r", "--since", "9" * 400 + "h"],
    ],
)
def test_values_that_mean_nothing_are_usage_errors(api, spot, words: list[str]) -> None:
    ended = spot(*words)
    assert ended.code == 2
    assert "Invalid value" in ended.err
    assert api.requests == []


class TestWhichRun:
    """RUN may be left out: the only active run, else the newest; several are listed."""

    def test_the_only_active_one(self, api, spot) -> None:
        api.respond("GET", "/v1/runs", a_page(a_run()))
        serve_run(api, a_run())
        assert spot("show").code == 0
        assert "completed" not in api.requests[0].query["status"]
        assert {"running", "waiting", "pending"} <= set(api.requests[0].query["status"])

    def test_else_the_newest(self, api, spot) -> None:
        api.respond_in_turn("GET", "/v1/runs", a_page(), a_page(a_run(status="completed")))
        serve_run(api, a_run(status="completed"))
        assert spot("show").lines[0] == "digits-7  ✔ completed"

    def test_several_are_listed(self, api, spot) -> None:
        api.respond("GET", "/v1/runs", a_page(a_run(), a_run(run_id="llm-a", status="waiting")))
        ended = spot("show")
        assert ended.code == 2
        assert ended.err.splitlines()[1:] == ["  digits-7  running", "  llm-a  waiting"]

    def test_there_is_none(self, api, spot) -> None:
        api.respond("GET", "/v1/runs", a_page())
        ended = spot("show")
        assert ended.code == 5
        assert "spot submit" in ended.err

    def test_a_run_id_cannot_leave_its_path(self, api, spot) -> None:
        assert spot("show", "../doctor?x=1").code == 5
        assert api.requests[0].path == "/v1/runs/..%2Fdoctor%3Fx%3D1"
