"""kill -9 of the supervisor at random moments while runs go on; judged from outside, by files and /proc."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.acceptance.daemon import Daemon, machine_pids
from tests.waiting import wait_for

STEPS = 40
SCRIPT = (
    # One line per life of the command: a run that was never disturbed has exactly one.
    'echo "$$ $SPOT_ATTEMPT" >> {lives}; i=0; while [ $i -lt {steps} ]; do i=$((i+1)); '
    'echo "{{\\"step\\": $i, \\"total\\": {steps}}}" >> "$SPOT_PROGRESS_FILE"; sleep {pause}; done; '
    'echo done > "$SPOT_RESULTS_DIR/out.txt"'
)


@dataclass
class Campaign:
    """`seed` decides every moment; it is printed, so that a failure can be repeated."""

    folder: Path
    runs: int
    kills: int
    seed: int
    pause_s: float = 0.3
    overlaps: list[str] = field(default_factory=list)

    def carry_out(self, daemon: Daemon) -> dict[str, object]:
        """Submit, kill and restart until all kills are spent, then wait for the end. The figures."""
        sys.stdout.write(f"chaos seed {self.seed}\n")
        chance = random.Random(self.seed)
        names = [f"chaos-{number}" for number in range(self.runs)]
        waiting = list(names)
        began = time.monotonic()
        for kill in range(self.kills):
            share = -(-len(waiting) // (self.kills - kill))
            for name in waiting[:share]:
                self._submit(daemon, name)
            del waiting[:share]
            self._live_for(chance.uniform(0.0, 1.2), daemon)
            daemon.kill()
            self._live_for(chance.uniform(0.0, 0.4), daemon)
            daemon.start()
        for name in names:
            daemon.wait_status(name, "completed", "failed", "partial", "stopped", deadline_s=300)
        wait_for(lambda: not machine_pids(daemon.data_dir), 60, "every machine to be gone")
        return self._figures(daemon, names, time.monotonic() - began)

    def _submit(self, daemon: Daemon, name: str) -> None:
        command = SCRIPT.format(lives=self.folder / f"{name}.lives", steps=STEPS, pause=self.pause_s)
        daemon.submit(name, command=command)

    def _live_for(self, seconds: float, daemon: Daemon) -> None:
        """Pass the time by watching for a second live machine of any run."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._watch(daemon)
            time.sleep(0.05)

    def _watch(self, daemon: Daemon) -> None:
        agents: Counter[str] = Counter()
        for pid in machine_pids(daemon.data_dir):
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                # An agent leads its session; what it has forked and not yet become something else does not.
                if b"agent.pyz" not in b" ".join(words[:3]) or os.getsid(pid) != pid:
                    continue
                job = json.loads((Path(words[2].decode()) / "job.json").read_text())
            except (OSError, ValueError, IndexError):
                continue
            agents[job["run_id"]] += 1
        self.overlaps += [f"{run_id}: {count} agents" for run_id, count in agents.items() if count > 1]

    def _figures(self, daemon: Daemon, names: list[str], took_s: float) -> dict[str, object]:
        ends = Counter(daemon.run(name)["status"] for name in names)
        lives = [len((self.folder / f"{name}.lives").read_text().splitlines()) for name in names]
        return {
            "seed": self.seed,
            "kills": self.kills,
            "runs": self.runs,
            "ends": dict(ends),
            "commands_started": sum(lives),
            "second_machines": len(self.overlaps),
            "took_s": round(took_s, 1),
        }


def judge(figures: dict[str, object]) -> None:
    """No run lost, no training touched, no second machine."""
    assert figures["ends"] == {"completed": figures["runs"]}, figures
    assert figures["commands_started"] == figures["runs"], figures
    assert figures["second_machines"] == 0, figures
