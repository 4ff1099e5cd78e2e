"""The start-up script on one machine: a bucket, the metadata values that a provider would write, and an agent of straw.

The straw agent notes what it was given in seen.json and does what the job says: `{"exit": N}`, `{"say": TEXT}`,
`{"wait": true}` (until TERM), `{"saves_s": S}` (after it), `{"deaf": true}` (after TERM too), `{"write": PATH}`. What
is tried out is the script; a test with the real agent gives its bytes.
"""

import base64
import gzip
import hashlib
import io
import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

from supervisor.contract import heartbeat, runfiles
from supervisor.contract.heartbeat import Beat
from supervisor.providers.gce.machines.instance import startup_script
from tests.cloud.storage import StorageFake
from tests.cloud.vm import RunningVm, Scene, boot
from tests.components import require_component
from tests.waiting import wait_for

RUN, BUCKET, IMAGE = "digits-7", "trainings", "registry.example/team/digits@sha256:" + "0" * 64
MACHINE_ID = "4512345678901234567"
STRAW = """
import json, os, signal, sys, time
folder = sys.argv[1]
def read(name, kind="r"):
    with open(os.path.join(folder, name), kind) as source:
        return source.read()
job = json.loads(read("job.json"))
heard = []
signal.signal(signal.SIGTERM, lambda *_: heard.append(time.monotonic()))
seen = {"argv": sys.argv[1:], "env": dict(os.environ), "identity": json.loads(read("identity.json")), "job": job,
        "command": read("command", "rb").decode("latin-1"), "user_files": sorted(os.listdir(folder))}
with open(os.path.join(folder, ".seen"), "w") as target:
    json.dump(seen, target)
os.rename(os.path.join(folder, ".seen"), os.path.join(folder, "seen.json"))
print(job.get("say", "straw agent"), file=sys.stderr, flush=True)
if job.get("write"):
    with open(job["write"], "a") as target:
        target.write("written\\n")
while job.get("wait") and (job.get("deaf") or not heard):
    time.sleep(0.005)
if heard:
    with open(os.path.join(folder, "heard"), "w") as target:
        target.write(repr(heard[0]))
    time.sleep(job.get("saves_s", 0))
sys.exit(job.get("exit", 0))
"""


def straw_agent() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("__main__.py", (1980, 1, 1, 0, 0, 0)), STRAW)
    return buffer.getvalue()


class StartupRig:
    """`attributes`: the metadata of the next machine, to be changed before `boot`. Close it."""

    def __init__(self, folder: Path, agent: bytes | None = None) -> None:
        require_component("curl", shutil.which("curl") is not None, "install the package curl")
        self.storage = StorageFake()
        self.storage.make_bucket(BUCKET)
        self.storage.takes_token = lambda token: token.startswith("ya29.fake-")
        self.folder, self.vm = folder, None
        agent = straw_agent() if agent is None else agent
        sha256 = hashlib.sha256(agent).hexdigest()
        self.storage.put(BUCKET, runfiles.agent(sha256), agent)
        self.off: list[str] = []
        self.script = startup_script()
        self.attributes = {
            "spot-run-id": RUN,
            "spot-attempt": "2",
            "spot-launch-id": "1.2.1",
            "spot-nonce": "n0nce",
            "spot-bucket": BUCKET,
            "spot-prefix": "",
            "spot-image-ref": IMAGE,
            "spot-gpus": "0",
            "spot-gpu-timeout-sec": "20",
            "spot-gpu-driver-version": "default",
            "spot-shm-size": "2g",
            "spot-agent-sha256": sha256,
            "spot-storage-endpoint": self.storage.url,
        }
        self.command("true")
        self.job()

    def command(self, text: str) -> None:
        self.attributes["spot-job-command"] = base64.b64encode(text.encode()).decode()

    def job(self, **job: Any) -> None:
        self.attributes["spot-job"] = base64.b64encode(gzip.compress(json.dumps(job).encode())).decode()

    def instance(self, **metadata: str | None) -> dict[str, Any]:
        """The resource, as in instances.get."""
        values = {**self.attributes, **{name.replace("_", "-"): value for name, value in metadata.items()}}
        items = [{"key": key, "value": value} for key, value in values.items() if value is not None]
        items.append({"key": "startup-script", "value": self.script})
        zone = "https://www.googleapis.com/compute/v1/projects/p/zones/us-east1-c"
        return {"id": MACHINE_ID, "name": "spot-1-a2-t1", "zone": zone, "metadata": {"items": items}}

    def boot(self, scene: Scene | None = None, **metadata: str | None) -> RunningVm:
        """`metadata`: spot_gpus="1" sets spot-gpus; None takes a key away."""
        vm = boot(self.instance(**metadata), self.folder, scene, on_off=lambda: self.off.append("off"))
        self.vm = vm
        return vm

    def ended(self, vm: RunningVm, deadline_s: float = 30) -> None:
        """Once the machine has switched itself off and nothing of it runs any more."""
        wait_for(vm.ended.is_set, deadline_s, "the machine's end:\n" + "\n".join(vm.lines()))
        assert vm.processes() == set()

    def close(self) -> None:
        if self.vm is not None:
            assert self.vm.close() == []
        self.storage.close()

    def given_up(self, left: str, *words: str) -> RunningVm:
        """The machine, off: the console and its last beat have the reason with these words, and no work began."""
        vm = self.vm
        assert vm is not None
        self.ended(vm)
        assert vm.switched_off
        beat = self.boot_beat()
        assert beat is not None
        assert beat.left == left, (beat, vm.lines())
        assert "--help" not in beat.message
        for word in words:
            assert word in beat.message, (beat.message, vm.lines())
        (line,) = [line for line in vm.lines() if f"left={left}" in line]
        assert json.loads(line.partition("msg=")[2]) == beat.message
        assert not (vm.machine / "seen.json").exists()
        return vm

    def boot_beat(self, prefix: str = "") -> Beat | None:
        """The one in the bucket; its metadata says the same."""
        stored = self.storage.find(BUCKET, prefix + runfiles.boot_beat(RUN))
        if stored is None:
            return None
        beat = heartbeat.parse(stored.data)
        assert stored.metadata["beat"].encode() == stored.data
        return beat

    def seen(self) -> dict[str, Any]:
        """What the straw agent found."""
        assert self.vm is not None
        return json.loads((self.vm.machine / "seen.json").read_text())

    def phases(self) -> list[str]:
        """The phases of the serial console, each once, in order."""
        assert self.vm is not None
        words = [line.split()[1].removeprefix("phase=") for line in self.vm.lines() if "spot: phase=" in line]
        return list(dict.fromkeys(words))
