"""`spot pull`: complete and compared, or an error; nothing outside its folder; nothing fetched twice."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.cli.files import fetching, pulling
from supervisor.cli.files import pull as pull_command
from tests.cli.conftest import Ended
from tests.cli.file_server import FileServer, serving_files, sha256

MODEL, PLOT = os.urandom(3_000_000), b"plot"
HOSTILE = [
    "results/../../evil",
    "results/../evil",
    "../evil",
    "/evil",
    "results//evil",
    "results/./evil",
    "results",
    "results/g1/a\x00b",
    "results/g1/a\x1b[2Jb",
    "results/g1/" + "x" * 300,
    "elsewhere/evil",
    ".spot-pull/evil",
]


@pytest.fixture
def house(clean: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setattr(fetching, "BACKOFFS_S", (0.0, 0.0))
    with serving_files() as files:
        files.files = {"results/g1/model.npz": MODEL, "results/g1/plots/a.png": PLOT, "logs/a1/0.log": b"line\n"}
        yield files


@pytest.fixture
def pull(
    house: FileServer, run_cli: Callable[..., Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Ended]:
    monkeypatch.setenv("SPOT_URL", house.url)

    def run(*words: str) -> Ended:
        return run_cli("pull", "digits-7", str(tmp_path / "mine"), *words)

    return run


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return tmp_path / "mine"


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def test_results_are_fetched_compared_and_noted(house: FileServer, pull: Any, mine: Path) -> None:
    ended = pull()
    assert (ended.code, ended.lines, ended.err) == (0, ["OK 2/2, errors 0"], "")
    assert files_in(mine) == [".spot-pulled", "model.npz", "plots/a.png"]
    assert (mine / "model.npz").read_bytes() == MODEL
    assert house.noted == [{"results_sha256": house.results_sha256, "files": 2}]
    assert not (mine / pulling.PARTS).exists()


def test_what_is_there_is_not_fetched_again(house: FileServer, pull: Any, mine: Path) -> None:
    pull()
    house.sent.clear()
    (mine / "plots/a.png").write_bytes(b"edit")
    ended = pull()
    assert (ended.code, ended.lines[-1]) == (0, "OK 2/2, errors 0")
    assert [name for name, *_ in house.sent] == ["results/g1/plots/a.png"]
    assert (mine / "plots/a.png").read_bytes() == PLOT


def test_other_kinds(house: FileServer, pull: Any, mine: Path) -> None:
    assert pull("--kind", "logs").lines == ["OK 1/1, errors 0"]
    assert files_in(mine) == [".spot-pulled", "logs/a1/0.log"]
    assert house.noted == [], "only results are a pull that frees a machine"
    ended = pull("--kind", "code")
    assert (ended.code, ended.lines) == (5, [])
    assert "digits-7 has no code now: nothing was fetched.     (NOTHING_TO_PULL)" in ended.err


def test_a_broken_connection_is_continued(house: FileServer, pull: Any, mine: Path) -> None:
    house.cut["results/g1/model.npz"] = [1_000_000, 1_500_000]
    house.away["results/g1/plots/a.png"] = 2
    assert pull().lines == ["OK 2/2, errors 0"]
    assert house.bytes_of("results/g1/model.npz") == len(MODEL), "not a byte twice"
    assert (mine / "model.npz").read_bytes() == MODEL


def test_the_next_pull_continues_a_failed_one(house: FileServer, pull: Any, mine: Path) -> None:
    house.cut["results/g1/model.npz"] = [1_000_000, *[0] * 3]
    ended = pull()
    assert (ended.code, ended.lines[-1]) == (1, "FAILED 1/2, errors 1")
    assert "results/g1/model.npz" in ended.err
    assert house.noted == []
    assert files_in(mine / "plots") == ["a.png"]
    assert not (mine / "model.npz").exists(), "nothing half has the name of a whole"
    house.cut.clear()
    assert pull().lines[-1] == "OK 2/2, errors 0"
    assert house.bytes_of("results/g1/model.npz") == len(MODEL)


def test_a_part_of_another_content_is_not_continued(house: FileServer, pull: Any, mine: Path) -> None:
    house.cut["results/g1/model.npz"] = [1_000_000, *[0] * 3]
    pull()
    other = house.files["results/g1/model.npz"] = os.urandom(2_000_000)
    assert pull().lines[-1] == "OK 2/2, errors 0"
    assert (mine / "model.npz").read_bytes() == other


def test_what_does_not_compare_is_fetched_once_again_then_refused(house: FileServer, pull: Any, mine: Path) -> None:
    house.served["results/g1/model.npz"] = bytes(len(MODEL))
    ended = pull()
    assert (ended.code, ended.lines[-1]) == (1, "FAILED 1/2, errors 1")
    assert "sha256" in ended.err
    assert [begin for name, begin, _ in house.sent if name == "results/g1/model.npz"] == [0, 0]
    assert files_in(mine / "plots") == ["a.png"]
    assert not (mine / "model.npz").exists()
    house.served["results/g1/model.npz"] = MODEL + b"more"
    ended = pull()
    assert ended.code == 1
    assert "3000004 bytes where the list says 3000000" in ended.err


@pytest.mark.parametrize("path", HOSTILE)
def test_hostile_names_are_refused(house: FileServer, pull: Any, mine: Path, tmp_path: Path, path: str) -> None:
    before = files_in(tmp_path)
    entry = {"path": path, "kind": "results", "size": 7, "sha256": sha256(b"hostile"), "updated": None}
    good = {"path": "results/g1/plots/a.png", "kind": "results", "size": 4, "sha256": sha256(PLOT)}
    house.listed = [entry, good]
    ended = pull()
    assert (ended.code, ended.lines[-1]) == (1, "FAILED 1/2, errors 1")
    assert "\x1b[2J" not in ended.err
    assert set(files_in(tmp_path)) - set(before) == {"mine/plots/a.png", "mine/.spot-pulled"}
    assert house.noted == []


def test_a_pull_that_trusts_names_would_be_seen(
    house: FileServer, pull: Any, mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken variant: names are only split."""
    monkeypatch.setattr(pulling, "parts_of", lambda file: file.path.split("/"))
    path = "results/../../evil"
    house.listed = [{"path": path, "kind": "results", "size": 7, "sha256": sha256(b"hostile")}]
    pull()
    assert (tmp_path / "evil").exists()


def test_links_in_the_folder_are_not_followed(house: FileServer, pull: Any, mine: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.png").write_bytes(b"keep")
    mine.mkdir()
    (mine / "plots").symlink_to(outside)
    (mine / "model.npz").symlink_to(outside / "a.png")
    ended = pull()
    assert (ended.code, ended.lines[-1]) == (1, "FAILED 1/2, errors 1")
    assert "is a link or a file, not a folder" in ended.err
    assert (outside / "a.png").read_bytes() == b"keep"
    assert files_in(outside) == ["a.png"]
    assert not (mine / "model.npz").is_symlink()
    assert (mine / "model.npz").read_bytes() == MODEL


def test_a_load_check_decides(house: FileServer, pull: Any, mine: Path) -> None:
    ended = pull("--load-check", "test -s model.npz && test -s $SPOT_RESULTS_DIR/plots/a.png")
    assert ended.lines[-1] == "OK 2/2, errors 0"
    house.noted.clear()
    ended = pull("--load-check", "echo broken >&2; exit 4")
    assert (ended.code, ended.lines[-1]) == (1, "FAILED 2/2, errors 1")
    assert "--load-check ended with exit code 4" in ended.err
    assert house.noted == []


def test_a_pull_that_is_not_noted_is_no_complete_pull(house: FileServer, pull: Any) -> None:
    house.refuse_note = True
    ended = pull()
    assert (ended.code, ended.lines[-1]) == (1, "FAILED 2/2, errors 1")
    assert "other results" in ended.err


def test_unverified_results_are_fetched_only_with_partial(house: FileServer, pull: Any, mine: Path) -> None:
    house.verified = False
    ended = pull()
    assert ended.code == 1
    assert "RESULTS_PARTIAL" in ended.err
    assert "`spot pull digits-7 --partial`" in ended.err
    assert not mine.exists()
    assert pull("--kind", "logs").lines[-1] == "OK 1/1, errors 0"


def test_results_that_a_live_run_saves_during_the_pull_are_fetched_by_a_newer_list(
    house: FileServer, pull: Any, mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.verified = False
    older = {"path": "results/g1/plots/a.png", "kind": "results", "size": 3, "sha256": sha256(b"plo"), "updated": None}
    house.older_lists = [[older], [older]]
    ended = pull("--partial")
    assert (ended.code, ended.lines[-1]) == (0, "OK 2/2, errors 0"), ended.err
    assert (mine / "plots" / "a.png").read_bytes() == PLOT
    house.older_lists = [[older]] * 2
    monkeypatch.setattr(pull_command, "LISTS", 1)
    ended = pull("--partial")
    assert (ended.code, ended.lines[-1]) == (1, "FAILED 0/1, errors 1")
    assert "4 bytes where the list says 3" in ended.err


def test_partial_results_are_fetched_with_a_sentence_and_without_a_note(house: FileServer, pull: Any) -> None:
    house.verified = False
    left = [{"name": "big.bin", "why": "300 bytes is more than is left of results_save_max_mb"}]
    house.partial = {"attempt": 2, "step": 1200, "left_out": left}
    ended = pull("--partial")
    assert ended.lines[-1] == "OK 2/2, errors 0"
    assert (
        "The results of digits-7 are partial: they are not verified, and were saved in attempt 2 at step 1,200. "
        "They lack what was written later." in ended.err
    )
    assert "big.bin: 300 bytes is more" in ended.err
    assert house.noted == []


def test_a_growing_log_is_taken_as_it_is(house: FileServer, pull: Any, mine: Path) -> None:
    house.listed = [{"path": "logs/a1/0.log", "kind": "logs", "size": 2, "sha256": None, "updated": None}]
    assert pull("--kind", "logs").lines == ["OK 1/1, errors 0"]
    assert (mine / "logs/a1/0.log").read_bytes() == b"line\n"


def test_a_log_that_was_cut_off_after_its_last_byte_is_fetched_again(house: FileServer, pull: Any, mine: Path) -> None:
    entry = {"path": "logs/a1/0.log", "kind": "logs", "size": 5, "sha256": None, "updated": None}
    house.listed = [entry]
    into = pulling.Destination(mine)
    part = into.part(pulling.wanted(entry, ["logs"]))
    part.restart(f'"{sha256(house.files["logs/a1/0.log"])[:8]}"')
    part.write(b"line\n")
    part.close()
    into.close()
    assert pull("--kind", "logs").lines == ["OK 1/1, errors 0"]
    assert (mine / "logs/a1/0.log").read_bytes() == b"line\n"


@pytest.mark.parametrize("note", ["[" * 100_000, '{"tag": "x\\r\\nHost: y", "size": 5, "sha256": null}', "7"])
def test_a_part_with_a_torn_note_is_not_continued(house: FileServer, pull: Any, mine: Path, note: str) -> None:
    name = hashlib.sha256(b"logs/a1/0.log").hexdigest()
    (mine / pulling.PARTS).mkdir(parents=True)
    (mine / pulling.PARTS / name).write_bytes(b"oth")
    (mine / pulling.PARTS / f"{name}.json").write_text(note)
    house.listed = [{"path": "logs/a1/0.log", "kind": "logs", "size": 5, "sha256": None, "updated": None}]
    assert pull("--kind", "logs").lines == ["OK 1/1, errors 0"]
    assert (mine / "logs/a1/0.log").read_bytes() == b"line\n"


def test_two_pulls_into_one_folder(house: FileServer, pull: Any, mine: Path) -> None:
    held = pulling.Destination(mine)
    try:
        ended = pull()
    finally:
        held.close()
    assert ended.code == 1
    assert "another pull into this folder is running" in ended.err


def kind_of(path: str) -> dict[str, Any]:
    return {"path": path, "kind": path.split("/", maxsplit=1)[0], "size": 7, "sha256": sha256(b"hostile")}


@pytest.mark.parametrize("listed", [
    [{"path": 7}], [{}], [None], [{"path": "results/a", "kind": "results", "size": -1}],
    [kind_of(".ssh/authorized_keys")], [kind_of(".spot-pull/a")], [kind_of("logs/a1/0.log")],
])  # fmt: skip
def test_a_list_that_makes_no_sense(house: FileServer, pull: Any, mine: Path, listed: Any) -> None:
    house.listed = listed
    house.served = {".ssh/authorized_keys": b"hostile", ".spot-pull/a": b"hostile", "logs/a1/0.log": b"hostile"}
    ended = pull()
    assert ended.code == 1
    assert files_in(mine) == []
    assert "NOT_A_SUPERVISOR" in ended.err


def test_a_run_without_files(house: FileServer, pull: Any, mine: Path) -> None:
    house.files, house.verified = {}, False
    ended = pull("--kind", "results", "--kind", "logs")
    assert (ended.code, ended.lines) == (5, []), "a script must not take it for a pull"
    assert "error: digits-7 has no results and no logs now: nothing was fetched.     (NOTHING_TO_PULL)" in ended.err
    assert not mine.exists()
    assert house.noted == []


def test_a_run_that_was_verified_without_results_is_noted_as_pulled(house: FileServer, pull: Any) -> None:
    """With require_pull its machine waits for that."""
    house.files = {}
    assert pull().code == 5
    assert house.noted == [{"results_sha256": house.results_sha256, "files": 0}]


def test_several_generations_keep_their_folders(house: FileServer, pull: Any, mine: Path) -> None:
    house.files["results/g10/model.npz"] = b"newest"
    house.files["results/g9/model.npz"] = b"older"
    house.verified = False
    assert pull("--partial", "--load-check", 'grep -q newest "$SPOT_RESULTS_DIR/model.npz"').lines == [
        "OK 4/4, errors 0"
    ]
    assert files_in(mine) == [
        ".spot-pulled", "g1/model.npz", "g1/plots/a.png", "g10/model.npz", "g9/model.npz",
    ]  # fmt: skip


def test_results_beside_other_kinds_keep_their_paths(house: FileServer, pull: Any, mine: Path) -> None:
    house.files["results/g1/logs/a1/0.log"] = b"of the training itself"
    assert pull("--kind", "results", "--kind", "logs").lines == ["OK 4/4, errors 0"]
    assert (mine / "logs/a1/0.log").read_bytes() == b"line\n"
    assert (mine / "results/g1/logs/a1/0.log").read_bytes() == b"of the training itself"


def test_a_result_with_the_name_of_our_own_files_does_no_harm(house: FileServer, pull: Any, mine: Path) -> None:
    house.files |= {"results/g1/.spot-pull/x": b"odd", "results/g1/.spot-pulled": b"odd too"}
    assert pull().lines == ["OK 4/4, errors 0"]
    assert (mine / "results/g1/.spot-pull/x").read_bytes() == b"odd"
    assert (mine / ".spot-pulled").read_bytes() == b""


def test_a_folder_of_the_person_is_not_marked_as_results(house: FileServer, pull: Any, mine: Path) -> None:
    """What is marked is left out of code bundles."""
    mine.mkdir()
    (mine / "train.py").write_text("code\n")
    assert pull().lines == ["OK 2/2, errors 0"]
    assert files_in(mine) == ["model.npz", "plots/a.png", "train.py"]


def test_ctrl_c_prints_the_command_that_continues(
    house: FileServer, pull: Any, mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pull_command._Pull, "run", leave)
    ended = pull()
    assert ended.code == 130
    assert ended.err.splitlines()[-1].endswith(f": spot pull digits-7 {mine}")


def test_a_file_in_the_place_of_the_folder(house: FileServer, pull: Any, mine: Path) -> None:
    mine.write_text("mine")
    ended = pull()
    assert ended.code == 1
    assert f"Nothing was fetched into {mine}: that is a file, not a folder." in ended.err
    assert mine.read_text() == "mine"


def test_an_empty_folder_name_is_a_mistake(house: FileServer, run_cli: Any) -> None:
    assert run_cli("pull", "digits-7", "").code == 2
