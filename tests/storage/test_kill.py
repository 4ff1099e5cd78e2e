"""kill -9 at random moments of a busy writer: the database is consistent, and has each acknowledged run.

The seed is printed; a failure can be repeated with it.
"""

import random
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

from supervisor.storage.store import open_store
from tests.contracts.store_values import CELL

ROUNDS = 4
WRITER = """
import sys
from dataclasses import replace
from supervisor.ports.store import Change, Sample
from supervisor.storage.store import open_store
from tests.contracts.store_values import *

store = open_store(sys.argv[1], migrate=True)
lease = store.take_lease(CELL, sys.argv[2], 60.0, 0.0, alone=True)
runs = store.active(CELL, {})[0]
print("ready", flush=True)
for n in range(10**6):
    with store.begin(NOW) as tx:
        new = tx.insert(a_run(f"run-{sys.argv[2]}-{n}"), SPEC, {"team": "vision"}, [SUBMITTED])
    print(new.run_id, flush=True)
    runs = (runs + [new])[-40:]
    changes = [Change(run, running(run, hold=str(n)), (STARTED,)) for run in runs]
    runs = list(store.apply_all(changes, NOW, lease).values())
    store.write_pulses([Sample(run.key, NOW + n, 1, a_pulse(n)) for run in runs], lease)
"""


def test_what_is_left_is_whole(path: Path, url: str) -> None:
    seed = random.randrange(10**6)
    sys.stdout.write(f"seed {seed}\n")
    chance = random.Random(seed)
    answered: set[str] = set()
    for turn in range(ROUNDS):
        command = [sys.executable, "-c", WRITER, url, f"w{turn}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            time.sleep(chance.uniform(0.02, 0.4))  # the moment of the kill is the point
            writer.kill()
            answered.update(line.strip() for line in writer.stdout if line.endswith("\n"))
        check(path, url, answered)
    assert answered


def check(path: Path, url: str, answered: set[str]) -> None:
    raw = sqlite3.connect(path)
    assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert raw.execute("PRAGMA foreign_key_check").fetchall() == []
    for question in (
        # events are as many as the run says, and numbered without a gap
        "SELECT count(*) FROM runs r WHERE events <> (SELECT count(*) FROM events e WHERE e.run = r.key)",
        "SELECT count(*) FROM runs r WHERE events <> (SELECT max(sequence) FROM events e WHERE e.run = r.key)",
        # status, events, outbox, attempt and label were written together
        "SELECT count(*) FROM runs r WHERE version <> events",
        "SELECT count(*) FROM events WHERE kind = 'started' AND id NOT IN (SELECT event FROM outbox)",
        "SELECT count(*) FROM runs WHERE status = 'running' AND key NOT IN (SELECT run FROM attempts)",
        "SELECT count(*) FROM runs r JOIN labels l ON l.run = r.key WHERE l.status <> r.status",
        "SELECT count(*) FROM runs WHERE key NOT IN (SELECT run FROM specs)",
    ):
        assert raw.execute(question).fetchone() == (0,), question
    raw.close()
    store = open_store(url, migrate=False)
    found = {run.run_id for run in store.active(CELL, {})[0]}
    store.close()
    assert answered <= found
