"""Results on their way out: proved by loading them, pulled by clients that are cut off, and waited for by machines.

Everything is real: supervisor, agents, the folder store, and `spot pull` as a process of its own.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.contract import runfiles
from tests import forked
from tests.acceptance.daemon import Daemon
from tests.acceptance.stories import Stories, pids_of, stories
from tests.waiting import wait_for

WRITES = 'cd "$SPOT_RESULTS_DIR"; printf "good" > model.npz; mkdir plots; echo a > plots/a.png'
LOADS = 'grep -q good "$SPOT_RESULTS_DIR/model.npz"'
BIG = 24 << 20  # bytes of a file that takes long enough to be cut off


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stories]:
    with stories(tmp_path_factory.mktemp("results")) as found:
        yield found


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """The folder of a person who pulls."""
    return tmp_path / "mine"


SLOWLY = (
    "import time; from supervisor.cli.files import fetching, pulling; fetching.CHUNK_BYTES = 65536; "
    "plain = pulling.Part.write; pulling.Part.write = lambda part, chunk: (time.sleep(0.01), plain(part, chunk))[1]; "
    "from supervisor.cli.main import main; main()"
)


def users_environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("SPOT_")}


def spawn_slow_pull(daemon: Daemon, *words: str) -> subprocess.Popen[bytes]:
    """It reads a few kilobytes at a time, so that a story can cut it off in the middle of a file."""
    command = [sys.executable, "-c", SLOWLY, "pull", *words, "--data-dir", str(daemon.data_dir)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=users_environ())


def pull(daemon: Daemon, *words: str) -> tuple[int, str, str]:
    """(exit code, last line, standard error)."""
    done = forked.spot("pull", *words, "--data-dir", str(daemon.data_dir), environ=users_environ())
    return done.returncode, done.stdout.splitlines()[-1] if done.stdout else "", done.stderr


def unverified(house: Stories, run_id: str) -> Any:
    """The run once a person is asked."""

    def asked() -> Any:
        run = house.daemon.run(run_id)
        return run if run["needs_person"] else None

    return house.until(asked, 60, f"{run_id} to need a person")


def give_up(house: Stories, run_id: str) -> None:
    wish = {"machine_id": house.daemon.run(run_id)["machine_id"], "accept_loss": "not needed"}
    assert house.post(f"/v1/runs/{run_id}/approve", wish).status_code == 202
    run = house.wait(run_id, "failed")
    assert run["cause"] == "results_unverified"
    house.nothing_is_left(run_id)


# --- proof by load ----------------------------------------------------------------------------------------------------


def test_results_that_load_complete_the_run(house: Stories) -> None:
    results = [{"path": "model.npz", "verify": LOADS + " && echo loaded well"}]
    house.daemon.submit("loads", command=WRITES, results=results)
    run = house.wait("loads", "completed", "failed", "partial")
    assert (run["status"], run["results"]["files"]) == ("completed", 2)
    assert house.log("loads").splitlines()[-1] == "loaded well"
    house.nothing_is_left("loads")


def test_too_few_results_are_partial_and_what_is_there_is_loaded(house: Stories) -> None:
    results = [{"path": "model.npz", "verify": LOADS}, {"path": "plots/*.png", "min_count": 3, "verify": "true"}]
    house.daemon.submit("few", command=WRITES, results=results)
    run = house.wait("few", "completed", "failed", "partial")
    assert (run["status"], run["results"]["missing"]) == ("partial", ["results plots/*.png: 1 of 3 files"])
    house.nothing_is_left("few")


def test_no_results_at_all_are_partial(house: Stories) -> None:
    house.daemon.submit("none", command="true", results=[{"path": "model.npz", "verify": "exit 1"}])
    run = house.wait("none", "completed", "failed", "partial")
    assert (run["status"], run["results"]["missing"]) == ("partial", ["results model.npz: 0 of 1 file"])
    house.nothing_is_left("none")


def test_results_that_do_not_load_are_for_a_person(house: Stories) -> None:
    results = [{"path": "model.npz", "verify": "echo 'not a zip file'; exit 2"}]
    house.daemon.submit("rotten", command=WRITES, results=results)
    run = unverified(house, "rotten")
    assert run["status"] == "finishing"
    assert "verify of model.npz ended with exit code 2: not a zip file" in run["needs_person"]
    assert pids_of(house.machine("rotten").name), "the machine is kept"
    assert house.log("rotten").count("not a zip file\n") == 3
    give_up(house, "rotten")


def test_results_that_change_in_the_store_after_their_upload_are_for_a_person(house: Stories) -> None:
    """The check itself is the vandal: it runs when everything is uploaded and not yet declared."""
    key = house.objects / runfiles.results("changed", 1) / "plots" / "a.png"
    results = [{"path": "model.npz", "verify": f"echo b > '{key}'"}]
    house.daemon.submit("changed", command=WRITES, results=results)
    run = unverified(house, "changed")
    assert "plots/a.png" in run["needs_person"]
    give_up(house, "changed")


# --- working state ----------------------------------------------------------------------------------------------------


def test_rows_that_are_appended_over_a_preemption_are_all_there_once(house: Stories, mine: Path) -> None:
    house.train("rows", "--rows")
    house.saved("rows", 6)
    code, _, err = pull(house.daemon, "rows", str(mine / "early"))
    assert code == 1
    assert "`spot pull rows --partial`" in err
    code, last, err = pull(house.daemon, "rows", str(mine / "early"), "--partial")
    assert (code, last) == (0, "OK 1/1, errors 0"), err
    assert "partial: they are not verified, and were saved in attempt 1 at step" in err
    assert house.post("/v1/dev/preempt", {"run_id": "rows", "notice_s": 0}).status_code == 200
    house.ended("rows")
    house.trains("rows", beyond=9)
    house.completes("rows")
    assert pull(house.daemon, "rows", str(mine / "late"))[:2] == (0, "OK 2/2, errors 0")
    steps = int((next((mine / "late").rglob("out.txt"))).read_text().split()[0])
    found = (next((mine / "late").rglob("metrics.csv"))).read_text().split()
    assert found == [str(number) for number in range(1, steps + 1)]
    early = (next((mine / "early").rglob("metrics.csv"))).read_text().split()
    assert found[: len(early)] == early


def test_a_run_that_was_stopped_leaves_its_newest_results_to_people(house: Stories, mine: Path) -> None:
    house.train("left-rows", "--rows")
    house.saved("left-rows", 3)
    assert house.post("/v1/runs/left-rows/stop").status_code == 202
    house.wait("left-rows", "stopped")
    assert pull(house.daemon, "left-rows", str(mine), "--partial")[0] == 0
    found = (next(mine.rglob("metrics.csv"))).read_text().split()
    assert found == [str(number) for number in range(1, len(found) + 1)]
    assert len(found) >= 3


# --- pulls ------------------------------------------------------------------------------------------------------------


def big_run(house: Stories, run_id: str, **spec: Any) -> bytes:
    """A run with one big file and a small one; the big one's sha256."""
    command = (
        f"import os, pathlib; folder = pathlib.Path(os.environ['SPOT_RESULTS_DIR']); "
        f"(folder / 'big.bin').write_bytes(os.urandom({BIG})); (folder / 'small.txt').write_text('small')"
    )
    house.daemon.submit(run_id, command=[sys.executable, "-S", "-c", command], **spec)
    house.wait(run_id, "completed", "awaiting_teardown", "failed", "partial")
    return hashlib.sha256((house.objects / runfiles.results(run_id, 1) / "big.bin").read_bytes()).digest()


def part_bytes(folder: Path) -> int:
    return max((path.stat().st_size for path in folder.glob(".spot-pull/*") if path.suffix != ".json"), default=0)


def begun(folder: Path, at_least: int = 1 << 20) -> int:
    return wait_for(lambda: size if (size := part_bytes(folder)) >= at_least else 0, 60, "a part of the big file")


def is_pulled(house: Stories, run_id: str, folder: Path, digest: bytes) -> None:
    assert hashlib.sha256((folder / "big.bin").read_bytes()).digest() == digest
    assert (folder / "small.txt").read_text() == "small"
    assert not (folder / ".spot-pull").exists()
    assert house.daemon.run(run_id)["results"]["pulled"] is True
    assert len(house.events(run_id, "results_pulled")) == 1


def test_a_pull_that_is_killed_is_gone_on_with(house: Stories, mine: Path) -> None:
    digest, folder = big_run(house, "killed"), mine
    cut = spawn_slow_pull(house.daemon, "killed", str(folder))
    try:
        begun(folder)
    finally:
        cut.kill()
        cut.communicate()
    kept = part_bytes(folder)
    assert 0 < kept < BIG
    assert not (folder / "big.bin").exists(), "nothing half has the name of a whole"
    code, last, err = pull(house.daemon, "killed", str(folder))
    assert (code, last) == (0, "OK 2/2, errors 0"), err
    is_pulled(house, "killed", folder, digest)
    code, last, _ = pull(house.daemon, "killed", str(folder))
    assert (code, last) == (0, "OK 2/2, errors 0")
    is_pulled(house, "killed", folder, digest)


def test_ctrl_c_leaves_a_pull_that_can_be_gone_on_with(house: Stories, mine: Path) -> None:
    digest, folder = big_run(house, "left"), mine
    cut = spawn_slow_pull(house.daemon, "left", str(folder))
    begun(folder)
    cut.send_signal(signal.SIGINT)
    _, err = cut.communicate(timeout=60)
    assert cut.returncode == 130
    assert "spot pull left" in err.decode()
    assert pull(house.daemon, "left", str(folder))[:2] == (0, "OK 2/2, errors 0")
    is_pulled(house, "left", folder, digest)


def test_a_supervisor_that_dies_in_the_middle_of_a_file_is_waited_for(house: Stories, mine: Path) -> None:
    digest, folder = big_run(house, "away"), mine
    going = spawn_slow_pull(house.daemon, "away", str(folder))
    try:
        kept = begun(folder)
        house.daemon.kill()
        house.daemon.start()
        assert part_bytes(folder) >= kept, "it goes on, it does not begin again"
        out, err = going.communicate(timeout=120)
    finally:
        going.kill()
        going.communicate()
    assert out.decode().splitlines()[-1:] == ["OK 2/2, errors 0"], err.decode()
    is_pulled(house, "away", folder, digest)


def test_a_file_that_changes_while_it_is_pulled_is_never_mixed(house: Stories, mine: Path) -> None:
    big_run(house, "mixed")
    folder = mine
    going = spawn_slow_pull(house.daemon, "mixed", str(folder))
    try:
        begun(folder)
        path = house.objects / runfiles.results("mixed", 1) / "big.bin"
        other = path.with_name(".other")
        other.write_bytes(bytes(BIG))
        other.rename(path)
        out, err = going.communicate(timeout=120)
    finally:
        going.kill()
        going.communicate()
    last = out.decode().splitlines()[-1]
    if (folder / "big.bin").exists():  # the old content, whole: its reader held it open
        assert last == "OK 2/2, errors 0"
        assert any((folder / "big.bin").read_bytes()[-4096:])
    else:
        assert (last, going.returncode) == ("FAILED 1/2, errors 1", 1), err.decode()
    code, last, err = pull(house.daemon, "mixed", str(mine.with_name("again")))
    assert (code, last) == (1, "FAILED 1/2, errors 1"), "what the store holds now is not what was verified"
    assert "big.bin" in err


def test_a_load_check_that_fails_is_an_error(house: Stories, mine: Path) -> None:
    house.daemon.submit("checked", command=WRITES)
    house.wait("checked", "completed")
    folder = str(mine)
    code, last, err = pull(house.daemon, "checked", folder, "--load-check", f"{LOADS}; exit 3")
    assert (code, last) == (1, "FAILED 2/2, errors 1")
    assert "exit code 3" in err
    assert house.daemon.run("checked")["results"]["pulled"] is False
    code, last, _ = pull(house.daemon, "checked", folder, "--load-check", LOADS)
    assert (code, last) == (0, "OK 2/2, errors 0")
    assert house.daemon.run("checked")["results"]["pulled"] is True


def test_every_kind_of_file_can_be_pulled(house: Stories, mine: Path) -> None:
    house.train("kinds")
    house.saved("kinds")
    house.completes("kinds")
    kinds = [word for kind in ("results", "checkpoints", "logs", "evidence") for word in ("--kind", kind)]
    code, last, err = pull(house.daemon, "kinds", str(mine), *kinds)
    assert code == 0, err
    tops = {path.name for path in mine.iterdir()}
    assert {"results", "checkpoints", "logs"} <= tops
    assert last.startswith("OK ")


# --- the teardown waits for a pull ------------------------------------------------------------------------------------


def test_a_machine_waits_until_its_results_are_pulled(house: Stories, mine: Path) -> None:
    house.daemon.submit("wanted", command=WRITES, require_pull=True)
    run = house.wait("wanted", "awaiting_teardown", "completed", "failed")
    assert run["status"] == "awaiting_teardown"
    assert "`spot pull wanted`" in run["status_text"]
    machine = house.machine("wanted").name
    refused = house.post("/v1/runs/wanted/approve", {"machine_id": run["machine_id"]})
    assert (refused.status_code, refused.json()["code"]) == (409, "PULL_REQUIRED")
    house.looks_again("wanted")
    assert house.daemon.run("wanted")["status"] == "awaiting_teardown"
    assert pids_of(machine), "the machine is still there"
    assert pull(house.daemon, "wanted", str(mine))[:2] == (0, "OK 2/2, errors 0")
    house.wait("wanted", "completed")
    house.nothing_is_left("wanted")


def test_with_ask_a_person_must_agree_after_the_pull(house: Stories, mine: Path) -> None:
    house.daemon.submit("both", command=WRITES, require_pull=True, on_success="ask")
    run = house.wait("both", "awaiting_teardown")
    assert pull(house.daemon, "both", str(mine))[:2] == (0, "OK 2/2, errors 0")
    house.looks_again("both")
    assert house.daemon.run("both")["status"] == "awaiting_teardown"
    assert "`spot approve both`" in house.daemon.run("both")["status_text"]
    wish = {"machine_id": run["machine_id"], "results_sha256": run["results_manifest_sha256"]}
    assert house.post("/v1/runs/both/approve", wish).status_code == 202
    house.wait("both", "completed")
    house.nothing_is_left("both")
