"""A new provider is one file and one line: the paper provider through a real daemon, from submit to completed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.domain.errors import SettingsRefused
from supervisor.providers.kinds import PROVIDERS
from supervisor.wiring import settings as wired
from tests.acceptance.daemon import QUICK, Daemon
from tests.paper import provider as paper

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MAX_LINES = 150
SECTION = '[providers.mill]\nkind = "paper"\ntrays = ["tray-7"]\nshapes = ["a4", "a3"]\n'
TRAINING = "import os, pathlib; pathlib.Path(os.environ['SPOT_RESULTS_DIR'], 'result.txt').write_text('done')"


class PaperDaemon(Daemon):
    module = "tests.paper"


@pytest.fixture
def mill(tmp_path: Path) -> Iterator[PaperDaemon]:
    file = tmp_path / "spot.toml"
    file.write_text(SECTION, encoding="utf-8")
    daemon = PaperDaemon(tmp_path / "data", {**QUICK, "SPOT_CONFIG": str(file), "SPOT_INSECURE_LOOPBACK": "true"})
    with daemon.http:
        daemon.start()
        yield daemon
        daemon.kill()


def test_it_is_short_and_one_line_registers_it() -> None:
    source = (HERE / "provider.py").read_text(encoding="utf-8")
    assert len(source.splitlines()) <= MAX_LINES
    door = (HERE / "__main__.py").read_text(encoding="utf-8").splitlines()
    assert [line for line in door if "PROVIDERS[" in line] == ['PROVIDERS["paper"] = paper.KIND']


def test_nothing_of_the_house_names_it() -> None:
    named = [
        path
        for path in (ROOT / "supervisor").rglob("*.py")
        if "tests.paper" in (text := path.read_text(encoding="utf-8")) or '"paper"' in text
    ]
    assert named == []


def test_from_submit_to_completed(mill: PaperDaemon) -> None:
    mill.submit("essay", command=[sys.executable, "-c", TRAINING], results=[{"path": "result.txt"}])
    run = mill.wait_status("essay", "completed", "failed", "partial")
    assert run["status"] == "completed"
    (attempt,) = mill.call("GET", "/v1/runs/essay/attempts")["attempts"]
    place = attempt["placement"]
    assert (place["provider"], place["region"], place["zone"], place["shape"]) == ("mill", "mill", "tray-7", "a4")
    assert run["cost"]["known"]


def test_what_people_see_of_it(mill: PaperDaemon) -> None:
    (shown,) = mill.call("GET", "/v1/providers")["providers"]
    assert (shown["name"], shown["kind"], shown["title"]) == ("mill", "paper", "Paper mill")
    assert shown["places"] == [{"region": "mill", "zone": "tray-7", "shapes": ["a4", "a3"], "profile": None}]
    assert [verb["verb"] for verb in shown["profile"]["verbs"]] == ["throw away"]
    assert shown["listing_read"] is True

    prices = {each["shape"]: each for each in mill.call("GET", "/v1/prices")["prices"]}
    assert (prices["a3"]["spot_usd_per_h"], prices["a3"]["source"]) == (0.20, "mill")
    assert mill.call("POST", "/v1/prices/refresh", {})["changed"] == []

    report = mill.call("GET", "/v1/doctor")
    lines = {line["name"]: line for line in report["checks"]}
    assert (lines["stock"]["fact"], lines["stock"]["group"]) == ("0 of 2 sheets are written on", "paper")
    assert report["groups"] == {"paper": "Paper mill"}
    assert lines["settings"]["fact"].startswith("machines are sheets of paper in tray-7")

    for page in ("/ui/machines", "/ui/system"):
        assert mill.http.get(mill.url + page).status_code == 200, page
    assert "tray-7" in mill.http.get(f"{mill.url}/ui/zones").text
    assert "until the supervisor ends it (throw away)" in mill.http.get(f"{mill.url}/ui/providers").text


def test_the_command_line_knows_its_settings_and_names_a_close_miss(tmp_path: Path) -> None:
    def spot(text: str, *words: str) -> subprocess.CompletedProcess[str]:
        file = tmp_path / "spot.toml"
        file.write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "tests.paper", *words, "--config", str(file)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)

    rows = json.loads(spot(SECTION, "config", "show", "--origin", "-o", "json").stdout)
    assert rows["paper_sheets"] == {"value": 2, "origin": "default"}
    assert rows["providers.mill.paper_trays"]["value"] == ["tray-7"]
    refused = spot('[providers.mill]\nkind = "papper"\n', "config", "show")
    kinds = "local or gce or ssh or slurm or kubernetes or kaggle or colab or paper"
    assert f"kind = papper: expected {kinds}; did you mean paper?" in refused.stderr
    refused = spot(SECTION + "prices = {a5 = [1, 2]}\n", "config", "show")
    assert "[providers.mill]: paper_prices names a5, which is not one of paper_shapes (a4, a3)" in refused.stderr


def test_its_settings_are_variables_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(PROVIDERS, "paper", paper.KIND)
    environ = {"HOME": str(tmp_path), "SPOT_PROVIDER": "paper", "SPOT_PAPER_SHEETS": "3"}
    known = wired.load(environ=environ)
    assert (known.provider, known.sections["paper"].values.paper_sheets) == ("paper", 3)
    with pytest.raises(SettingsRefused, match="SPOT_PAPER_SHEET is not a setting; did you mean SPOT_PAPER_SHEETS"):
        wired.load(environ={**environ, "SPOT_PAPER_SHEET": "1"})
