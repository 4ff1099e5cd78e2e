"""The list of the 73 traps is complete, and what it names exists."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

from supervisor.contract.stores.folder import FolderStore
from supervisor.domain.diagnosis.evidence import NAMES
from supervisor.host import operations
from supervisor.lifecycle.diagnosis.rules.table import LIVING, RULES
from tests.diagnosis.cases import CORPUS
from tests.diagnosis.gotchas import GOTCHAS, IDS, WAITING, WRITTEN, Negative, Open, Page, Prevented
from tests.diagnosis.mutations import fed

ROOT = Path(__file__).parents[2]
DIAGNOSIS = ROOT / "supervisor" / "lifecycle" / "diagnosis"


def test_each_of_the_73_has_a_place() -> None:
    assert len(IDS) == len(set(IDS)) == 73
    assert list(GOTCHAS) == list(IDS)
    assert all(GOTCHAS.values())


def test_what_is_open_says_why_and_has_no_rule_that_would_close_it() -> None:
    for gotcha, places in GOTCHAS.items():
        reasons = [place.why for place in places if isinstance(place, Open)]
        assert len(reasons) <= 1, gotcha
        assert all(reasons), gotcha


def test_their_places_exist() -> None:
    for place in (place for places in GOTCHAS.values() for place in places):
        match place:
            case Negative(cases):
                assert list(CORPUS.glob(f"{cases}*/expected.json")), place
            case Prevented(path, test):
                assert f"def {test}(" in (ROOT / path).read_text(), place
            case Page(path, words):
                assert words in " ".join((ROOT / path).read_text().split()), place


def test_each_item_that_a_rule_reads_has_a_writer_or_a_reason() -> None:
    """No rule waits unnoticed for what nothing writes: its trap would count as covered."""
    read = _names_read()
    assert read - {*WRITTEN, *WAITING} == set(), "read by a rule: who writes it?"
    assert {*WRITTEN, *WAITING} - read == set(), "no rule reads it"
    assert not {*WRITTEN} & {*WAITING}
    assert set(WRITTEN) <= fed(), "no reader of beats and documents makes it"
    missing = [name for name, (path, words) in WRITTEN.items() if words not in (ROOT / path).read_text()]
    assert not missing, "its writer does not write it any more"


def _names_read() -> set[str]:
    """The items that stand in the code of the rules and their signs, and those that their signs declare."""
    signs = {name for rule in (*RULES, *LIVING) for sign in (*rule.requires, *rule.excludes) for name in sign.reads}
    files = [DIAGNOSIS / f"{name}.py" for name in ("signs", "machine_signs", "word_signs", "remedies", "diagnose")]
    nodes = [
        node for path in (*files, *(DIAGNOSIS / "rules").glob("*.py")) for node in ast.walk(ast.parse(path.read_text()))
    ]
    return signs | {str(node.value) for node in nodes if isinstance(node, ast.Constant) and node.value in NAMES}


# --- two contracts of the list ----------------------------------------------------------------------------------------


def test_launch_and_release_are_two_operations_of_the_host() -> None:
    """U4: a command that ends a process must never contain the one that starts the next: it would end itself."""
    launch, release, kill = (
        inspect.getsource(getattr(operations.Host, name)) for name in ("launch", "release", "kill")
    )
    assert "_machines.launch)(" in launch
    assert not any(word in release + kill for word in ("_machines.launch", "_machines.start_again"))
    assert not any(word in launch for word in ("_machines.release(", "_machines.kill(", "os.kill"))


def test_a_transfer_makes_the_folder_of_its_target(tmp_path: Path) -> None:
    """U13: no transfer relies on a folder that an earlier step made."""
    store = FolderStore.create(tmp_path / "objects")
    source = tmp_path / "source"
    source.write_bytes(b"weights")
    store.put_file("runs/a/b/c/d/model.bin", source)
    assert store.get("runs/a/b/c/d/model.bin")[0] == b"weights"
    store.delete("runs/a/b/c/d/model.bin")
    store.put("runs/a/b/c/e/model.bin", b"again")
    assert store.get("runs/a/b/c/e/model.bin")[0] == b"again"
