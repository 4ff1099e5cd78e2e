"""What the gates learn of a host by SSH, on a real sshd: each fault stops a launch there with its code and its fact."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.domain.gates.verdicts import Verdict
from supervisor.domain.machines import HostFacts
from supervisor.domain.observation import World
from supervisor.domain.policies import Knobs, Needs, Policy
from supervisor.domain.profile import End, Source, Survival, survival
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.gates.places import stopping
from supervisor.providers.ssh import facts
from supervisor.remote.connections import Connections
from tests.contracts.provider_subject import ref
from tests.lifecycle.sample_runs import run_in
from tests.providers.ssh_machines import SshSubject
from tests.providers.stub_cards import StubCards
from tests.providers.test_ssh_stories import SMALL_HOME, mounts, read
from tests.waiting import wait_for

NOTHING_NEEDED = run_in(Status.PENDING, policy=Policy(), attempt=None, pulse=None)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Of the supervisor; every host of these tests is on the same computer."""
    folder = tmp_path / "objects"
    folder.mkdir()
    (folder / ".spot-store").touch()
    return folder


@pytest.fixture
def lab(tmp_path: Path, store: Path) -> Iterator[SshSubject]:
    subject = SshSubject(tmp_path, store_url=f"file://{store}")
    yield subject
    subject.end_all()


def host(lab: SshSubject, zone: str = "gpu1") -> HostFacts:
    lab.provider.machines()
    host = lab.provider.profile(zone).host
    assert host is not None
    return host


def stops(lab: SshSubject, run: Run = NOTHING_NEEDED, shape: str = "host", zone: str = "gpu1") -> dict[str, Verdict]:
    """The verdicts of the last reading that stop a launch of this run there, by check."""
    profile = lab.provider.profile(zone)
    assert profile.host is not None
    place = replace(lab.provider.offers()[0].placement, zone=zone, shape=shape)
    world = World(Knobs("s"), store_url=lab.store_url)
    verdicts = stopping(run, place, profile, world, profile.host.at + 1)
    return {verdict.check: verdict for verdict in verdicts}


def on_cards(name: str = "", cuda: str = "") -> Run:
    return replace(NOTHING_NEEDED, policy=Policy(needs=Needs(gpu=name, cuda=cuda)))


def test_a_healthy_host_stops_nothing_and_its_store_is_durable(lab: SshSubject, store: Path) -> None:
    facts_of_host = host(lab)
    assert stops(lab) == {}
    assert (facts_of_host.host_key, facts_of_host.login_accepted, facts_of_host.store_refused) == ("known", True, ())
    assert facts_of_host.login_s is not None
    assert facts_of_host.free_bytes
    profile = lab.provider.profile("gpu1")
    assert (profile.shared_fs.value, profile.shared_fs.source) == (str(store), Source.MEASURED)
    assert survival(profile, f"{store}/runs/digits-7", End.DESTROY).value is Survival.YES


@pytest.mark.parametrize(
    ("ours", "theirs", "survives", "code"),
    [
        ("ext4", "nfs4", Survival.YES, None),
        ("nfs4", "nfs4", Survival.YES, None),
        ("cifs", "fuse.sshfs", Survival.YES, None),
        ("ext4", "overlay", Survival.YES, None),
        ("fuse.sshfs", "ext4", Survival.NO, "CHECKPOINT_NOT_DURABLE"),
        ("nfs4", "a new one", Survival.VERIFY, None),
    ],
    ids=["exported by us", "both mount it", "two ways", "a container here", "a disk of the host", "not known"],
)
def test_a_store_is_durable_unless_it_lies_on_a_disk_of_the_host(
    lab: SshSubject,
    store: Path,
    monkeypatch: pytest.MonkeyPatch,
    ours: str,
    theirs: str,
    survives: Survival,
    code: str | None,
) -> None:
    host(lab)
    monkeypatch.setattr(facts, "file_system", lambda path: ours)
    probe = lab.provider._probes["gpu1"]
    lab.provider._probes["gpu1"] = {**probe, "store": {**probe["store"], "system": theirs}}
    assert survival(lab.provider.profile("gpu1"), f"{store}/runs", End.DESTROY, str(Path.home())).value is survives
    assert [verdict.code for verdict in stops(lab).values()] == ([] if code is None else [code])


def test_a_store_that_is_not_there_or_another_one_stops_a_launch(lab: SshSubject, store: Path) -> None:
    os.utime(store / ".spot-store", (1, 1))  # the supervisor sees another store from here on
    host(lab)
    assert host(lab).store_refused == ()
    lab.provider._readings._mark = 1_000
    assert stops(lab)["store_access"].code == "STORE_UNREACHABLE"
    (store / ".spot-store").unlink()
    lab.provider._readings._mark = None
    assert "store_access" not in stops(lab), "our own side cannot be read: nothing is known"


@pytest.mark.parametrize(
    ("size", "check", "code", "fact"),
    [
        ("size=32m", "disk_bytes", "DISK_TOO_SMALL", "the disk of gpu1 has"),
        ("size=900m,nr_inodes=40", "inodes", "INODES_LOW", "of the inodes of the disk of gpu1 are in use"),
    ],
)
def test_a_small_disk_stops_a_launch(lab: SshSubject, size: str, check: str, code: str, fact: str) -> None:
    server = lab.hosts[0]
    with mounts(SMALL_HOME, str(server.home), size) as wrapper:
        server.stop()
        server.wrapper = wrapper
        server.start()
        wait_for(lambda: read(lab, lab.request()), what="the host to be read")
        (server.home / "unused").touch()
        fill = "import os\nfor n in range(30): open('%s/file-%d' % (os.path.expanduser('~'), n), 'w').close()"
        lab.provider._connections.run("gpu1", ["python3", "-"], fill.encode(), 20.0)
        host(lab)
        verdict = stops(lab)[check]
        assert (verdict.code, verdict.by) == (code, "gpu1")
        assert fact in verdict.fact
        assert verdict.fix
        assert stops(lab, zone="gpu2") == {}, "the other host is as it was"


@pytest.fixture
def cards(tmp_path: Path) -> StubCards:
    return StubCards(tmp_path / "cards", 2)


@pytest.fixture
def gpus(tmp_path: Path, cards: StubCards) -> Iterator[SshSubject]:
    options = {"SetEnv": f"PATH={cards.path}"}
    subject = SshSubject(tmp_path, options, ssh_machines=0, ssh_gpus={"l4": 1, "l4x2": 2})
    yield subject
    subject.end_all()


def test_a_stranger_on_a_card_stops_a_launch_and_is_named(gpus: SshSubject, cards: StubCards) -> None:
    stranger = subprocess.Popen(["/bin/sleep", "3600"])
    try:
        cards.hold(0, 9000, stranger.pid)
        host(gpus)
        verdict = stops(gpus, on_cards(), "l4x2")["gpus"]
        owner = f"GPU 0 (NVIDIA L4): held by pid {stranger.pid} (sleep 3600, 8.8 GiB), which is not ours"
        assert (verdict.code, verdict.fact) == (
            "GPU_NOT_FREE", f"1 of 2 expected GPUs are there and free; {owner}",
        )  # fmt: skip
        assert stops(gpus, on_cards(), "l4") == {}
        assert stranger.poll() is None
        cards.free(0)
        host(gpus)
        assert stops(gpus, on_cards(), "l4x2") == {}
    finally:
        stranger.kill()
        stranger.wait(60)


def test_the_name_of_the_card_and_its_driver_are_compared_with_what_the_run_needs(
    gpus: SshSubject, cards: StubCards
) -> None:
    host(gpus)
    assert gpus.provider.profile("gpu1").driver_cuda_max.value == "12.4"
    assert stops(gpus, on_cards("L4", "12.4"), "l4") == {}
    assert stops(gpus, on_cards("H100"), "l4")["gpus"].code == "GPU_NOT_FREE"
    driver = stops(gpus, on_cards(cuda="12.6"), "l4")["driver"]
    assert (driver.code, driver.fact) == ("DRIVER_TOO_OLD", "the driver supports CUDA 12.4; the image needs 12.6")


def test_a_driver_is_asked_for_its_version_once(gpus: SshSubject, cards: StubCards) -> None:
    host(gpus)
    cards.answers(cuda="13.0")
    host(gpus)
    assert gpus.provider.profile("gpu1").driver_cuda_max.value == "12.4", "until the host boots again"
    gpus.provider = gpus.fresh()
    host(gpus)
    assert gpus.provider.profile("gpu1").driver_cuda_max.value == "13.0"


def test_cards_that_cannot_be_read_stop_nothing(gpus: SshSubject, cards: StubCards) -> None:
    cards.answers(fail="the driver is not loaded")
    assert host(gpus).cards is None
    assert stops(gpus, on_cards("H100"), "l4x2") == {}


def test_a_changed_key_stops_a_launch_and_a_host_that_is_away_does_not(lab: SshSubject) -> None:
    host(lab)
    server = lab.hosts[0]
    server.stop()
    lab.provider.machines()
    assert stops(lab) == {}, "what cannot be read is not failed"
    server.make_key("hostkey")
    server.start()
    wait_for(lambda: host(lab).host_key == facts.KEY_DIFFERS, what="the host to be tried again")
    verdict = stops(lab)["host_key"]
    assert verdict.code == "HOST_KEY_UNKNOWN"
    assert verdict.fact == "the host key of gpu1 is not the known one"
    assert verdict.fix.startswith("Compare the fingerprint")


def test_a_login_that_is_refused_stops_a_launch(lab: SshSubject) -> None:
    host(lab)
    server = lab.hosts[0]
    server.stop()
    (server.folder / "authorized_keys").write_text("")
    server.start()
    wait_for(lambda: host(lab).login_accepted is False, what="the host to be tried again")
    assert stops(lab)["key_login"].fact == "the login with a key was refused"


def test_a_slow_login_stops_a_launch_for_a_while(lab: SshSubject) -> None:
    host(lab)
    connections = lab.provider._connections
    connections._note("gpu1", login_s=20.0, login_at=time.time())
    assert stops(lab)["key_login"].fact == "the login with a key took 20 s; at most 15 s are wanted"
    connections._note("gpu1", login_at=time.time() - 601)
    assert stops(lab) == {}, "nobody has logged in since"


def test_the_connection_is_ended_once_after_a_launch_and_the_machine_lives(
    lab: SshSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[str] = []
    real = Connections.end_idle

    def counted(self: Connections, alias: str) -> None:
        ended.append(alias)
        real(self, alias)

    monkeypatch.setattr(Connections, "end_idle", counted)
    before = host(lab).dropped_at
    first, second = lab.request(), lab.request(attempt=2)
    machine = lab.up(first)
    lab.up(second)
    assert ended == ["gpu1"], "the same run with the same command is tried once"
    dropped_at = host(lab).dropped_at
    assert before is not None
    assert dropped_at is not None
    assert dropped_at > before
    assert lab.listed(first) == machine
    lab.up(replace(first, name=f"{first.name}x", job={**first.job, "command": "another"}))
    assert ended == ["gpu1", "gpu1"]
    lab.provider.release(ref(first, machine.machine_id))


def test_a_process_that_never_connected_does_not_know_of_an_end(lab: SshSubject) -> None:
    """A replica that does not lead: the leader may be connected now."""
    connections = lab.provider._connections
    assert connections.access("gpu1").ended_at is None
    connections._note("gpu1", key_known=None)  # it tried to
    assert connections.access("gpu1").ended_at is None
    host(lab)
    assert connections.access("gpu1").ended_at == connections._opened_at


def test_a_connection_in_use_is_not_ended(lab: SshSubject) -> None:
    connections = lab.provider._connections
    host(lab)
    before = connections.access("gpu1").ended_at
    assert before is not None
    connections._commands["gpu1"] += 1
    connections.end_idle("gpu1")
    assert connections.access("gpu1").ended_at == before
    connections._commands["gpu1"] -= 1
    connections.end_idle("gpu1")
    after = connections.access("gpu1").ended_at
    assert after is not None
    assert after > before
