"""The objects of a machine: what Kubernetes' own schemas say of each, and the rules that no schema has."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from supervisor.domain.machines import LAUNCH_LABEL, RUN_LABEL, SUPERVISOR_LABEL
from supervisor.ports.provider import LaunchRejected, SecretRefused
from supervisor.providers.kubernetes import objects
from supervisor.providers.kubernetes.settings import KubernetesSettings
from tests.providers.kubernetes_script import NAMESPACE, SETTINGS, request

VERSIONS = ("1.29", "1.31", "1.34", "1.37")
FULL = replace(
    SETTINGS,
    kubernetes_nodes={"a100": "nvidia.com/gpu.product=A100"},
    kubernetes_tolerations=("nvidia.com/gpu=present:NoSchedule", "spot"),
    kubernetes_service_account="trainer",
    kubernetes_pull_secrets=("registry",),
    kubernetes_claim="shared",
    kubernetes_queue="team",
    kubernetes_priority_class="low",
)
SECRETS = {"WANDB_API_KEY": "k8s:wandb/key", "HF_TOKEN": "env:HF_TOKEN"}


@pytest.fixture
def agent(tmp_path: Path) -> objects.Agent:
    path = tmp_path / "agent.pyz"
    path.write_bytes(b"an agent")
    return objects.agent_of(path)


def job(agent: objects.Agent, s: KubernetesSettings = FULL, **changes: Any) -> dict[str, Any]:
    return objects.job(s, request(secrets=SECRETS, **changes), NAMESPACE, agent, "spot")


def secret(s: KubernetesSettings = FULL, **changes: Any) -> dict[str, Any]:
    wanted = request(secrets=SECRETS, **changes)
    content = objects.job_json(s, wanted, "https://spot.example")
    return objects.secret(wanted, NAMESPACE, owner_uid="uid-1", content=content, values={"HF_TOKEN": "hush hush"})


def faults(item: Any) -> Iterator[str]:
    """What no schema says, and the API refuses, or a cluster does wrong with."""
    size = len(json.dumps({**item.get("data", {}), **item.get("binaryData", {})}))
    if size > 1_400_000:
        yield f"{item['kind']} is too large for the store of the API"
    if not objects._NAME.match(item["metadata"]["name"]):
        yield "its name"
    if item["kind"] == "Job":
        yield from job_faults(item)


def job_faults(item: Any) -> Iterator[str]:
    spec, pod = item["spec"], item["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    if pod["restartPolicy"] != "Never" or spec["backoffLimit"] != 0 or spec["podReplacementPolicy"] != "Failed":
        yield "the cluster may start it again"
    limits, requests = container["resources"]["limits"], container["resources"]["requests"]
    if limits != requests:
        yield "requests are not its limits"
    if not limits.get("nvidia.com/gpu", "1").isdigit():
        yield "a part of a GPU"
    if "ephemeral-storage" not in limits or not all(
        "sizeLimit" in each["emptyDir"] for each in volumes(item, "emptyDir")
    ):
        yield "its disk has no limit"
    if pod["automountServiceAccountToken"] is not False:
        yield "the token of its account is in the pod"
    if not all(len(value) <= 63 for value in item["metadata"]["labels"].values()):
        yield "a label"
    if {mount["name"] for mount in container["volumeMounts"]} != {volume["name"] for volume in pod["volumes"]}:
        yield "volumes and mounts are not the same"


def volumes(item: Any, kind: str) -> list[Any]:
    return [volume for volume in item["spec"]["template"]["spec"]["volumes"] if kind in volume]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("s", [SETTINGS, FULL], ids=["plain", "full"])
def test_every_object_is_valid_for_every_version(agent: objects.Agent, s: KubernetesSettings, version: str) -> None:
    for item in (job(agent, s), secret(s), objects.config_map(agent, NAMESPACE)):
        kubernetes_validate.validate(item, version, strict=True)
        assert list(faults(item)) == []


def test_a_broken_object_would_be_seen(agent: objects.Agent) -> None:
    item = job(agent)
    item["spec"]["template"]["spec"]["restartPolicy"] = "Always"
    item["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"] = {}
    assert list(faults(item)) == ["the cluster may start it again", "requests are not its limits"]
    item["spec"]["backofLimit"] = 4
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(item, VERSIONS[0], strict=True)


def test_the_job_starts_one_pod_once_and_not_for_ever(agent: objects.Agent) -> None:
    spec = job(agent, machine_max_s=100.2)["spec"]
    assert (spec["backoffLimit"], spec["completions"], spec["parallelism"]) == (0, 1, 1)
    assert (spec["activeDeadlineSeconds"], spec["ttlSecondsAfterFinished"]) == (1901, 3600)
    (rule,) = spec["podFailurePolicy"]["rules"]
    assert rule == {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert "suspend" in spec
    assert "suspend" not in job(agent, SETTINGS)["spec"]


def test_the_labels_say_whose_machine_it_is_and_where(agent: objects.Agent) -> None:
    item = job(agent)
    labels = item["metadata"]["labels"]
    assert (labels[SUPERVISOR_LABEL], labels[RUN_LABEL], labels[LAUNCH_LABEL]) == ("supervisor-one", "digits", "1.1.1")
    assert (labels["spot-zone"], labels["spot-shape"], labels["spot-machine"]) == ("spot", "a100", "spot-digits-a1-t1")
    assert labels["kueue.x-k8s.io/queue-name"] == "team"
    of_pod = item["spec"]["template"]["metadata"]["labels"]
    assert of_pod == {name: value for name, value in labels.items() if "kueue" not in name}


def test_a_shape_is_gpus_cpus_memory_and_nodes(agent: objects.Agent) -> None:
    pod = job(agent)["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"cloud.example/spot": "true", "nvidia.com/gpu.product": "A100"}
    assert pod["containers"][0]["resources"]["limits"] == {
        "cpu": "8", "memory": "64Gi", "ephemeral-storage": "20Gi", "nvidia.com/gpu": "1",
    }  # fmt: skip
    plain = replace(request().placement, shape="cpu")
    assert objects.resources(SETTINGS, plain.shape) == {"ephemeral-storage": "20Gi"}


def test_a_node_that_is_set_aside_is_avoided(agent: objects.Agent) -> None:
    item = job(agent, avoid=("node-a", "node-b"))
    assert list(faults(item)) == []
    affinity = item["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert [(field["operator"], field["values"]) for field in term["matchFields"]] == [
        ("NotIn", ["node-a"]), ("NotIn", ["node-b"]),
    ]  # fmt: skip
    kubernetes_validate.validate(item, VERSIONS[0], strict=True)
    assert "affinity" not in job(agent)["spec"]["template"]["spec"]


def test_a_tag_is_pulled_again_and_a_digest_is_not(agent: objects.Agent) -> None:
    policies = []
    for image in (request().image, "registry.example/train:v3"):
        (container,) = job(agent, image=image)["spec"]["template"]["spec"]["containers"]
        policies.append(container["imagePullPolicy"])
    assert policies == ["IfNotPresent", "Always"]


def test_what_the_settings_leave_out_is_not_in_the_pod(agent: objects.Agent) -> None:
    plain, full = (job(agent, s)["spec"]["template"]["spec"] for s in (SETTINGS, FULL))
    assert set(full) - set(plain) == {"tolerations", "imagePullSecrets", "serviceAccountName", "priorityClassName"}
    assert full["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"},
        {"key": "spot", "operator": "Exists"},
    ]


def test_no_word_of_a_user_is_in_the_job(agent: objects.Agent) -> None:
    words = "echo $(id); rm -rf /"
    text = json.dumps(job(agent, job={**request().job, "command": words, "env": {"A": words}}))
    assert words not in text
    assert "id)" in base64.b64decode(secret(job={"command": words})["data"]["job.json"]).decode()


def test_secrets_are_files_and_the_cluster_reads_its_own(agent: objects.Agent) -> None:
    (volume,) = volumes(job(agent), "projected")
    own, foreign = (source["secret"] for source in volume["projected"]["sources"])
    assert own["name"] == "spot-digits-a1-t1"
    assert {item["path"] for item in own["items"]} == {"job.json", "secrets/HF_TOKEN"}
    assert foreign == {"name": "wandb", "items": [{"key": "key", "path": "secrets/WANDB_API_KEY"}]}
    data = secret()["data"]
    assert base64.b64decode(data["secret.HF_TOKEN"]) == b"hush hush"
    assert set(data) == {"job.json", "secret.HF_TOKEN"}


def test_the_secret_goes_with_its_job() -> None:
    (owner,) = secret()["metadata"]["ownerReferences"]
    assert owner == {"apiVersion": "batch/v1", "kind": "Job", "name": "spot-digits-a1-t1", "uid": "uid-1"}


def test_what_the_agent_reads() -> None:
    content = json.loads(base64.b64decode(secret()["data"]["job.json"]))
    assert (content["notice_from"], content["notice_s"]) == ("term", 115.0)
    assert (content["in_image"], content["gpus"], content["server_file"]) == (True, 1, None)
    assert content["image_digest"] == f"sha256:{'a' * 64}"
    assert content["server_url"] == "https://spot.example"
    assert content["nonce"] == "n"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"image": ""}, "the run has none"),
        ({"name": "Spot_1"}, "machine_prefix"),
        ({"supervisor_id": "a b"}, "cannot be the label"),
        ({"run_id": "r" * 64}, "cannot be the label"),
    ],
)
def test_what_the_api_would_refuse_is_refused_before(agent: objects.Agent, changes: dict[str, Any], why: str) -> None:
    with pytest.raises(LaunchRejected, match=why):
        job(agent, **changes)


def test_a_job_that_is_too_long_for_a_secret_is_refused() -> None:
    with pytest.raises(LaunchRejected, match="a Secret of the cluster can hold 1000000") as refused:
        secret(job={"command": "x" * 1_000_000})
    assert refused.value.of_run


@pytest.mark.parametrize("reference", ["k8s:", "k8s:name", "k8s:UP/key", "k8s:name/", "k8s:name/a/b", "k8s:../x"])
def test_a_reference_of_another_form_is_refused_by_name(reference: str) -> None:
    with pytest.raises(SecretRefused, match="secret BAD"):
        objects.check_secrets(request(secrets={"BAD": reference}))
    assert "k8s:NAME/KEY" in objects.secret_problem(reference)


def test_the_name_of_the_agent_is_its_content(tmp_path: Path) -> None:
    names = set()
    for content in (b"one", b"two", b"one"):
        (tmp_path / "agent.pyz").write_bytes(content)
        names.add(objects.agent_of(tmp_path / "agent.pyz").name)
    assert len(names) == 2
    with pytest.raises(LaunchRejected, match="not complete"):
        objects.agent_of(tmp_path / "missing")


# --- the script -------------------------------------------------------------------------------------------------------

AGENT = """\
import json, os, sys
own = {"pid": os.getpid(), "folder": os.environ["SPOT_MACHINE_DIR"], "umask": os.umask(0)}
print(json.dumps({"argv": sys.argv[1:], **own}))
"""


def run(folder: Path, path: str = "/usr/bin:/bin") -> subprocess.CompletedProcess[str]:
    """The script as a container runs it, with folders in place of its mounts."""
    agent, job_dir = folder / "agent", folder / "job"
    agent.mkdir()
    job_dir.mkdir()
    (agent / "agent.pyz").write_text(AGENT)
    (job_dir / "job.json").write_text('{"version": 1}')
    own = {
        "PATH": path, "SPOT_AGENT_DIR": str(agent), "SPOT_JOB_DIR": str(job_dir),
        "SPOT_MACHINE_DIR": str(folder / "machines" / "with space $(id)"), "SPOT_JOB_UID": "job-1",
        "SPOT_POD_UID": "pod-2",
    }  # fmt: skip
    command = ["/bin/sh", str(objects.SCRIPT)]
    return subprocess.run(command, env=own, capture_output=True, text=True, timeout=30, check=False, umask=0o022)


def test_the_script_fills_the_folder_and_becomes_the_agent(tmp_path: Path) -> None:
    done = run(tmp_path, f"{Path(sys.executable).parent}:/usr/bin:/bin")
    folder = tmp_path / "machines" / "with space $(id)"
    assert json.loads(done.stdout)["argv"] == [str(folder)]
    assert json.loads((folder / "identity.json").read_text()) == {"machine_id": "job-1.pod-2"}
    assert (folder / "job.json").read_text() == '{"version": 1}'
    assert done.returncode == 0
    assert [path.stat().st_mode & 0o077 for path in (folder, *folder.iterdir())] == [0, 0, 0, 0]
    assert json.loads(done.stdout)["umask"] == 0o022, "files of a store on a claim are read by another user"


def test_an_image_without_python_ends_with_a_code_of_its_own(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("mkdir", "cp"):
        os.symlink(f"/bin/{name}", tools / name)
    done = run(tmp_path, str(tools))
    assert done.returncode == 6
    assert "no Python 3.8 or newer in this image" in done.stderr


def test_a_mount_that_is_not_there_ends_with_a_code_of_its_own(tmp_path: Path) -> None:
    own = {"PATH": "/usr/bin:/bin", "SPOT_MACHINE_DIR": str(tmp_path / "m"), "SPOT_AGENT_DIR": str(tmp_path / "none")}
    command = ["/bin/sh", str(objects.SCRIPT)]
    assert subprocess.run(command, env=own, capture_output=True, timeout=30, check=False).returncode == 5


@pytest.mark.parametrize(
    ("setting_s", "checkpoint_s", "grace_s"),
    [
        (None, None, 120), (None, 30.0, 123), (None, 100.2, 264), (None, 5000.0, 900),
        (25.0, None, 25), (25.0, 300.0, 25), (1.5, None, 2),
    ],
)  # fmt: skip
def test_the_grace_time_is_two_checkpoints_or_what_the_setting_says(
    agent: objects.Agent, setting_s: float | None, checkpoint_s: float | None, grace_s: int
) -> None:
    s = replace(SETTINGS, kubernetes_grace_s=setting_s)
    spec = job(agent, s, checkpoint_s=checkpoint_s)["spec"]["template"]["spec"]
    assert spec["terminationGracePeriodSeconds"] == grace_s
    content = objects.job_json(s, request(checkpoint_s=checkpoint_s), "")
    assert content["notice_s"] == max(1.0, grace_s - 5.0)
