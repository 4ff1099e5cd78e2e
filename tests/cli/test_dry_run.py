"""spot submit --dry-run: the plan for a person, and nothing sent but the question."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click
import pytest

from supervisor.cli.views.plan import plan_lines, show_what_if, variations_from
from supervisor.cli.views.what_if_picture import picture
from tests.cli.test_providers import profile

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def a_place(zone: str = "us-east1-c", **fields: Any) -> dict[str, Any]:
    return {
        "provider": "gce", "region": "us-east1", "zone": zone, "shape": "l4", "spot": True,
        "price_usd_per_h": 0.25, "on_demand_usd_per_h": 0.75, "price_source": "a table", "price_dated": "2026-11-01",
        "cooling_until": None, "cooling_why": None, "chance": 0.7, **fields,
    }  # fmt: skip


def a_check(name: str, result: str = "ok", **fields: Any) -> dict[str, Any]:
    return {
        "name": name, "result": result, "fact": f"about {name}", "cause": "", "fix": "", "group": "google", **fields
    }  # fmt: skip


def a_plan(**fields: Any) -> dict[str, Any]:
    return {
        "would": "create", "sentence": "digits would be created. First try: l4 spot in us-east1-c.",
        "run_id": "digits", "generation": 1, "differs": [], "warnings": [], "zones": [a_place()],
        "cost": {"lines": ["First: l4 spot in us-east1-c at $0.25/h."], "at_most_usd": 12.0},
        "limits": {
            "max_runtime_s": 172800.0, "deadline": None, "max_attempts": 10, "max_user_failures": 3,
            "wait_for_capacity_s": 86400.0, "budget_usd": None, "machine_max_s": 86400.0,
        },
        "checks": [a_check("zones")], "worst": "ok",
        "launch": {"kind": "x", "metadata": {"startup-script": "#!" + "x" * 17_998, "spot-nonce": "n"}},
        "made_at_launch": ["nonce"], **fields,
    }  # fmt: skip


def plan_text(**fields: Any) -> str:
    return click.unstyle("\n".join(plan_lines(a_plan(**fields), NOW)))


@pytest.fixture
def planning(api):
    api.respond("GET", "/v1/meta", {"provider": "gce"})
    api.respond("POST", "/v1/runs", a_plan())
    return api


def test_a_dry_run_asks_for_the_plan_and_for_nothing_else(planning, spot) -> None:
    ended = spot("submit", "--dry-run", "--run-id", "digits", "--", "python", "train.py")
    assert (ended.code, ended.err) == (0, "")
    (request,) = [request for request in planning.requests if request.method == "POST"]
    assert request.query == {"validate_only": ["true"]}
    assert request.body["run_id"] == "digits"
    assert ended.lines[0] == "digits would be created. First try: l4 spot in us-east1-c. Nothing was done yet."
    assert "$0.25/h" in ended.out


def test_a_plan_names_the_option_that_submits_it_and_the_option_sends_its_id(planning, spot) -> None:
    shown_id = "plan_" + "a" * 50
    planning.respond("POST", "/v1/runs", a_plan(plan_id=shown_id, plan_expires_at="2026-11-27T10:15:00Z"))
    dry = spot("submit", "--dry-run", "--", "x")
    assert dry.lines[-1] == f"Until 2026-11-27 10:15Z, at these prices: --plan {shown_id}"
    spot("submit", "--plan", shown_id, "-o", "json", "--", "x")
    assert planning.requests[-1].body["plan_id"] == shown_id


def test_everything_as_json_and_one_word_for_scripts(planning, spot) -> None:
    ended = spot("submit", "--dry-run", "-o", "json", "--", "x")
    assert json.loads(ended.out) == a_plan()
    assert spot("submit", "--dry-run", "-o", "name", "--", "x").out == "create\n"


@pytest.mark.parametrize(("status", "code", "exit_code"), [(422, "INVALID_REQUEST", 2), (409, "RUN_ACTIVE", 6)])
def test_a_plan_that_is_refused_ends_as_the_submit_would(
    planning, spot, status: int, code: str, exit_code: int
) -> None:
    planning.refuse("POST", "/v1/runs", status, code, "no, because")
    dry, real = spot("submit", "--dry-run", "--", "x"), spot("submit", "--", "x")
    assert dry.code == real.code == exit_code
    assert dry.err == real.err
    assert "no, because" in dry.err


class NothingStored(dict[tuple[str, str], Any]):
    """The responses of an API that has no bundle of code."""

    def get(self, key: Any, default: Any = None) -> Any:
        document = {"title": "x", "detail": "not stored", "code": "CODE_NOT_FOUND"}
        return (404, document) if key[1].startswith("/v1/code/") else super().get(key, default)


def test_a_folder_of_code_is_packed_and_not_sent(planning, spot, tmp_path: Path) -> None:
    planning.responses = NothingStored(planning.responses)
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print(1)\n")
    ended = spot("submit", "--dry-run", "--code", str(tmp_path / "src"), "--", "python", "train.py")
    assert ended.code == 0
    assert "not stored" in ended.err
    assert {request.method for request in planning.requests} == {"GET", "POST"}, "nothing was put"
    request = planning.requests[-1]
    assert request.query == {"validate_only": ["true"], "code_follows": ["true"]}
    assert len(request.body["spec"]["code"]) == 64


def test_code_that_does_not_hold_the_command_is_refused_here_too(planning, spot, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "other.py").write_text("print(1)\n")
    ended = spot("submit", "--dry-run", "--code", str(tmp_path / "src"), "--", "python", "train.py")
    assert ended.code == 2
    assert "train.py" in ended.err


def test_nothing_can_be_followed_that_does_not_begin(planning, spot) -> None:
    ended = spot("submit", "--dry-run", "--watch", "--", "x")
    assert ended.code == 2
    assert [request for request in planning.requests if request.method == "POST"] == []


def test_the_flags_of_region_checkpoint_and_escalation_become_fields(planning, spot) -> None:
    words = ("--same-region", "require", "--expect-checkpoint", "12.5", "--image-follow-tag")
    escalation = ("--escalate-after", "3", "--escalate-within", "2h", "--escalate-to", "next_shape")
    assert spot("submit", "--dry-run", *words, *escalation, "--on-demand-before-deadline", "1h", "--", "x").code == 0
    spec = planning.requests[-1].body["spec"]
    assert (spec["same_region"], spec["expect_checkpoint_gb"], spec["image_follow_tag"]) == ("require", 12.5, True)
    assert spec["escalate"] == {
        "after": 3, "within_s": 7200.0, "to": "next_shape", "on_demand_before_deadline_s": 3600.0
    }  # fmt: skip


def test_a_flag_of_escalation_joins_what_the_file_says(planning, spot, tmp_path: Path) -> None:
    file = tmp_path / "train.yaml"
    file.write_text("command: x\nescalate: {after: 2}\n")
    assert spot("submit", "--dry-run", "--escalate-to", "on_demand", str(file)).code == 0
    assert planning.requests[-1].body["spec"]["escalate"] == {"after": 2, "to": "on_demand"}


# --- what a person sees -----------------------------------------------------------------------------------------------


def test_checks_that_are_well_share_a_line_and_the_others_have_cause_and_cure() -> None:
    bad = a_check("quotas", "fail", fact="L4 0 of 0", cause="no room", fix="raise it")
    soft = a_check("memory", "warn", cause="too little", fix="use more")
    lines = plan_text(checks=[a_check("zones"), soft, a_check("bucket"), bad]).splitlines()
    assert "✔ 2 checks passed: zones, bucket" in lines
    at = lines.index("✗ quotas: L4 0 of 0")
    assert lines[at : at + 4] == [
        "✗ quotas: L4 0 of 0",
        "    cause: no room",
        "    fix: raise it",
        "! memory: about memory",
    ]


def test_an_unknown_price_is_called_unknown_and_an_old_one_shows_its_age() -> None:
    text = plan_text(
        zones=[
            a_place(price_usd_per_h=None, on_demand_usd_per_h=None, price_source=None, chance=None),
            a_place("us-east1-b", price_dated="2026-09-01"),
        ]
    )
    assert "unknown" in text
    assert "2026-09-01 ! 80 days old" in text
    assert "$0.00" not in text


def test_a_zone_that_refused_shows_the_time_of_its_retry() -> None:
    until = (NOW + timedelta(minutes=3)).isoformat()
    text = plan_text(zones=[a_place(cooling_until=until, cooling_why="no_capacity: none left")])
    assert "retry in 3 min: no_capacity: none left" in text


def test_columns_without_a_word_are_left_out() -> None:
    text = plan_text(zones=[a_place(chance=None)])
    assert "CHANCE" not in text
    assert "NOTE" not in text
    assert "PRICE READ" in text


def test_an_unchanged_run_is_described_once() -> None:
    sentence = "digits is running with the same spec: nothing would change."
    assert plan_text(would="unchanged", sentence=sentence).splitlines()[0] == sentence


def test_metadata_is_shown_as_names_and_sizes() -> None:
    text = plan_text()
    assert "startup-script 18.0 kB, spot-nonce 1 B" in text
    assert "All of it: spot submit --dry-run -o json" in text


def test_where_nothing_could_be_made_it_is_said() -> None:
    assert "It is unknown" in plan_text(launch=None)


def test_words_from_elsewhere_move_no_cursor() -> None:
    plan = a_plan(checks=[a_check("zones", "fail", fact="a\x1b[2Jb")], warnings=["w\x1b[2J"])
    assert "\x1b[2J" not in "\n".join(plan_lines(plan, NOW))


def test_the_dangers_and_what_survives_stand_before_the_checks() -> None:
    text = plan_text(profile=profile("runpod"))
    at = [text.index(part) for part in ("Limits: ", "! Bills $0.40/h until", "FILES ON", "volume: /workspace", "check")]
    assert at == sorted(at)
    free = plan_text(profile={**profile("runpod"), "clocks": []})
    assert "FILES ON" in free
    assert "\n\n\n" not in free + text
    assert "FILES ON" not in plan_text(profile=None), "no offer fits"
    assert "FILES ON" not in plan_text(), "an older supervisor"


def test_watching_begins_with_the_dangers(accepting, spot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.cli.runs.watch.follow_run", lambda *_: 0)
    accepting.respond("GET", "/v1/runs/digits-7/spec", {"profile": profile("runpod")})
    ended = spot("submit", "--watch", "--", "x")
    assert ended.code == 0
    assert "! Bills $0.40/h until you end it (terminate); nothing stops it by itself." in ended.err
    assert "Bills" not in spot("submit", "--", "x").err


@pytest.mark.parametrize("status", [404, 403, 503])
def test_a_profile_that_cannot_be_read_stops_no_run_that_was_submitted(
    accepting, spot, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr("supervisor.cli.runs.watch.follow_run", lambda *_: 0)
    accepting.refuse("GET", "/v1/runs/digits-7/spec", status, "NO", "no")
    assert spot("submit", "--watch", "--", "x").code == 0


# --- the forecast, and what if ----------------------------------------------------------------------------------------


def a_forecast(p50: float = 12.0, **fields: Any) -> dict[str, Any]:
    return {
        "text": "about $12 (9 to 17), done Sat 14:00 UTC (12:30 to 18:10); on-demand would cost $41", "futures": 10_000,
        "cost_usd": {"p10": 0.75 * p50, "p50": p50, "p90": 1.5 * p50},
        "ends_at": {"p10": "2026-11-21T12:30:00Z", "p50": "2026-11-21T14:00:00Z", "p90": None},
        "deadline_kept": None, "unknown": [],
        "assumes": [{"name": "work", "text": "10 h of training are left", "source": "given"}], **fields,
    }  # fmt: skip


def test_the_forecast_stands_in_the_plan_with_what_it_assumes() -> None:
    text = plan_text(forecast=a_forecast())
    assert "Forecast: about $12 (9 to 17), done Sat 14:00 UTC" in text
    assert "10,000 simulated futures" in text
    assert "given     10 h of training are left" in text
    assert "Forecast" not in plan_text()
    nothing = plan_text(forecast=a_forecast(text="no forecast: nobody knows", futures=0))
    assert "\nNo forecast: nobody knows." in nothing
    assert "10 h of training" not in nothing


def test_what_is_varied_is_sent_as_the_api_has_it() -> None:
    wish = variations_from("zones=1/a+b,deadline=20h/none/2026-12-01T00:00:00Z,shape=l4/a2+a3,spot=yes/no/both", NOW)
    assert wish == {
        "zones": [1, ["a", "b"]],
        "deadlines": ["2026-11-21T08:00:00+00:00", None, "2026-12-01T00:00:00Z"],
        "shapes": [["l4"], ["a2", "a3"]],
        "markets": ["spot", "on_demand", "both"],
    }


@pytest.mark.parametrize("text", ["zone=1", "zones", "zones=", "spot=maybe", "deadline=soon"])
def test_a_variation_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        variations_from(text, NOW)


def test_what_if_shows_a_row_and_a_bar_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    row = {"zones": ["a"], "deadline": None, "shapes": [], "market": "spot", "refused": None, "forecast": a_forecast()}
    dear = {**row, "market": "on_demand", "forecast": a_forecast(24.0, deadline_kept=0.979)}
    refused = {**row, "market": "both", "forecast": None, "refused": "that is not allowed."}
    show_what_if({"rows": [row, dear, refused]}, {"markets": ["spot", "on_demand", "both"]}, "")
    title, first, second, third, reason = click.unstyle(capsys.readouterr().out).splitlines()
    assert title.split()[:3] == ["SPOT", "COST", "ABOUT"]
    assert title.endswith("$36.00")
    assert "$12.00 ($9.00 to $18.00)" in first
    assert "2026-11-21 14:00Z (p90 never)" in first
    assert first.rstrip().endswith("|-O----|")
    assert "97 %" in second
    assert second.index("|") > first.index("|")
    assert len(second) == len(title), "the dearest p90 is the whole width"
    assert "|" not in third
    assert reason == "No figure: that is not allowed."


def test_the_picture_has_each_range_and_the_deadline_and_says_them_in_words() -> None:
    row = {"zones": ["a<b"], "deadline": None, "shapes": [], "market": "spot", "refused": None}
    spot = {**row, "forecast": a_forecast()}
    sure = {"p10": "2026-11-21T10:00:00Z", "p50": "2026-11-21T12:00:00Z", "p90": "2026-11-21T20:00:00Z"}
    due = {**row, "deadline": "2026-11-21T20:00:00Z", "market": "on_demand", "forecast": a_forecast(24.0, ends_at=sure)}
    refused = {**row, "market": "both", "forecast": None, "refused": "that is not allowed."}
    drawn = ElementTree.fromstring(picture([spot, due, refused], {"zones": [], "markets": []}))  # noqa: S314 - our own
    assert [each.tag.rpartition("}")[2] for each in drawn][:2] == ["title", "desc"]
    assert drawn.get("aria-labelledby") == "title description"
    words = drawn[1].text or ""
    assert "zones a<b, spot yes: cost $12.00 ($9.00 to $18.00), done 2026-11-21 14:00Z (p90 never)" in words
    assert "deadline 2026-11-21 20:00Z" in words
    assert "spot both: no figure, that is not allowed" in words

    def lines(kind: str) -> list[tuple[float, float]]:
        return [(float(each.get("x1", "")), float(each.get("x2", ""))) for each in drawn if each.get("class") == kind]

    dots = [float(each.get("cx", "")) for each in drawn if each.get("class") == "middle"]
    cost, end, dear, late = lines("range")
    assert (cost, dear) == ((370.0, 450.0), (450.0, 610.0)), "of $36, between 290 and 610"
    assert end == (735.0, 960.0), "an end that is never reached goes on to the edge"
    assert late == (660.0, 960.0)
    assert dots == [396.7, 780.0, 503.3, 720.0]
    assert lines("deadline") == [(960.0, 960.0)]


def test_the_picture_is_written_beside_the_table(api, spot, tmp_path: Path) -> None:
    api.respond("GET", "/v1/meta", {"provider": "gce"})
    row = {"zones": [], "deadline": None, "shapes": [], "market": "spot", "refused": None, "forecast": a_forecast()}
    api.respond("POST", "/v1/what-if", {"rows": [row]})
    file = tmp_path / "what-if.svg"
    ended = spot("plan", "--what-if", "spot=yes", "--svg", str(file), "--", "x")
    assert ended.code == 0, ended.err
    assert "$12.00" in ended.out
    assert "spot yes: cost $12.00" in file.read_text()
    lost = spot("plan", "--what-if", "spot=yes", "--svg", str(tmp_path / "no" / "x.svg"), "--", "x")
    assert "cannot be written: No such file or directory" in lost.err
    assert "give both" in spot("plan", "--svg", str(file), "--", "x").err
