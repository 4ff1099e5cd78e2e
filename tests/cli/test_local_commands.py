"""Commands that need no supervisor: serve and migrate (their settings), config, completion, docs, --help."""

import json
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from supervisor.domain.errors import DataDirHeld, SchemaMismatch
from supervisor.settings.loading import Settings
from supervisor.wiring import settings as wired


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch):
    """A composition root that remembers the settings it is given; the real one is the matter of other tests."""
    fake = types.ModuleType("supervisor.wiring.bootstrap")
    fake.given = []
    fake.serve = lambda settings, start_over: fake.given.append(settings) or 0
    fake.migrate = fake.given.append
    monkeypatch.setitem(sys.modules, "supervisor.wiring.bootstrap", fake)
    monkeypatch.setattr("supervisor.wiring.bootstrap", fake, raising=False)
    monkeypatch.setattr("supervisor.telemetry.logs.configure", lambda level, log_format: None)
    return fake


def test_serve_hands_the_settings_to_the_root(run_cli, root, clean: Path, monkeypatch) -> None:
    env_file, file = clean / "runner.env", clean / "spot.toml"
    env_file.write_text("POLL_INTERVAL=120\n")
    file.write_text("stall_polls = 5\n")
    monkeypatch.setenv("SPOT_QUOTA_RETRY_S", "77")
    ended = run_cli(
        "serve", "--data-dir", str(clean / "d"), "--port", "0", "--env-file", str(env_file), "--config", str(file)
    )
    assert ended.code == 0
    (settings,) = root.given
    assert isinstance(settings, Settings)
    assert (settings.data_dir, settings.access.port, settings.knobs.poll_interval_s) == (clean / "d", 0, 120.0)
    assert (settings.stall.polls, settings.knobs.quota_retry_s) == (5, 77.0)


def test_serve_needs_nothing(run_cli, root) -> None:
    assert run_cli("serve").code == 0


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["serve", "--host", "192.168.1.1", "--insecure-loopback"], "not a loopback address"),
        (["serve", "--port", "many"], "port (flag --port): expected a whole number"),
        (["serve", "--config", "/absent.toml"], "cannot read the settings file"),
        (["migrate", "--env-file", "/absent.env"], "cannot read the environment file"),
    ],
)
def test_refused_settings_start_nothing(run_cli, root, words: list[str], text: str) -> None:
    ended = run_cli(*words)
    assert ended.code == 2
    assert text in ended.err
    assert root.given == []


def test_what_the_root_refuses_is_told(run_cli, root) -> None:
    def held(settings: Settings, start_over: bool) -> int:
        raise DataDirHeld("Another supervisor (pid 42) serves this folder.")

    def old(settings: Settings) -> None:
        raise SchemaMismatch("The schema is older: run `spot migrate`.")

    root.serve, root.migrate = held, old
    ended = run_cli("serve")
    assert (ended.code, ended.err) == (
        6,
        "error: Another supervisor (pid 42) serves this folder.     (DATA_DIR_HELD)\n",
    )
    assert run_cli("migrate").code == 1


def test_the_exit_code_of_serve_is_the_root_s(run_cli, root) -> None:
    root.serve = lambda settings, start_over: 1
    assert run_cli("serve").code == 1


def test_migrate(run_cli, root, clean: Path) -> None:
    assert run_cli("migrate", "--data-dir", str(clean)).code == 0
    assert root.given[0].data_dir == clean


def test_config_shows_every_setting_with_its_origin(run_cli, monkeypatch) -> None:
    monkeypatch.setenv("SPOT_STALL_POLLS", "7")
    monkeypatch.setenv("SPOT_LOCAL_PRICES", "cpu=0.1/0.3")
    monkeypatch.setenv("SPOT_DATABASE_URL", "postgresql://me:hunter2@localhost/spot")
    ended = run_cli("config", "show", "--origin")
    rows = {line.split()[0]: line for line in ended.lines[1:]}
    assert set(rows) == set(wired.load({}, {"HOME": "/h"}).flat)
    assert rows["stall_polls"].split() == ["stall_polls", "7", "environment", "SPOT_STALL_POLLS"]
    assert rows["local_prices"].split()[1] == "cpu=0.1/0.3"
    assert "postgresql://me:***@localhost/spot" in rows["database_url"]
    assert "hunter2" not in ended.out
    document = json.loads(run_cli("config", "show", "--origin", "-o", "json").out)
    assert document["stall_polls"] == {"value": 7, "origin": "environment SPOT_STALL_POLLS"}
    assert json.loads(run_cli("config", "show", "-o", "json").out)["poll_interval_s"] == 30.0


def test_at_a_terminal_a_long_value_does_not_push_the_origins_out_of_sight(run_cli, monkeypatch) -> None:
    monkeypatch.setattr("supervisor.cli.server.server.terminal_columns", lambda: 80)
    monkeypatch.setenv("SPOT_STALL_POLLS", "7")
    monkeypatch.setenv("SPOT_DATA_DIR", path := "/" + "far/" * 30 + "away")
    lines = run_cli("config", "show", "--origin").lines
    assert any(line.startswith("data_dir") and path in line for line in lines)  # nor is it cut
    [polls] = [line for line in lines if line.startswith("stall_polls")]
    assert polls.endswith("environment SPOT_STALL_POLLS")
    assert len(polls) <= 80


def test_config_shows_warnings_beside_the_table(run_cli, monkeypatch) -> None:
    monkeypatch.setenv("SPOT_FAVOURITE_COLOUR", "blue")
    ended = run_cli("config", "show")
    assert ended.err.startswith("warning: SPOT_FAVOURITE_COLOUR")
    assert "FAVOURITE" not in ended.out


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_scripts(run_cli, shell: str) -> None:
    ended = run_cli("completion", shell)
    assert ended.code == 0
    assert "_SPOT_COMPLETE" in ended.out


def test_the_states_are_printed_from_the_tables(run_cli) -> None:
    from supervisor.cli.server.docs import states_markdown

    ended = run_cli("docs", "states")
    assert ended.out == states_markdown()
    assert "awaiting_teardown" in ended.out


def _spot(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("SPOT_")} | environ
    return subprocess.run(
        [sys.executable, "-m", "supervisor", *words], capture_output=True, text=True, env=env, timeout=60, check=False
    )


def test_help_imports_nothing_heavy() -> None:
    """`spot --help` has 150 ms (make bench measures it); what would cost them is named here."""
    heavy = ("httpx", "rich", "yaml", "fastapi", "sqlalchemy", "supervisor.settings.loading", "http.client", "asyncio")
    program = (
        "import sys; from supervisor.cli.main import run; code = run(['--help']);"
        f"print(code, [name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"
    assert "Exit codes: 0 ok" in done.stdout


def test_every_command_has_help(run_cli) -> None:
    from supervisor.cli.main import COMMANDS

    for name, (_, text) in COMMANDS.items():
        ended = run_cli(name, "--help")
        assert ended.code == 0
        assert text


def test_the_help_shows_every_command_once_on_one_line(run_cli, monkeypatch) -> None:
    from supervisor.cli.main import COMMANDS

    monkeypatch.setenv("COLUMNS", "80")
    lines = run_cli("--help").out.splitlines()
    for name, (_, text) in COMMANDS.items():
        assert [line.split(maxsplit=1) for line in lines if line.startswith(f"  {name} ")] == [[name, text]]


def test_the_help_of_submit_shows_every_option_once_in_a_section(run_cli) -> None:
    from supervisor.cli.runs.submit import submit

    lines = run_cli("submit", "--help").out.splitlines()
    assert [line for line in lines if line.endswith(":") and line[0] != " "] == [
        "Command:", "Machine:", "Limits:", "End:", "Submit:", "Options:",
    ]  # fmt: skip
    first_words = [line.split()[0].rstrip(",") for line in lines if line.startswith("  -")]
    options = [param.opts[0] for param in submit.params if param.opts[0].startswith("-")]
    assert sorted(first_words) == sorted([*options, "-h"])


def test_the_shell_gets_names_of_commands_and_runs(api) -> None:
    from tests.cli.fake_api import a_page, a_run

    names = _spot(_SPOT_COMPLETE="zsh_complete", COMP_WORDS="spot s", COMP_CWORD="1").stdout
    assert {"submit", "show", "serve", "stop"} <= set(names.split())
    words = {"_SPOT_COMPLETE": "zsh_complete", "COMP_WORDS": "spot ls --status r", "COMP_CWORD": "3"}
    assert {"running", "recovering"} <= set(_spot(**words).stdout.split())
    api.respond("GET", "/v1/runs", a_page(a_run(), a_run(run_id="old-1")))
    words_of_show = {"_SPOT_COMPLETE": "zsh_complete", "COMP_WORDS": "spot show d", "COMP_CWORD": "2"}
    assert "digits-7" in _spot(**words_of_show, SPOT_URL=api.url).stdout
    assert _spot(**words_of_show, SPOT_URL="http://127.0.0.1:1").stderr == ""


def test_a_reader_that_leaves_is_no_error(api) -> None:
    from tests.cli.fake_api import a_page, a_run

    api.respond("GET", "/v1/runs", a_page(*[a_run(run_id=f"run-{number}") for number in range(2000)]))
    env = {**os.environ, "SPOT_URL": api.url}
    with subprocess.Popen(
        [sys.executable, "-m", "supervisor", "ls", "-n", "2000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
    ) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 0
