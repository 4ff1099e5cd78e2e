"""What is read at 80 columns: words stay whole, nothing that matters is cut, what is pasted is never broken."""

from __future__ import annotations

import click
import pytest

from supervisor.cli import main as cli_main
from supervisor.cli import output
from supervisor.cli.machines.machines import machine_lines
from supervisor.cli.views import runs as views
from supervisor.cli.views.plan import plan_lines
from tests.cli.fake_api import a_run, an_event
from tests.cli.fake_machines import ORPHAN, a_machine
from tests.cli.test_dry_run import NOW, a_check, a_plan
from tests.cli.test_terminal import COLOUR, at_a_terminal

WIDTH = 80
FIX = "gcloud storage buckets create gs://NEW-NAME --project=p --location=us-east1 --soft-delete-duration=0"


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "terminal_columns", lambda: WIDTH)


def test_an_error_is_broken_between_words_and_its_code_stays_whole(api) -> None:
    api.refuse("GET", "/v1/runs/digits-7", 404, "RUN_NOT_FOUND", "word " * 14 + "end.")
    with at_a_terminal(api.url, "show", "digits-7", COLUMNS=str(WIDTH)) as terminal:
        assert terminal.code() == 5
        lines = COLOUR.sub("", terminal.text).split("\r\n")
    assert lines[0] == "error: " + " ".join(["word"] * 14)
    assert lines[1] == "  end.     (RUN_NOT_FOUND)"


def test_a_hint_is_never_broken(monkeypatch, capsys, narrow) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    cli_main.show_error("word " * 30, "A_CODE", (), (FIX,))
    lines = click.unstyle(capsys.readouterr().err).splitlines()
    assert len(lines) > 2
    assert lines[-1] == f"  {FIX}"
    assert all(len(line) <= WIDTH for line in lines[:-1])


def test_texts_of_events_stand_in_one_column_also_below_a_long_kind(narrow) -> None:
    said = "a preemption was asked for by spot@my-project.iam.gserviceaccount.com on behalf of somebody"
    ours = views.event_lines(an_event(1, "obtained", said))
    clouds = views.event_lines({**an_event(2, "simulateMaintenanceEvent", said), "source": "cloud"})
    column = ours[0].index("a preemption")
    for lines in (ours, clouds):
        assert len(lines) > 1
        assert all(len(line) <= WIDTH for line in lines)
        assert {len(line) - len(line.lstrip()) for line in lines[1:]} == {column}


def test_machines_that_all_serve_are_shown_whole(narrow) -> None:
    lines = machine_lines([a_machine()])
    assert lines[0].split() == ["MACHINE", "WHERE", "STATE", "AGE", "RUN", "ATT", "$/H"]
    assert not any(line.endswith("…") for line in lines)


def test_use_is_shown_where_a_machine_serves_no_run(narrow) -> None:
    lines = machine_lines([{**a_machine(), "shape": "t4"}, {**ORPHAN, "shape": "t4", "spot": True}])
    assert lines[0].split() == ["MACHINE", "WHERE", "STATE", "RUN", "$/H", "USE"]
    assert "carries our" in lines[2]


def test_the_checks_of_a_plan_are_broken_between_words_and_their_fix_is_not(narrow) -> None:
    cause = "machines are in us-east1: checkpoints cross regions, slowly and for much money, each time anew"
    bad = a_check("bucket", "warn", fact="gs://b in us-central1, " * 5, cause=cause, fix=FIX)
    lines = click.unstyle("\n".join(plan_lines(a_plan(checks=[bad]), NOW))).splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("! bucket: "))
    until = lines.index(f"    fix: {FIX}")
    assert until > at + 3
    assert all(len(line) <= WIDTH for line in lines[at:until])
    assert lines[until - 1].startswith(" " * 11)


def test_the_answer_to_a_command_is_broken_between_words(narrow) -> None:
    first, rest = "Accepted 0 s ago. Next: start in the first zone with capacity", "on the coming tick."
    lines = click.unstyle(
        output.run_line(a_run(run_id="live", status="pending", status_text=f"{first} {rest}"))
    ).splitlines()
    assert lines == [f"live  ○ pending  {first}", f"  {rest}"]
