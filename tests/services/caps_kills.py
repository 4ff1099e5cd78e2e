"""Sessions against a cap in processes that are killed with kill -9 at random moments, and go on in new ones."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

from supervisor.storage.store import open_store
from tests.services.bed import make_bed
from tests.services.caps_sessions import DAY, judge
from tests.services.fresh import open_fresh


def carry_out(url: str, tmp_path: Path, *, sessions: int, kills: int, processes: int) -> list[float]:
    """What each session has spent or may spend, none above the cap. Each process carries out all sessions, so that
    several of them work for one token at the same time. `kills`: of each process, all of which must happen."""
    opening = open_fresh(tmp_path / "supervisor.db") if url.startswith("sqlite") else open_store(url, migrate=True)
    opening.close()
    seed = random.randrange(10**6)
    sys.stdout.write(f"seed {seed}\n")
    killed: list[int] = []
    workers = [
        threading.Thread(target=_work, args=(url, sessions, random.Random(seed + n), kills, killed))
        for n in range(processes)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(killed) == kills * processes
    with closing(open_store(url, migrate=False)) as store:
        bed = make_bed(store, tmp_path)
        return [judge(bed, number) for number in range(1, sessions + 1)]


def _work(url: str, sessions: int, chance: random.Random, kills: int, killed: list[int]) -> None:
    """A kill comes amid the session after the one at which it is due."""
    following = 1
    deaths = [sessions // (kills + 1) * number for number in range(1, kills + 1)]
    while following <= sessions:
        command = [sys.executable, "-m", "tests.services.caps_sessions", url, str(following)]
        death = next((at for at in deaths if at >= following), None)
        with subprocess.Popen([*command, str(sessions + 1 - following)], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                following = int(line) + 1
                if death is not None and following > death:
                    threading.Timer(chance.uniform(0.0, 0.03), process.kill).start()  # amid the next session
                    death = None
        assert process.returncode in (0, -signal.SIGKILL), process.returncode
        if process.returncode:
            killed.append(following)
        deaths = [at for at in deaths if at >= following]


def judge_all(totals: list[float]) -> None:
    """They were no empty sessions: most of the cap was used."""
    assert sum(totals) / len(totals) > DAY / 2
