"""A run's files are deleted by two alone: the agent (what the baton does not name) and a person's purge. Where an agent
works in a folder on its host, the mirror follows its deletions; where it works with a pass, the door carries them out.

Found by reading the code: every call of a method named `delete`, but for database statements and routes.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "supervisor"
# Where it is called -> what is deleted there.
ALLOWED = {
    "agent/checkpoints/pruning.py": "checkpoints that the baton does not name",
    "agent/checkpoints/resultsaver.py": "saved results that no manifest of the baton names",
    "objectstores/mirror.py": "the copies of what the baton on a host does not name; the beat of a run that is over",
    "objectstores/relay.py": "the copy of a stop marker on a host; else hands on to the store",
    "host/stays.py": "is a store: for the supervisor, on a host",
    "services/bases/working.py": "images of bases, no objects",
    "services/access/claims.py": "claims of launches that are released, and of a run that is purged",
    "api/routes/door.py": "what an agent deletes of its own run",
    "services/runs/purge.py": "everything of a run, for a person",
    "services/doctor/state.py": "the object that it has just written to see whether it can",
    "services/runs/synced.py": "deltas of a run's code that were merged into one",
    "services/runs/orders.py": "the oldest results of a run's commands",
    "services/runs/changing.py": "the stop marker that a resume has used up",
    "wiring/trial_cloud.py": "everything below the prefix that `spot trial` made for itself",
    "reconciler/acting/endings.py": "the beat of a run that is settled",
    "agent/life/beats.py": "the beat of the boot, when the agent itself beats",
    "agent/store/gcs.py": "is a store: takes back what arrived damaged",
    "providers/colab/kept.py": "the launch of a session that is released",
    "providers/gce/machines/releasing.py": "machines, no objects",
    "providers/kubernetes/provider.py": "Jobs, no objects",
    "agent/store/access.py": "passes the call to the store, and notes whether it responds",
    "images/cloud_build.py": "the sources of one build, which it has put there itself",
    "objectstores/gcs/store.py": "is a store: through Google's client",
    "objectstores/counted.py": "hands on to the store, and counts it",
}
# A statement for the database, and a route for the method DELETE.
OTHERS = ("sa.delete", "sqlalchemy.delete", "router.delete")


def callers(text: str) -> list[str]:
    """`receiver.delete` of each call in this source."""
    receivers = []
    for node in ast.walk(ast.parse(text)) if "delete" in text else ():
        function = node.func if isinstance(node, ast.Call) else None
        if isinstance(function, ast.Attribute) and function.attr == "delete":
            receivers.append(ast.unparse(function))
        # Passed to a function that calls it.
        if isinstance(node, ast.Call):
            arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
            receivers += [ast.unparse(a) for a in arguments if isinstance(a, ast.Attribute) and a.attr == "delete"]
    return [receiver for receiver in receivers if receiver not in OTHERS]


def test_no_other_module_deletes_objects() -> None:
    calls_of = {}
    for path in sorted(ROOT.rglob("*.py")):
        calls = callers(path.read_text())
        if calls:
            calls_of[path.relative_to(ROOT).as_posix()] = calls
    assert set(calls_of) == set(ALLOWED), calls_of


@pytest.mark.parametrize(
    "text", ["store.delete(key)", "self._objects.delete(key, if_generation=g)", "for_each(keys, store.delete)"]
)
def test_a_new_caller_would_be_found(text: str) -> None:
    assert callers(text)


def test_statements_do_not_count() -> None:
    assert callers("sa.delete(table).where(x)") == []


@pytest.mark.parametrize("path", ["services/runs/changing.py", "reconciler/acting/endings.py"])
def test_those_beside_them_delete_beats_and_none_of_a_run_but_its_marker(path: str) -> None:
    deletes = [line.strip() for line in (ROOT / path).read_text().splitlines() if ".delete(" in line]
    allowed = ("runfiles.stop_marker(", "runfiles.beat(", "runfiles.boot_beat(")
    assert deletes
    assert all(any(key in line for key in allowed) for line in deletes)
