"""The start-up script, run by bash on a sandboxed machine: the way to the agent and to the end of the machine."""

import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.contract import heartbeat
from supervisor.providers.gce.machines.instance import PARTS, startup_script
from tests.cloud.vm import Scene
from tests.cloud.web import Hang, Reset, Response
from tests.providers.startup_rig import BUCKET, IMAGE, MACHINE_ID, RUN, StartupRig
from tests.waiting import wait_for

FOLDER = Path(__file__).parents[2] / "supervisor" / "providers" / "gce" / "machines"
FILES = ["agent.pyz", "ca-certificates.crt", "command", "identity.json", "job.json"]
HOSTILE = "a 'b' \"c\" $(touch {bait}) `touch {bait}` ${{PATH}} \\ & | ; \n\ttab\r\n%s \u00e9\u4e2d\n\n"


def test_shellcheck_finds_nothing_in_the_whole_script(tmp_path: Path) -> None:
    """`make check` checks each part of it."""
    whole = tmp_path / "startup.sh"
    whole.write_text(startup_script())
    checker = Path(sys.executable).with_name("shellcheck")
    checked = subprocess.run([checker, whole], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout) == (0, "")


def test_every_part_of_the_script_is_used() -> None:
    assert {path.name for path in FOLDER.glob("startup*.sh")} == set(PARTS)
    assert len(startup_script().encode()) < 262_144 / 8  # of what one metadata value may have


def test_a_boot_ends_in_the_agent_and_the_machine_is_switched_off(rig: StartupRig) -> None:
    rig.job(name="spot-1-a2-t1", say="straw in the wind")
    vm = rig.boot()
    rig.ended(vm)
    assert rig.phases() == ["boot", "image", "container", "end", "off"]
    assert vm.switched_off
    assert rig.off == ["off"]
    seen = rig.seen()
    assert seen["argv"] == [str(vm.machine)]
    assert seen["identity"] == {"machine_id": MACHINE_ID}
    assert seen["job"]["name"] == "spot-1-a2-t1"
    assert seen["user_files"] == FILES
    assert seen["env"]["SPOT_MACHINE"] == "spot-1-a2-t1"
    assert seen["env"]["SPOT_MACHINE_DIR"] == str(vm.machine)
    assert seen["env"]["GCE_METADATA_HOST"] == vm.metadata.host
    assert "spot: container: straw in the wind" in vm.lines()
    run = vm.calls("docker")[-1]
    assert run[run.index("--network") + 1] == "host"
    assert run[run.index("--shm-size") + 1] == "2g"
    assert IMAGE in run
    assert not {"--gpus", "--runtime", "--device"} & set(run)
    read = [path.rpartition("/")[2] for path in vm.metadata.requests if "/spot-" in path]
    assert sorted(read) == sorted(rig.attributes), "each value once, and none that is not there"
    # Google's unit has KillMode=process: TERM would reach its runner only. Units stop in the reverse order of After=.
    unit = vm.root / "run/systemd/system/google-startup-scripts.service.d/spot.conf"
    after = "[Unit]\nAfter=docker.service containerd.service\n"
    assert unit.read_text() == f"{after}[Service]\nKillMode=control-group\n"
    assert ["daemon-reload"] in vm.calls("systemctl")


def test_what_it_does_is_beaten_beside_the_beat(rig: StartupRig) -> None:
    vm = rig.boot(Scene(pulls=("hang",)))
    beat = wait_for(lambda: (now := rig.boot_beat()) and now.phase == "image" and now)
    assert beat == heartbeat.Beat(
        RUN, 2, "1.2.1", MACHINE_ID, beat.boot_id, 2, "image", nonce="n0nce", message=f"pulling {IMAGE}"
    )
    assert beat.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert vm.lines()[0].startswith("spot: phase=boot t=")
    assert vm.lines()[0].endswith(f'msg="machine spot-1-a2-t1 ({MACHINE_ID}), attempt 2 of {RUN}"')


@pytest.fixture
def bait(tmp_path: Path) -> Path:
    """A file that exists only if a value was run as a command."""
    return tmp_path / "bait"


def test_no_value_is_ever_interpreted(rig: StartupRig, bait: Path) -> None:
    hostile, nonce = HOSTILE.format(bait=bait), f'n"\\$(touch {bait})'
    prefix = f'team "a"/$(touch {bait})/\u00e9 %2F/'
    agent = rig.attributes["spot-agent-sha256"]
    stored = rig.storage.find(BUCKET, f"agents/{agent}.pyz")
    assert stored is not None
    rig.storage.put(BUCKET, f"{prefix}agents/{agent}.pyz", stored.data)
    rig.command(hostile)
    rig.job(text=hostile)
    vm = rig.boot(spot_prefix=prefix, spot_nonce=nonce)
    rig.ended(vm)
    assert rig.seen()["command"].encode("latin-1").decode() == hostile
    assert rig.seen()["job"] == {"text": hostile}
    beat = rig.boot_beat(prefix)
    assert beat is not None
    assert beat.nonce == nonce
    assert not bait.exists()


def test_values_of_the_largest_size_arrive_whole(rig: StartupRig) -> None:
    """One metadata value may have 256 KiB: 190 KB of command."""
    command = "".join(f"echo '{number}' \\\n" for number in range(12_000))[:190_000]
    rig.command(command)
    rig.job(env={"SALT": random.Random(7).randbytes(60_000).hex()})
    rig.ended(rig.boot())
    assert rig.seen()["command"] == command
    assert len(rig.seen()["job"]["env"]["SALT"]) == 120_000


@pytest.mark.parametrize(
    ("name", "value"), [("spot-image-ref", "--privileged evil"), ("spot-gpus", "SECONDS[$(touch {bait})]")]
)
def test_a_value_of_another_form_is_refused(rig: StartupRig, bait: Path, name: str, value: str) -> None:
    rig.attributes[name] = value.format(bait=bait)
    rig.boot()
    rig.given_up("no_start", f"the metadata value {name} is not valid")
    assert not bait.exists()


def test_a_script_that_trusts_its_values_is_caught(rig: StartupRig, bait: Path) -> None:
    whole = rig.script
    rig.script = whole.replace("    [[ $VALUE =~ ^($2)$ ]] ||", "    true ||")
    assert rig.script != whole
    rig.boot(spot_gpus=f"SECONDS[$(touch {bait})]")
    wait_for(bait.exists)


def test_without_a_run_id_it_only_says_so_and_goes_off(rig: StartupRig) -> None:
    vm = rig.boot(spot_run_id=None)
    rig.ended(vm)
    assert "the metadata value spot-run-id cannot be read" in vm.serial()
    assert rig.storage.names(BUCKET, "beats/") == []
    assert vm.switched_off


def test_a_metadata_server_that_stumbles_is_asked_again(rig: StartupRig) -> None:
    """The first fault ends the read of all values at once, the others befall single ones. A part of a value is none."""
    vm = rig.boot(Scene(stumbles=(
        ("spot-nonce", Response(200, b"n0nce", cut_after=2)),
        ("spot-gpus", Response(503, b"later")),
        ("spot-gpus", Reset()),
        ("spot-shm-size", Response(200, b"2g", cut_after=1)),
        ("spot-job-command", Response(500, b"later")),
    )))  # fmt: skip
    rig.ended(vm)
    assert vm.metadata.faults == []
    assert rig.phases() == ["boot", "image", "container", "end", "off"]
    assert rig.seen()["command"] == "true"
    run, beat = vm.calls("docker")[-1], rig.boot_beat()
    assert run[run.index("--shm-size") + 1] == "2g"
    assert beat is not None
    assert beat.nonce == "n0nce"


def test_a_store_that_is_away_stops_no_boot(rig: StartupRig) -> None:
    rig.storage.trouble(503, times=None, when="storage.objects.insert")
    rig.storage.trouble(503, times=3, when="storage.objects.get")
    rig.storage.trouble(Reset(), times=1, when="storage.objects.get")
    vm = rig.boot()
    rig.ended(vm)
    assert rig.seen()["command"] == "true"
    assert rig.boot_beat() is None
    assert sum("a beat could not be stored: HTTP 503" in line for line in vm.lines()) >= 3
    assert sum("the agent cannot be fetched, retry in" in line for line in vm.lines()) == 4


@pytest.mark.parametrize(("header", "safe"), [("@<(bearer)", True), ('"$(bearer)"', False)])
def test_the_token_is_no_argument_that_everybody_can_read(rig: StartupRig, header: str, safe: bool) -> None:
    """The second script is one that lets it be seen."""
    assert rig.script.count("-H @<(bearer)") == 3
    rig.script = rig.script.replace("@<(bearer)", header)
    rig.storage.trouble(Hang(), times=1, when="storage.objects.get")
    vm = rig.boot()
    seen = wait_for(lambda: [words for words in map(_arguments, vm.processes()) if b"agents%2F" in words])
    assert all(b"ya29.fake-" not in words for words in seen) is safe


def _arguments(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_an_agent_of_another_content_is_not_started(rig: StartupRig) -> None:
    sha256 = rig.attributes["spot-agent-sha256"]
    rig.storage.put(BUCKET, f"agents/{sha256}.pyz", b"another one")
    rig.boot(Scene(hurry=500))
    vm = rig.given_up("no_start", "the agent cannot be fetched", "its content has another hash")
    assert not any(call[0] == "run" for call in vm.calls("docker"))


@pytest.mark.parametrize(
    ("code", "left", "message"),
    [
        (3, "no_start", "the agent has ended with exit code 3: no such job"),
        (4, "no_image", "no such job"),  # the agent's own word for a Python that is too old
    ],
)
def test_an_agent_that_cannot_even_begin_is_told_of(rig: StartupRig, code: int, left: str, message: str) -> None:
    rig.job(say="no such job", exit=code)
    vm = rig.boot()
    rig.ended(vm)
    beat = rig.boot_beat()
    assert beat is not None
    assert (beat.left, beat.phase, beat.message) == (left, "image", message)


def test_the_last_word_is_said_again_when_it_was_lost(rig: StartupRig) -> None:
    rig.storage.trouble(503, times=3, when="storage.objects.insert")  # two of the boot, and the first last word
    rig.boot(Scene(pulls=("manifest unknown",)))
    rig.given_up("no_image", "manifest unknown")


def test_a_second_boot_begins_anew(rig: StartupRig) -> None:
    rig.job(wait=True)
    vm = rig.boot()
    wait_for((vm.machine / "seen.json").exists)
    (vm.machine / "left over").touch()
    assert vm.close() == []
    rig.job()
    vm = rig.boot()
    rig.ended(vm)
    assert rig.seen()["user_files"] == FILES
    assert ["rm", "--force", "spot"] in vm.calls("docker")


def test_run_again_by_hand_it_disturbs_nothing(rig: StartupRig) -> None:
    rig.job(wait=True)
    vm = rig.boot()
    wait_for((vm.machine / "seen.json").exists)
    again, _ = vm.run_script().communicate(timeout=30)
    assert b"this script has already run in this boot" in again
    assert not vm.switched_off
    assert vm.calls("docker")[-1][0] == "run"
    vm.acpi_shutdown()
    rig.ended(vm)


def test_output_of_the_container_is_bounded_on_the_console(rig: StartupRig) -> None:
    rig.job(say="\n".join(["x" * 2500, *map(str, range(3100))]))
    vm = rig.boot()
    rig.ended(vm)
    told = [line for line in vm.lines() if line.startswith("spot: container: ")]
    assert len(told) == 3000
    assert [len(line) for line in told[:4]] == [1017, 1017, 517, 18]
    assert "more than 3000 lines: the rest is left out" in vm.serial()
    assert rig.phases()[-2:] == ["end", "off"]


def test_a_script_that_forgets_to_switch_off_is_caught(rig: StartupRig) -> None:
    whole = rig.script
    rig.script = whole.replace("trap switch_off EXIT\n", "")
    assert rig.script != whole
    vm = rig.boot()
    wait_for(vm.script_ended.is_set)
    assert not vm.switched_off
    assert not vm.ended.is_set()


def test_sequences_leave_room_for_the_agents(rig: StartupRig) -> None:
    """The agent continues at 100."""
    scene = Scene(pulls=("i/o timeout",) * 9 + ("unauthorized",), hurry=500)
    rig.script = rig.script.replace("SEQUENCE=0", "SEQUENCE=90")
    rig.boot(replace(scene))
    rig.given_up("no_image", "unauthorized")
    beat = rig.boot_beat()
    assert beat is not None
    assert beat.sequence == 96
