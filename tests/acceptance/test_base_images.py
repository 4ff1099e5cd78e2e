"""A base from a script to its deletion: a machine boots and is prepared, two machines start from its disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from supervisor.contract import runfiles
from tests.acceptance.cloud_story import LONG_S, CloudStory, cloud_story
from tests.cloud.cloud import BUCKET
from tests.waiting import wait_for

pytestmark = pytest.mark.xdist_group("stories-cloud")

# The sandbox of a machine is a folder, and a container sees the paths of this computer.
SCRIPT = 'mkdir -p "$VM_FOLDER/root/opt/lib"\necho "made for $SPOT_RUN_ID" >> "$VM_FOLDER/root/opt/lib/made"\n'
USES = 'cp "$VM_FOLDER/root/opt/lib/made" "$SPOT_RESULTS_DIR/made"'


def bases(story: CloudStory) -> list[Any]:
    found: list[Any] = story.daemon.call("GET", "/v1/bases")["bases"]
    return found


def test_a_base_is_prepared_used_by_two_machines_and_deleted_with_its_image(tmp_path: Path) -> None:
    with cloud_story(tmp_path) as story:
        compute = story.cloud.compute
        compute.image_s = 0.5
        (tmp_path / "setup.sh").write_text(SCRIPT)
        image = story.cloud.image("train:1")
        story.spot("base", "create", "torch", "--script", "setup.sh", "--image", image, folder=tmp_path)

        def ready() -> bool:
            [base] = bases(story)
            assert base["status"] != "failed", base["detail"] + story.told("base-torch-v1")
            return base["status"] == "ready"

        wait_for(ready, LONG_S, "the base")
        wait_for(lambda: compute.names() == [], 60, "its machine to go")
        [made] = compute.custom.values()
        assert made["labels"]["spot-base"] == "torch-v1"
        assert "torch-v1" in story.spot("base", "ls")

        for run_id in ("one", "two"):
            story.daemon.submit(run_id, command=USES, base="torch")
        for run_id in ("one", "two"):
            story.until(run_id, lambda run: run["status"] == "completed", f"{run_id} to end")
            found = story.cloud.storage.find(BUCKET, runfiles.results(run_id, 1) + "made")
            assert found is not None
            assert found.data == b"made for base-torch-v1\n", "the script has not run again"
        machines = [vm for vm in story.cloud.machines.vms if not vm.name.startswith("spot-base-")]
        users = [vm for vm in machines if any("spot-base" in call for call in vm.calls("docker") if call[0] == "run")]
        assert len(users) == 2
        assert not any(call[0] == "pull" for vm in users for call in vm.calls("docker"))
        story.spot("base", "rm", "torch-v1")
        wait_for(lambda: not bases(story), 90, "the base to go")
        assert compute.custom == {}
