"""The cloud of a benchmark: a child process, so that its work is not counted as the supervisor's."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

LONGEST_S = 120.0


class FarCloud:
    """`environment`: what a supervisor needs to use it."""

    def __init__(self, environment: Mapping[str, str], control: str) -> None:
        self.environment, self.control = environment, control
        self._http = httpx.Client(base_url=control, timeout=LONGEST_S, trust_env=False)

    def call(self, what: str, *args: Any, **kwargs: Any) -> Any:
        """A control of CrowdedCloud or of what it is made of. AssertionError when it refuses."""
        answer = self._http.post("/", json={"call": what, "args": args, "kwargs": kwargs}).json()
        assert "error" not in answer, f"{what}: {answer['error']}"
        return answer["value"]

    def close(self) -> None:
        self._http.close()


@contextmanager
def far_cloud() -> Iterator[FarCloud]:
    command = [sys.executable, "-m", "tests.benchmarks.cloud_child"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            cloud = FarCloud(told["environment"], told["control"])
            try:
                yield cloud
            finally:
                cloud.close()
        finally:
            process.kill()
