"""Attempts with secrets, with the shipped archive: all output is masked, an incomplete input starts nothing; and an
agent that masks nothing is caught."""

import json
import sys
import zipfile
from pathlib import Path

import pytest

from supervisor.contract import heartbeat, runfiles
from tests.agent.bench import RUN
from tests.agent.machine_rig import Rig
from tests.waiting import wait_for

VALUE = 'hush"qvzx+hush=zqxw'  # halves that no pid, time or size contains
TELLS = """
import json, os, sys, time
value = os.environ["API_KEY"]
def say(text):
    sys.stdout.write(text)
    sys.stdout.flush()
say("with " + value[:9])
with open(os.environ["SPOT_PROGRESS_FILE"], "a") as progress:
    progress.write(json.dumps({"step": 1, "metrics": {"loss " + value: 0.5}}) + chr(10))
time.sleep(1)
say(value[9:] + chr(10))
raise ValueError("refused " + value)
"""
FAILS_LATER = """
import os, time
while not os.path.exists("go"):
    time.sleep(0.05)
print("when it fails")
raise SystemExit(3)
"""
# The masker of this agent finds nothing.
BLIND = """
Masker.spans = lambda self, data: []
Masker.beginning = lambda self, data: (len(data), b"", 0)
"""


def tells_everything(rig: Rig) -> None:
    rig.given = json.dumps({"API_KEY": VALUE}).encode()
    rig.start(sys.executable, "-S", "-c", TELLS, secrets=["API_KEY"])
    beat = rig.ended()
    assert beat.exit is not None
    assert beat.exit.code == 1


def shown(rig: Rig) -> list[str]:
    """The places where others can see a value, or half of it."""
    places = {f"object {key}": rig.store.get(key)[0] for key in rig.keys("")}
    places["console"] = rig.console.encode()
    for number, beat in enumerate(rig.server.beats):
        places[f"pushed beat {number}"] = heartbeat.encode(beat)
    return [place for place, data in places.items() if b"qvzx" in data or b"zqxw" in data]


def test_secrets_that_are_common_words_leave_the_documents_readable(rig: Rig) -> None:
    words = ["when", "launch_id", "log_tail", "command", "threads", "packages"]
    secrets = {f"WORD_{number}": word for number, word in enumerate(words)}
    rig.given = json.dumps(secrets).encode()
    rig.start(sys.executable, "-S", "-c", FAILS_LATER, secrets=list(secrets))
    wait_for(lambda: "packages_sha256" in rig.text(runfiles.facts(RUN, 1)), 60, "the facts")  # an end waits 3 s for it
    rig.go()
    rig.ended()
    part = json.loads(rig.store.get(runfiles.agent_evidence(RUN, 1))[0])
    assert (part["when"], part["launch_id"]) == ("end", "1.1.1")
    assert part["log_tail"] == ["[secret WORD_0] it fails"]
    facts = json.loads(rig.store.get(runfiles.facts(RUN, 1))[0])
    assert (facts["launch_id"], facts["command"][0]) == ("1.1.1", sys.executable)
    assert "packages_sha256" in facts


def test_all_output_of_the_command_is_masked(rig: Rig) -> None:
    tells_everything(rig)
    assert shown(rig) == []
    assert b"with [secret API_KEY]\n" in rig.log()
    assert rig.exit_record()["exit"]["last_line"] == "ValueError: refused [secret API_KEY]"
    assert rig.stored_beat.metrics == {"loss [secret API_KEY]": 0.5}
    assert VALUE not in (rig.machine / "job.json").read_text()


def test_an_agent_that_masks_nothing_is_caught(tmp_path: Path, archive: Path) -> None:
    blind = tmp_path / "blind.pyz"
    with zipfile.ZipFile(archive) as source, zipfile.ZipFile(blind, "w") as target:
        for name in source.namelist():
            more = BLIND if name == "supervisor/agent/machine/masking.py" else ""
            target.writestr(name, source.read(name) + more.encode())
    rig = Rig(tmp_path / "rig", blind)
    try:
        tells_everything(rig)
        places = shown(rig)
    finally:
        rig.close()
    assert any("/logs/" in place for place in places)
    assert any("exit.json" in place for place in places)
    assert any(place.startswith("pushed beat") for place in places)
    assert any("/evidence" in place or "evidence.json" in place for place in places)


@pytest.mark.parametrize("given", [b"", b'{"API_KEY": "hush-qvzx', b'{"OTHER": "hush-qvzx"}'])
def test_an_agent_without_its_secrets_leaves_no_trace_and_can_be_started_again(rig: Rig, given: bytes) -> None:
    rig.given = given
    rig.start("/bin/sh", "-c", 'test "$API_KEY" = hush-qvzx', secrets=["API_KEY"])
    assert rig.agent.wait(30) == 3
    assert not (rig.machine / "agent.json").exists()
    assert "ended before it brought API_KEY" in rig.console
    assert shown(rig) == []
    assert rig.baton.holder is None
    rig.given = b'{"API_KEY": "hush-qvzx"}'
    rig.spawn()
    beat = rig.ended()
    assert beat.exit is not None
    assert beat.exit.code == 0


def test_secrets_that_come_as_files_are_masked_and_their_folder_is_not_inherited(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "API_KEY").write_text(VALUE + "\n")
    monkeypatch.setenv("SPOT_SECRETS_DIR", str(tmp_path))
    code = "import os; print('folder', os.environ.get('SPOT_SECRETS_DIR'))\n" + TELLS
    rig.start(sys.executable, "-S", "-c", code, secrets=["API_KEY"])
    beat = rig.ended()
    assert beat.exit is not None
    assert beat.exit.code == 1
    assert b"folder None\n" in rig.log()
    assert b"with [secret API_KEY]\n" in rig.log()
    assert shown(rig) == []


def test_a_secret_whose_file_is_missing_ends_the_attempt_before_the_command(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPOT_SECRETS_DIR", str(tmp_path))
    rig.start(sys.executable, "-c", "print('never')", secrets=["API_KEY"])
    beat = rig.ended()
    assert (beat.left, beat.exit) == (heartbeat.NO_SECRET, None)
    assert beat.message == "secret API_KEY: its file cannot be read: No such file or directory"
