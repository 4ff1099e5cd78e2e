"""A real supervisor whose machines are jobs of a cluster, and the one run that a story follows: `digits`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests import forked
from tests.acceptance.cloud_story import DIGITS
from tests.acceptance.daemon import Daemon
from tests.acceptance.stories import DONE
from tests.waiting import wait_for


class DigitsLab:
    def __init__(self, data_dir: Path, environ: Mapping[str, str]) -> None:
        self.daemon = Daemon(data_dir, environ)
        self.daemon.start()

    def spot(self, *words: str) -> str:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("SPOT_")}
        environ |= {**self.daemon.for_cli(), "NO_COLOR": "1"}
        answer = forked.spot(*words, environ=environ, folder=DIGITS, timeout_s=90)
        assert answer.returncode == 0, answer.stdout + answer.stderr
        return answer.stdout

    def until(self, holds: Callable[[Any], bool], what: str) -> Any:
        def look() -> Any:
            run = self.daemon.run("digits")
            assert run["status"] not in DONE or holds(run), (run["status_text"], self.events())
            return run if holds(run) else None

        try:
            return wait_for(look, 120, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.events()}\n{self.logs()}") from None

    def events(self) -> str:
        events = self.daemon.call("GET", "/v1/runs/digits/events?limit=200")["events"]
        return "\n".join(event["text"] for event in events)

    def logs(self) -> str:
        """For a story that failed."""
        return self.daemon.log()

    def attempts(self) -> list[dict[str, Any]]:
        attempts: list[dict[str, Any]] = self.daemon.call("GET", "/v1/runs/digits/attempts")["attempts"]
        return attempts
