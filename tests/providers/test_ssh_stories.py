"""Hosts by SSH in trouble: what is lost, what is only unknown, and what the user reads. Each story on a real sshd."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.domain.causes import Cause
from supervisor.domain.machines import MachineState
from supervisor.domain.profile import Source
from supervisor.ports.provider import CapacityInUse, LaunchRejected, LaunchRequest, NoCapacity, ProviderUnavailable
from supervisor.remote import connections, hosts
from supervisor.remote.hosts import Host
from tests.contracts.provider_subject import ref
from tests.providers.local_machines import alive
from tests.providers.ssh_machines import SshSubject
from tests.providers.sshd import free_port
from tests.providers.stub_cards import StubCards
from tests.waiting import wait_for

OTHER_BOOT = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"'
SMALL_HOME = 'mount -t tmpfs -o "$1" tmpfs "$0" && shift && exec "$@"'
BANNER = 'echo Welcome to the lab; sleep 1; eval "$SSH_ORIGINAL_COMMAND"; code=$?; exit $code'


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[SshSubject]:
    subject = SshSubject(tmp_path)
    yield subject
    subject.end_all()


@pytest.fixture
def new_lab(tmp_path: Path) -> Iterator[SshSubject]:
    """The agent is not on its hosts yet."""
    subject = SshSubject(tmp_path, is_new=True)
    yield subject
    subject.end_all()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "PROBE_S", 2.0)
    monkeypatch.setattr(hosts, "CALL_S", 2.0)
    monkeypatch.setattr(connections, "CONNECT_S", 2.0)


def read(lab: SshSubject, request: LaunchRequest) -> bool:
    """The zone of this machine could be read."""
    try:
        return request.placement.zone not in lab.provider.machines().unreachable
    except ProviderUnavailable:
        return False


@contextmanager
def mounts(*words: str) -> Iterator[tuple[str, ...]]:
    """The begin of a command line that runs the rest with mounts of its own."""
    tried = subprocess.run(
        ["unshare", "-m", "sh", "-c", "mount -t tmpfs tmpfs /mnt"], capture_output=True, timeout=60, check=False
    )
    if tried.returncode != 0:
        pytest.skip("this computer allows no mounts of one's own")
    yield ("unshare", "-m", "sh", "-c", *words)


def test_a_cut_connection_ends_nothing(lab: SshSubject) -> None:
    request = lab.request()
    machine = lab.up(request)
    pids = lab.pids(request)
    for _ in range(3):
        for pid in lab.host(request).connections():
            os.kill(pid, signal.SIGKILL)
        assert lab.listed(request) == machine, "the next probe connects again"
    assert all(alive(pid) for pid in pids.values())
    assert lab.provider.find(ref(request, machine.machine_id)) == machine


def test_a_host_that_is_away_is_unknown_and_the_other_one_is_read(lab: SshSubject) -> None:
    here, there = lab.request(), lab.request(run="other", zone=1)
    machine, other = lab.up(here), lab.up(there)
    lab.host(here).stop()
    listing = lab.provider.machines()
    assert (listing.unreachable, listing.machines) == ({"gpu1"}, (other,))
    assert listing.unread("gpu1").startswith("gpu1 cannot be reached: ")
    with pytest.raises(ProviderUnavailable, match="gpu1 cannot be reached"):
        lab.provider.find(ref(here, machine.machine_id))
    with pytest.raises(ProviderUnavailable, match="gpu1 cannot be reached"):
        lab.provider.release(ref(here, machine.machine_id))
    lab.host(here).start()
    wait_for(lambda: read(lab, here), what="the host to be connected again")
    assert lab.listed(here) == machine


def test_a_host_without_a_price_is_not_called_billed_once_it_was_read(lab: SshSubject) -> None:
    before = lab.provider.profile("gpu1").meter_stop
    lab.provider.machines()
    assert lab.provider.profile("gpu1").meter_stop == before == lab.provider.profile().meter_stop
    assert before.note.startswith("if it costs nothing, say so")


def test_a_host_that_left_the_settings_is_unknown_too(lab: SshSubject) -> None:
    request = lab.request()
    machine = lab.up(request)
    without = lab.fresh(ssh_hosts=("gpu2",))
    listing = without.machines()
    assert (listing.machines, listing.unread("gpu2")) == ((), "")
    assert "is not in the settings any more" in listing.unread("gpu1")
    with pytest.raises(ProviderUnavailable, match="add it again"):
        without.find(ref(request, machine.machine_id))
    assert lab.listed(request) == machine


def test_a_frozen_sshd_delays_one_listing_and_no_second_one(
    lab: SshSubject, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = lab.request(), lab.request(run="other", zone=1)
    machine, other = lab.up(here), lab.up(there)
    lab.host(here).signal(signal.SIGSTOP)
    try:
        assert lab.provider.machines().unreachable == {"gpu1"}
        waited: list[str] = []
        real = connections.Connections._run

        async def counted(self: connections.Connections, host: str, *how: object) -> connections.Completed:
            waited.append(host)
            return await real(self, host, *how)  # type: ignore[arg-type]

        lab.provider.machines()  # the connection is made anew, in vain
        monkeypatch.setattr(connections.Connections, "_run", counted)
        listing = lab.provider.machines()
        assert (listing.unreachable, listing.machines) == ({"gpu1"}, (other,))
        assert waited == ["gpu2"], "the host that did not respond is connected in the background"
    finally:
        lab.host(here).signal(signal.SIGCONT)
    wait_for(lambda: read(lab, here), what="the host to respond again")
    assert lab.listed(here) == machine


def test_a_reboot_is_a_record_and_the_box_is_free_again(lab: SshSubject, tmp_path: Path) -> None:
    request = lab.request()
    machine = lab.up(request)
    host = lab.host(request)
    boot = tmp_path / "boot_id"
    boot.write_text("11111111-2222-3333-4444-555555555555\n")
    with mounts(OTHER_BOOT, str(boot)) as wrapper:
        host.end_all()
        host.wrapper = wrapper
        host.start()
        ended = wait_for(lambda: read(lab, request) and lab.listed(request), what="the host after its reboot")
        assert (ended.state, ended.machine_id) == (MachineState.ENDED, machine.machine_id)
        assert ended.record is not None
        assert ended.record.cause is Cause.HOST_REBOOTED
        lab.provider.release(ref(request, machine.machine_id))
        assert lab.listed(request) is None
        again = lab.up(lab.request(attempt=2))
        assert again.machine_id.startswith("local:11111111:")
        lab.provider.release(ref(lab.request(attempt=2)))


@pytest.fixture
def cards(tmp_path: Path) -> StubCards:
    return StubCards(tmp_path / "cards", 2)


@pytest.fixture
def gpus(tmp_path: Path, cards: StubCards) -> Iterator[SshSubject]:
    """Hosts with two cards each, whose shape l4 has one and l4x2 both."""
    subject = SshSubject(tmp_path, {"SetEnv": f"PATH={cards.path}"}, ssh_machines=0, ssh_gpus={"l4": 1, "l4x2": 2})
    yield subject
    subject.end_all()


def of_shape(request: LaunchRequest, shape: str) -> LaunchRequest:
    return replace(request, placement=replace(request.placement, shape=shape))


def test_a_second_run_on_full_cards_waits(gpus: SshSubject) -> None:
    first, second = of_shape(gpus.request(), "l4x2"), of_shape(gpus.request(run="second"), "l4")
    machine = gpus.up(first)
    capacity = gpus.provider.machines().capacity
    assert capacity is not None
    assert capacity.zones["gpu1"] == 0
    with pytest.raises(CapacityInUse, match=f"GPU 0 is with machine {first.name}"):
        gpus.provider.launch(second)
    gpus.provider.release(ref(first, machine.machine_id))
    assert gpus.up(second).state is MachineState.UP


def test_a_stranger_on_a_card_is_named_and_lives(gpus: SshSubject, cards: StubCards) -> None:
    stranger = subprocess.Popen(["/bin/sleep", "3600"])
    try:
        cards.hold(0, 9000, stranger.pid)
        with pytest.raises(
            NoCapacity, match=f"GPU 0 is held by pid {stranger.pid} .sleep 3600, 8.8 GiB., which is not ours"
        ):
            gpus.provider.launch(of_shape(gpus.request(), "l4x2"))
        machine = gpus.up(of_shape(gpus.request(), "l4"))
        assert machine.state is MachineState.UP
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait(60)


def test_a_login_shell_that_prints_a_banner_and_takes_a_second(tmp_path: Path) -> None:
    lab = SshSubject(tmp_path, {"ForceCommand": BANNER})
    try:
        request = lab.request()
        machine = lab.up(request)
        assert lab.provider.console(ref(request, machine.machine_id)) is not None
        lab.provider.release(ref(request, machine.machine_id))
        assert lab.listed(request) is None
    finally:
        lab.end_all()


@pytest.mark.parametrize("size", ["size=64k", "size=8m,nr_inodes=6"], ids=["bytes", "inodes"])
def test_a_full_disk_is_a_refusal_with_its_reason(new_lab: SshSubject, size: str) -> None:
    lab, host = new_lab, new_lab.hosts[0]
    with mounts(SMALL_HOME, str(host.home), size) as wrapper:
        host.stop()
        host.wrapper = wrapper
        host.start()
        with pytest.raises((ProviderUnavailable, LaunchRejected), match=r"gpu1.*No space left"):
            lab.provider.launch(lab.request())


def test_a_changed_key_of_the_host_stops_everything_and_says_what_to_do(lab: SshSubject) -> None:
    request = lab.request()
    machine = lab.up(request)
    host = lab.host(request)
    host.stop()
    host.make_key("hostkey")
    host.start()
    reason = "the key of gpu1 is not the known one.*compare its key and connect once by hand: ssh gpu1"
    with pytest.raises(ProviderUnavailable, match=reason):
        lab.provider.release(ref(request, machine.machine_id))
    with pytest.raises(NoCapacity, match=reason):
        lab.provider.launch(lab.request(run="second"))
    assert lab.provider.machines().unreachable == {"gpu1"}
    assert all(alive(pid) for pid in lab.pids(request).values())


def test_a_changed_port_is_followed_when_the_configuration_names_it(lab: SshSubject) -> None:
    request = lab.request()
    machine = lab.up(request)
    host = lab.host(request)
    host.stop()
    host.port = free_port()
    host.start()
    lab.config.write_text("".join(each.config_lines() for each in lab.hosts))
    lab.known_hosts.write_text("".join(each.known_line() for each in lab.hosts))
    wait_for(lambda: read(lab, request), what="the host on its new port")
    assert lab.listed(request) == machine


def test_a_kill_between_the_copy_of_the_agent_and_the_start_is_completed_by_the_same_launch(
    new_lab: SshSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = new_lab

    class Killed(BaseException):
        pass

    real: Callable[..., None] = Host._send

    def killed(self: Host) -> None:
        real(self)
        raise Killed

    request = lab.request()
    with monkeypatch.context() as patch:
        patch.setattr(Host, "_send", killed)
        with pytest.raises(Killed):
            lab.provider.launch(request)
    lab.provider = lab.fresh()
    assert lab.provider.machines().machines == ()
    machine = lab.up(request)
    assert lab.fresh().launch(replace(request, repeated=True)) == machine


def test_a_launch_that_may_have_been_sent_is_never_a_refusal(lab: SshSubject) -> None:
    request = lab.request()
    lab.host(request).stop()
    with pytest.raises(NoCapacity, match="gpu1 cannot be reached"):
        lab.provider.launch(request)
    with pytest.raises(ProviderUnavailable, match="gpu1 cannot be reached"):
        lab.provider.launch(replace(request, repeated=True))


def test_a_half_copied_agent_is_never_used(lab: SshSubject) -> None:
    """A disk that lost its content, or a person who edited it: the name says which content it must have."""
    request = lab.request()
    lab.up(request)
    folder = lab.host(request).home / ".spot-machines"
    (archive,) = folder.glob("agent-*.pyz")
    shutil.move(archive, folder / "elsewhere")
    assert lab.listed(request) is not None
    assert archive.exists(), "it was copied again"


def test_a_store_that_is_not_on_the_host_is_a_refusal(lab: SshSubject, tmp_path: Path) -> None:
    """Else the agent there would wait for a folder that never comes."""
    request = lab.request()
    there, nowhere = tmp_path / "objects", tmp_path / "nowhere"
    there.mkdir()
    (there / ".spot-store").touch()
    with pytest.raises(LaunchRejected, match=f"the object store file://{nowhere} is not on this host"):
        lab.provider.launch(replace(request, job={**request.job, "store_url": f"file://{nowhere}"}))
    lab.up(replace(request, job={**request.job, "store_url": f"file://{there}"}))


def test_what_a_user_knows_of_a_host_reaches_its_machines(lab: SshSubject, tmp_path: Path) -> None:
    provider = lab.fresh(ssh_facts={"local_nvme": str(tmp_path / "nvme"), "mirror": "https://mirror.test"})
    fact = provider.profile("gpu1").mirror
    assert (fact.value, fact.source, fact.on) == ("https://mirror.test", Source.USER, "2026-11-25")
    request = lab.request()
    provider.launch(request)
    job = json.loads((lab.folder(request) / "job.json").read_text())
    assert (job["local_nvme"], job["env"]["HF_ENDPOINT"]) == (str(tmp_path / "nvme"), "https://mirror.test")
    assert Path(job["stage_dir"]).is_dir()
    own = lab.request(run="own", zone=1)
    provider.launch(replace(own, job={**own.job, "env": {"HF_ENDPOINT": "https://mine.test"}}))
    job = json.loads((lab.folder(own) / "job.json").read_text())
    assert job["env"]["HF_ENDPOINT"] == "https://mine.test"
