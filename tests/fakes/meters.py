"""Hosts that are billed until somebody stops them, for tests: what was asked of them, and what they say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from supervisor.domain.machines import How, MachineRef, Meter
from supervisor.ports.provider import MeterFailed


@dataclass
class FakeMeters:
    """`fails`: why a verb is not carried out, "" = it is. `reads`: the bill goes on, or why it cannot be read."""

    by_zone: Mapping[str, Meter]
    fails: str = ""
    reads: bool | str = True
    stopped: list[tuple[str, str, str]] = field(default_factory=list)

    def stop(self, ref: MachineRef, verb: str, run_id: str) -> str:
        self.stopped.append((ref.zone, verb, run_id))
        if self.fails:
            raise MeterFailed(self.fails)
        return "exit code 0"

    def read(self, ref: MachineRef, verb: str) -> tuple[bool, str]:
        if isinstance(self.reads, str):
            raise MeterFailed(self.reads)
        return self.reads, "exit code 1" if self.reads else "exit code 0"


def meters_of(*hosts: str, how: How = How.COMMAND, confirms: bool = True) -> FakeMeters:
    return FakeMeters({host: Meter(how, "terminate", ("terminate", "stop"), confirms) for host in hosts})
