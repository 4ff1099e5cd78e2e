"""The transcript of the older runner's quick reference, as a table, and the world in which its lines are typed.

A row is the old line, the new command, and patterns that must be found in the lines of its output, in this order. Each
row goes on where the one before has left the world. FILE, CODE and OLD.env are paths in the world's folder.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from supervisor.contract import runfiles
from tests.acceptance.daemon import Daemon
from tests.cloud.cloud import BUCKET, PROJECT, Cloud
from tests.cloud.web import Request, Response
from tests.waiting import wait_for

RUN = "rav-chexpert-1"
NUMBER = "123456789012"
OLD_FILE = """\
PROJECT="p"
REGION="us-east1"
SA="spot-worker@p.iam.gserviceaccount.com"
IMAGE="us-east1-docker.pkg.dev/p/rav/train:1"
BUCKET="spot-tests"
FALLBACK_ZONES=(us-east1-b us-east1-c)
GPU_TIMEOUT_SEC="1200"
POLL_INTERVAL="120"
PROGRESS_STALL_POLLS="10"
"""
MACHINE = r"spot-[0-9a-f]{8}-a\d+-t\d+"


class World:
    """What the rows need beside the command line."""

    def __init__(self, cloud: Cloud, daemon: Daemon, folder: Path) -> None:
        self.cloud, self.daemon, self.folder = cloud, daemon, folder
        self.deleted: list[tuple[str, bool]] = []  # (run, whether its .stop was there before the delete was asked)
        gate = cloud.access.gate("compute")

        def watched(request: Request) -> Response | None:
            name = request.path.rsplit("/", 1)[-1]
            if request.method == "DELETE" and name in self.ours():
                run_id = cloud.compute.instance(name).metadata["spot-run-id"]
                marker = cloud.storage.find(BUCKET, runfiles.stop_marker(run_id))
                self.deleted.append((run_id, marker is not None))
            return gate(request)

        cloud.compute.server.guard(watched)
        self.file = folder / "train.yaml"
        self.file.write_text(f"command: python train.py\nimage: {cloud.image()}\nstop_grace_s: 1\n")
        self.code = folder / "code"
        self.code.mkdir()
        (self.code / "train.py").write_text("print('trains')\n")
        self.old_file = folder / "old.env"
        self.old_file.write_text(OLD_FILE)

    def ours(self) -> list[str]:
        return [vm.name for vm in self.cloud.instances() if "spot-run-id" in vm.metadata]

    def attempts(self) -> list[Any]:
        found: list[Any] = self.daemon.call("GET", f"/v1/runs/{RUN}/attempts")["attempts"]
        return found

    def untouched(self) -> None:
        """The dry run has neither asked for a machine nor made a run."""
        assert self.cloud.compute.count("POST", "/instances$") == 0
        assert self.daemon.call("GET", "/v1/runs")["runs"] == []

    def running(self, run_id: str) -> Any:
        """The running machine of this run, once it is there."""

        def there() -> Any:
            found = [vm for vm in self.cloud.instances() if vm.status == "RUNNING"]
            return next((vm for vm in found if vm.metadata.get("spot-run-id") == run_id), None)

        return wait_for(there, 20, f"a machine of {run_id}")

    def gone(self) -> None:
        wait_for(lambda: self.ours() == [], 20, "every machine of ours to be gone")

    def trains(self) -> None:
        """Its machine has said 300 lines and beats: it trains."""
        vm = self.running(RUN)
        for number in range(300):
            self.cloud.compute.append_serial(vm.name, vm.zone, b"spot: line %d of the boot\n" % number)
        beat = {
            "run_id": RUN, "attempt": 1, "launch_id": vm.metadata["spot-launch-id"], "machine_id": vm.id,
            "boot_id": "b", "sequence": 101, "phase": "training", "nonce": vm.metadata["spot-nonce"],
            "step": 120, "total": 1000, "checkpoint_step": 100,
        }  # fmt: skip
        wait_for(lambda: self.daemon.run(RUN)["machine_id"], 20, "the machine to be obtained")
        self.daemon.call("POST", f"/v1/runs/{RUN}/heartbeat", beat)
        self.daemon.wait_status(RUN, "running", deadline_s=20)

    def leftover(self) -> None:
        """A machine with our label whose run nobody knows, and one of somebody else."""
        own = {**self.running(RUN).labels, "spot-run-id": "forgotten-1", "spot-launch-id": "1-1-1"}
        for name, labels in (("forgotten", own), ("jupyter-of-alice", {})):
            self.cloud.compute.fill(
                [{"name": name, "machineType": "zones/us-east1-b/machineTypes/n1-standard-8", "labels": labels,
                  "scheduling": {"provisioningModel": "SPOT"}, "zone": "us-east1-b"}]
            )  # fmt: skip


@dataclass(frozen=True)
class Row:
    old: str  # of OLD; "" = what belongs between two of them
    new: str
    shape: tuple[str, ...]
    before: Callable[[World], object] = field(default=lambda world: None)
    code: int = 0
    lines: int | None = None  # exactly so many are printed


TRANSCRIPT = (
    Row("gcloud auth list", "spot doctor", (r"✔ identity +acts as ",), code=1),
    Row("gcloud config list", "spot doctor", (rf"✔ project +{PROJECT} \(number {NUMBER}\)",), code=1),
    Row(
        "rg '^(PROJECT|REGION|…)=' FILE.env",
        "spot config show --origin --env-file OLD.env",
        (r"SETTING +VALUE +ORIGIN", r"poll_interval_s +120 .* POLL_INTERVAL", r"gce_project +p +.*PROJECT"),
    ),
    Row(
        "build",
        "spot build-image CODE --dry-run --project p --image us-docker.pkg.dev/p/r/train:1 --staging gs://my-bucket/src",
        (r"train\.py",),
    ),
    Row(
        "submit --dry-run",
        f"spot submit FILE --run-id {RUN} --dry-run",
        (
            rf"{RUN} would be created\. First try: t4 spot in us-east1-[bcd]\.",
            r"1 +us-east1-[bcd] +t4 +spot +\$1\.20/h",
            r"✔ \d+ checks passed: ",
            r"Metadata of the first machine: startup-script ",
        ),
    ),
    Row(
        "submit --run-id RUN",
        f"spot submit FILE --run-id {RUN}",
        (rf"{RUN}  ○ pending  Accepted \d+ s ago\. Next: ",),
        World.untouched,
    ),
    Row(
        "ops status --run-id RUN",
        f"spot show {RUN}",
        (
            rf"{RUN}  ● running",
            r"Training at step 120 of 1,000 \(12 %\)",
            r"# +WHERE +HOW LONG +ENDED BY +STEPS KEPT +LOST +COST +EVIDENCE",
            r"1  us-east1-[bcd]  T4 +now ",
            rf"machines: 1 {MACHINE} \(t4\) in us-east1-[bcd]$",
            r"last beat \d+ s ago, phase training, step 120 of 1,000",
            rf"files gs://{BUCKET}/runs/{RUN}/",
        ),
        World.trains,
    ),
    Row("ops status --run-id RUN", f"spot show {RUN} --spec", (r"command: python train.py", r"image: .*/train:1")),
    Row(
        "ops serial --run-id RUN 200",
        f"spot serial {RUN} 200",
        (r"^spot: line 100 of", r"^spot: line 299 of"),
        lines=200,
    ),
    Row(
        "ops serial --run-id RUN 200", "spot serial 2", (r"^spot: line 298 of the boot", r"^spot: line 299 of"), lines=2
    ),
    Row(
        "gcloud logging read 'logName:\"google_metadata_script_runner\"'",
        f"spot serial {RUN} 50 --cloud-logging --since 1h",
        (r"line 299 of the boot",),
    ),
    Row(
        "ops events --run-id RUN --since 24h",
        f"spot events {RUN} --since 24h",
        (
            r"\d\d:\d\d:\d\d .* submitted +Submitted by local",
            r"attempt 1 +launching +Requesting t4 spot in us-east1-[bcd]",
            rf"attempt 1 +cloud: insert +{MACHINE}: created by ",
            rf"attempt 1 +obtained +Attempt 1 has its machine {MACHINE}",
        ),
    ),
    Row(
        "ops list all",
        "spot ls --machines --all",
        (
            r"MACHINE +WHERE +STATE +AGE +RUN +ATT +\$/H +USE",
            r"forgotten +us-east1-b  .* up .* forgotten-1 .* serves no live run",
            rf"{MACHINE} +us-east1-[bcd]  T4 +up +\d+ s +{RUN} +1 +\$1\.20 +serves attempt 1 of {RUN}",
            r"jupyter-of-alice .* not ours: it carries no supervisor's id",
            rf"2 machines · \$1\.20/h, and 1 of unknown price now · project {PROJECT} \({NUMBER}\)",
        ),
        World.leftover,
    ),
    Row("gcloud compute instances describe VM", "spot ls --machines", (rf"{MACHINE} .* {RUN} ", r"2 machines ")),
    Row("gcloud compute instances list --project=P", "spot ls --machines --all -o name", (MACHINE,)),
    Row("ops watch 60", "spot watch 60 --timeout 0.1s", (r"\d\d:\d\d:\d\d UTC", r"RUN +STATUS", rf"{RUN} +● running")),
    Row("ops health --json", "spot health --json", (r'\{"ready": true, ',)),
    Row(
        "",
        "spot gc --dry-run",
        (r"forgotten .* serves no live run, but is younger than 30 s", r"1 machine left for the reason in USE"),
    ),
    Row("ops preempt --run-id RUN", f"spot dev preempt {RUN} --yes", (f"the machine of {RUN}",)),
    Row(
        "submit --skip-build --cleanup-all --yes",
        "spot submit FILE --run-id fresh-1 --skip-build --cleanup-all --yes",
        (r"^fresh-1  ○ pending",),
        lambda world: wait_for(lambda: len(world.attempts()) > 1, 30, "the preempted run to be placed again"),
    ),
    Row(
        "",
        f"spot events {RUN} --since 24h",
        (r"attempt 1 +attempt_ended +.* as preempted: Google preempted the machine", r"stopped +Stopped by local"),
    ),
    Row("ops delete --yes", "spot stop --yes", (r"fresh-1 ",), lambda world: world.running("fresh-1")),
    Row("submit --run-id RUN", f"spot resume {RUN}", (rf"{RUN}  ○ pending",), World.gone),
    Row("submit --skip-build", "spot submit FILE --run-id other-1 --skip-build", (r"other-1  ○ pending",)),
    Row("submit", "spot submit FILE -o name", (r"^run-[a-z0-9]{6}$",)),
    Row("ops delete --run-id RUN", f"spot stop {RUN}", (rf"{RUN}  ",), lambda world: world.running(RUN)),
    Row(
        "ops delete --all",
        "spot stop --all --yes",
        (r"^other-1 ", r"^run-[a-z0-9]{6} "),
        lambda world: world.running("other-1"),
    ),
    Row("gcloud compute instances delete VM", "spot gc --yes", (r"Nothing to release|released",), World.gone),
)
