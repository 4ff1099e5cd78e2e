"""A supervisor's store and hosts that cannot reach it, all in folders; and a process that is killed at any step."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from supervisor.agent.store.access import BatonKeeper, hash_file
from supervisor.contract import baton as batons
from supervisor.contract import runfiles
from supervisor.contract.baton import Baton, Done, FileEntry, Pointer
from supervisor.contract.runfiles import SavedFile, SavedResults, encode_saved
from supervisor.contract.stores.folder import FolderStore
from supervisor.domain.machines import Placement
from supervisor.host.stays import Stays
from supervisor.objectstores.mirror import Mirror
from supervisor.objectstores.relay import Homes, RelayedStore
from supervisor.reconciler.acting import batonwork
from supervisor.remote.connections import NotConnected
from supervisor.remote.stays import HostRelay

OURS, RUN, CODE = "sup-1", "digits", runfiles.code("c" * 64)
LAB = {zone: Placement("lab", "region", zone, "host", True) for zone in ("gpu1", "gpu2")}
CLOUD = Placement("cloud", "region", "zone-a", "l4", True)


class Killed(BaseException):
    """The process ends here."""


class Steps:
    """Counts what leaves the process, and kills it before or after the step `kill_at`."""

    def __init__(self) -> None:
        self.count, self.kill_at, self.after = 0, -1, False

    def step(self, action: Callable[[], Any]) -> Any:
        self.count += 1
        last = self.count == self.kill_at
        if last and not self.after:
            raise Killed
        result = action()
        if last:
            raise Killed
        return result


class KilledStore(FolderStore):
    """Each write is a step."""

    steps = Steps()

    def put(self, *values: Any, **named: Any) -> Any:
        return self.steps.step(lambda: FolderStore.put(self, *values, **named))

    def put_file(self, *values: Any, **named: Any) -> Any:
        return self.steps.step(lambda: FolderStore.put_file(self, *values, **named))

    def delete(self, *values: Any, **named: Any) -> Any:
        return self.steps.step(lambda: FolderStore.delete(self, *values, **named))


class LocalHost:
    """The operations of a host, called in this process. `cut_after`: bytes of content until the connection is lost."""

    def __init__(self, root: Path, steps: Steps) -> None:
        self.root, self.steps = root, steps
        self.down, self.machines = False, [(OURS, RUN)]
        self.cut_after: int | None = None
        self.calls: list[str] = []
        self.bytes = self.all_bytes = 0

    def call(self, operation: str, values: Mapping[str, object], within_s: float) -> Mapping[str, Any]:
        assert operation == "stay"
        if self.down:
            raise NotConnected("the host cannot be reached")
        request = json.loads(json.dumps(values))
        self.calls.append(request["method"])
        answer = self.steps.step(lambda: Stays(self.root).respond(request, lambda: self.machines))
        size = len(answer.get("content", "")) + len(request.get("content", ""))
        self.bytes, self.all_bytes = self.bytes + size, self.all_bytes + size
        if self.cut_after is not None and self.bytes > self.cut_after:
            self.down = True
            raise NotConnected("the connection was lost")
        return json.loads(json.dumps(answer))

    def store(self, stay: str) -> FolderStore:
        return FolderStore(self.root / "stays" / stay / "store")


class RelayWorld:
    """One run with its code bundle. `restart` is a new process. `place_of`: of a zone."""

    def __init__(self, folder: Path, place_of: Callable[[str], str] = lambda zone: zone) -> None:
        self.folder, self.place_of = folder, place_of
        self.own = FolderStore.create(folder / "own")
        self.steps = Steps()
        self.hosts = {zone: LocalHost(folder / zone, self.steps) for zone in LAB}
        self.now = 1000.0
        self.note: Callable[[str, Mapping[str, Any]], None] = lambda zone, probe: None
        self.own.put(CODE, b"the code")
        self.restart()

    def restart(self) -> None:
        self.steps.kill_at = -1
        own = KilledStore(self.own.root)
        own.steps = self.steps
        self.relay = relay_of(self, OURS)
        self.relays = {"lab": self.relay}
        self.homes = Homes(own, self.relays, self.folder / "parts", lambda: self.now)
        self.objects = RelayedStore(own, self.relays)
        self.mirrors = {zone: Mirror(own, "lab", zone, self.relay, self.folder / "parts") for zone in LAB}
        self.relay.follow(lambda zone, beats: self.mirrors[zone].note_beats(beats))

    def launch(self, launch_id: str, placement: Placement, holder_gone: bool = True) -> str | None:
        """As the supervisor does: raise the baton where it lies, then bring it to the placement."""

        def step(baton: Baton | None) -> Baton:
            return batons.raise_next(baton or batons.create(OURS, 1), launch_id, f"nonce-{launch_id}", holder_gone)

        batonwork.change(self.objects, RUN, step)
        return self.homes.settle(RUN, launch_id, placement, holder_gone=holder_gone, needs=(CODE,))

    def own_baton(self) -> Baton:
        return batons.decode(self.own.get(runfiles.baton(RUN))[0])

    def whole(self) -> Baton:
        """Our own baton. Everything that it names is here, with the right content."""
        baton = self.own_baton()
        entries = [
            entry._replace(name=pointer.prefix + entry.name)
            for pointer in batons.pointers(baton)
            for entry in pointer.files
        ]
        for manifest in batons.saved_results(baton):
            entries += [manifest]
            saved = runfiles.decode_saved(self.own.get(manifest.name)[0])
            entries += [FileEntry(file.key, file.size, file.sha256) for file in saved.files]
        if baton.done is not None:
            entries += [entry._replace(name=baton.done.prefix + entry.name) for entry in baton.done.results]
        for entry in entries:
            assert hash_file(str(self.folder / "own" / entry.name), entry.name) == entry
        return baton

    def probe(self) -> None:
        """As a listing of the machines does, and the mirrors after it."""
        for zone, host in self.hosts.items():
            self.note(zone, {"beats": Stays(host.root).beats()})
            self.mirrors[zone].copy_beats()


def relay_of(world: RelayWorld, supervisor_id: str) -> HostRelay:
    """LocalHost has the one method of a host that is used."""
    hosts: Any = world.hosts
    return HostRelay(hosts, supervisor_id, lambda note: setattr(world, "note", note), lambda: None, world.place_of)


class ScriptedAgent:
    """An agent with the store of this URL, which claims the baton."""

    def __init__(self, url: str, launch_id: str) -> None:
        self.store = FolderStore.at(url)
        self.launch_id, self.attempt = launch_id, int(launch_id.split(".")[1])
        self.keeper = BatonKeeper(self.store, RUN, launch_id, f"machine-{launch_id}")
        self.keeper.change(batons.claim, 0.0)
        self.sequence = 0

    def beat(self) -> None:
        self.sequence += 1
        data = json.dumps({"launch_id": self.launch_id, "sequence": self.sequence})
        self.store.put(runfiles.beat(RUN), data.encode(), metadata={"beat": data})

    def save(self, step: int, size: int = 1000, best: bool = False) -> Baton:
        """A checkpoint with the results of the same moment."""
        prefix = runfiles.checkpoint(RUN, step, self.attempt, best=best)
        files = (self._file(prefix, "model.bin", b"%d" % step * size), self._file(prefix, "rng.bin", b"%d" % -step))
        key = runfiles.saved_result(RUN, self.launch_id, 2 * step, "content")
        content = self._file("", key, b"results of %d" % step)
        saved = SavedFile("log.txt", content.size, content.sha256, key)
        raw = encode_saved(SavedResults(self.attempt, step, (saved,)))
        manifest = self._file("", runfiles.saved_result(RUN, self.launch_id, 2 * step + 1, "manifest.json"), raw)
        before = self.keeper.read()
        after = self.keeper.change(batons.move_checkpoint, Pointer(step, prefix, files, manifest))
        for pointer in set(batons.pointers(before)) - set(batons.pointers(after)):
            for entry in pointer.files:
                self.store.delete(pointer.prefix + entry.name)
        return after

    def restore(self) -> int:
        """The step of the newest checkpoint, which is whole in the store of this agent."""
        pointer = self.keeper.read().checkpoint
        assert pointer is not None
        for entry in pointer.files:
            self._check(pointer.prefix, entry)
        assert pointer.results is not None
        self._check("", pointer.results)
        for file in runfiles.decode_saved(self.store.get(pointer.results.name)[0]).files:
            self._check("", FileEntry(file.key, file.size, file.sha256))
        return pointer.step

    def finish(self) -> None:
        prefix = runfiles.results(RUN, 1)
        results = (self._file(prefix, "weights.npz", b"weights"),)
        done = Done(self.launch_id, prefix, results)
        self.keeper.change(lambda baton, _, machine_id: batons.finish(baton, machine_id, done))

    def leave(self) -> None:
        self.keeper.change(batons.leave)

    def _file(self, prefix: str, name: str, data: bytes) -> FileEntry:
        self.store.put(prefix + name, data)
        return hash_file(str(Path(self.store.root) / (prefix + name)), name)._replace(name=name)

    def _check(self, prefix: str, entry: FileEntry) -> None:
        assert hash_file(str(Path(self.store.root) / (prefix + entry.name)), entry.name) == entry


def agent_at(url: str | None, launch_id: str) -> ScriptedAgent:
    assert url is not None
    return ScriptedAgent(url, launch_id)


def began(world: RelayWorld, placement: Placement = LAB["gpu1"]) -> ScriptedAgent:
    """An agent that has saved two checkpoints, all of it mirrored."""
    agent = agent_at(world.launch("1.1.1", placement) or world.own.url, "1.1.1")
    agent.save(10)
    agent.save(20)
    if placement.provider == "lab":
        world.mirrors[placement.zone].copy()
    return agent
