"""Containers that do nothing until the test or a signal ends them: pods without a process, for virtual time."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.kubernetes.containers import Exit, Launch

TERMINATED, KILLED = 0, 137


@dataclass
class StillContainer:
    """`exits`: what it does with TERM; None = it does not listen."""

    launch: Launch
    exits: int | None = TERMINATED
    written: bytes = b""
    ended: Exit | None = None

    def poll(self) -> Exit | None:
        return self.ended

    def terminate(self) -> None:
        if self.exits is not None and self.ended is None:
            self.ended = Exit(self.exits)

    def kill(self) -> None:
        self.ended = self.ended or Exit(KILLED)

    def end(self, code: int, oom: bool = False) -> None:
        self.ended = Exit(code, oom)

    def log(self) -> bytes:
        return self.written


@dataclass
class StillRuntime:
    """`containers`: by the name of their pod."""

    exits: int | None = TERMINATED
    containers: dict[str, StillContainer] = field(default_factory=dict)

    def start(self, launch: Launch) -> StillContainer:
        container = StillContainer(launch, self.exits)
        self.containers[launch.pod["metadata"]["name"]] = container
        return container
