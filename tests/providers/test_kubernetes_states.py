"""Each word of Kubernetes about a pod or a Job has its row, and a word that nobody knows ends nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from supervisor.domain.causes import Cause, Kind, rule_for
from supervisor.domain.machines import LAUNCH_LABEL, RUN_LABEL, SUPERVISOR_LABEL, Machine, MachineState
from supervisor.providers.kubernetes.machines import AGAIN, Beside, Sighting, epoch, seen, sightings
from supervisor.providers.kubernetes.states import DISRUPTIONS, FAILURES, UnknownState
from tests.providers.kubernetes_script import conditions, pod_of

S, C = MachineState, Cause
GPU = "nvidia.com/gpu"
LABELS = {
    "spot-machine": "m", SUPERVISOR_LABEL: "s", RUN_LABEL: "r", LAUNCH_LABEL: "1.1.1", "spot-zone": "spot",
    "spot-shape": "a100",
}  # fmt: skip
CREATED = "2026-11-26T10:00:00Z"


def job(status: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    metadata = {"name": "m", "uid": "u", "creationTimestamp": CREATED, "labels": LABELS, **changes.pop("metadata", {})}
    return {"metadata": metadata, "spec": changes.pop("spec", {}), "status": status or {}}


def pod(status: dict[str, Any] | None = None, name: str = "m-x", **changes: Any) -> dict[str, Any]:
    return pod_of(name, {"kind": "Job", "uid": "u", "name": "m"}, {"labels": LABELS}, status=status or {}, **changes)


def machine(of_job: dict[str, Any], *pods: dict[str, Any], **values: Any) -> Machine | None:
    return seen(Sighting(of_job, pods, **values), GPU).machine


def state(of_job: dict[str, Any], *pods: dict[str, Any], **values: Any) -> tuple[MachineState, Cause | None]:
    """Of a machine that is not gone."""
    there = machine(of_job, *pods, **values)
    assert there is not None
    return there.state, None if there.record is None else there.record.cause


def container(**state_of: Any) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "training", "state": state_of}]}


def ended(reason: str, code: int, message: str = "", phase: str = "Failed") -> dict[str, Any]:
    return {"phase": phase, **container(terminated={"reason": reason, "exitCode": code, "message": message})}


DELETED = {"deletionTimestamp": CREATED}


# --- a pod that runs or has ended -------------------------------------------------------------------------------------


def test_a_machine_has_the_node_of_its_pod() -> None:
    there, waiting = machine(job(), pod(spec={"nodeName": "node-a"})), machine(job())
    assert there is not None
    assert waiting is not None
    assert (there.node, waiting.node) == ("node-a", "")


def test_a_running_pod_is_up() -> None:
    there = machine(job(), pod())
    assert there is not None
    assert (there.state, there.record, there.machine_id, there.zone) == (S.UP, None, "u", "spot")
    assert there.created_at == epoch(CREATED)


def test_a_pod_on_a_node_that_is_silent_is_up_with_a_doubt() -> None:
    def ready(word: str, containers: str = "True") -> dict[str, Any]:
        return {"conditions": [{"type": "Ready", "status": word}, {"type": "ContainersReady", "status": containers}]}

    there = machine(job(), pod(ready("False")))
    assert there is not None
    assert there.doubt is not None
    assert (there.state, there.record, there.doubt.cause) == (S.UP, None, C.HOST_ERROR)
    for fine in (ready("True"), ready("False", "False")):
        certain = machine(job(), pod(fine))
        assert certain is not None
        assert certain.doubt is None


@pytest.mark.parametrize("reason", [*DISRUPTIONS, "SomethingNew"])
@pytest.mark.parametrize("phase", ["Running", "Pending", "Failed", "Succeeded"])
def test_a_disruption_is_free_whatever_its_reason(reason: str, phase: str) -> None:
    status = {"phase": phase, **conditions(("DisruptionTarget", reason, "a text of the cluster"))}
    there = machine(job(), pod(status, metadata=DELETED))
    assert there is not None
    assert there.record is not None
    assert there.state is (S.ENDING if phase in ("Running", "Pending") else S.ENDED)
    cause = {"DeletionByTaintManager": C.HOST_ERROR, "DeletionByPodGC": C.HOST_ERROR, "SomethingNew": C.HOST_ERROR}
    assert there.record.cause is cause.get(reason, C.PREEMPTED)
    assert rule_for(there.record.cause).kind is Kind.FREE
    assert reason in there.record.detail
    assert "a text of the cluster" in there.record.detail


def test_a_pod_that_is_about_to_be_disrupted_still_runs() -> None:
    status = {"phase": "Running", **conditions(("DisruptionTarget", "EvictionByEvictionAPI", ""))}
    assert state(job(), pod(status)) == (S.UP, None)


def test_a_pod_that_somebody_deletes_while_its_job_stands() -> None:
    for phase, where in (("Running", S.ENDING), ("Pending", S.ENDING), ("Succeeded", S.ENDED), ("Failed", S.ENDED)):
        assert state(job(), pod({"phase": phase}, metadata=DELETED)) == (where, C.MACHINE_DELETED)
    failed = conditions(("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"))
    assert state(job(failed)) == (S.ENDED, C.MACHINE_DELETED), "its pod would still be there"


def test_a_job_that_somebody_deletes_and_one_that_we_delete() -> None:
    assert state(job(metadata=DELETED), pod(metadata=DELETED)) == (S.ENDING, C.MACHINE_DELETED)
    assert state(job(metadata=DELETED), pod(metadata=DELETED), was_released=True) == (S.ENDING, None)


EVICTIONS = [
    ("The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi, available: 5Gi. ", C.DISK_FULL),
    ("Pod ephemeral local storage usage exceeds the total limit of containers 20Gi. ", C.DISK_FULL),
    ('Usage of EmptyDir volume "machine" exceeds the limit "20Gi". ', C.DISK_FULL),
    ('Container training exceeded its local ephemeral storage limit "20Gi". ', C.DISK_FULL),
    ("The node was low on resource: inodes. ", C.DISK_FULL),
    ('Usage of EmptyDir volume "shm" exceeds the limit "2Gi". ', C.HOST_OOM),
    ("The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. ", C.HOST_ERROR),
    ("The node was low on resource: pids. ", C.HOST_ERROR),
    ("", C.HOST_ERROR),
]


@pytest.mark.parametrize(("message", "cause"), EVICTIONS)
def test_an_eviction_by_its_node(message: str, cause: Cause) -> None:
    disrupted = conditions(("DisruptionTarget", "TerminationByKubelet", message)) if "node was low" in message else {}
    status = {"phase": "Failed", "reason": "Evicted", "message": message, **disrupted}
    there = machine(job(), pod(status))
    assert there is not None
    assert there.record is not None
    assert (there.state, there.record.cause) == (S.ENDED, cause)
    assert message.strip() in there.record.detail or len(message) > 200


ENDS = [
    (ended("OOMKilled", 137), C.HOST_OOM),
    (ended("Completed", 0, phase="Succeeded"), None),
    (ended("Error", 1), None),
    (ended("Error", 137), None),
    (ended("Error", 3), None),
    (ended("Error", 4, "needs Python 3.8"), C.IMAGE_ERROR),
    (ended("Error", 6, "no Python 3.8 or newer in this image"), C.IMAGE_ERROR),
    (ended("ContainerStatusUnknown", 137, "The container could not be located"), C.HOST_ERROR),
    (ended("StartError", 128, 'exec: "/bin/sh": stat /bin/sh: no such file or directory'), C.IMAGE_ERROR),
    (ended("ContainerCannotRun", 127, 'exec: "/bin/sh": executable file not found in $PATH'), C.IMAGE_ERROR),
    (ended("StartError", 128, "nvidia-container-cli: initialization error: driver"), C.GPU_UNAVAILABLE),
    (ended("StartError", 128, "failed to create shim task: context canceled"), C.HOST_ERROR),
    (
        {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no healthy devices present"},
        C.GPU_UNAVAILABLE,
    ),
    ({"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "something else"}, C.HOST_ERROR),
    ({"phase": "Failed", "reason": "OutOfnvidia.com/gpu", "message": "Node didn't have enough resource"}, C.HOST_ERROR),
    ({"phase": "Failed", "reason": "OutOfcpu"}, C.HOST_ERROR),
    *(({"phase": "Failed", "reason": reason}, cause) for reason, (cause, _) in FAILURES.items()),
    ({"phase": "Failed", "reason": "SomethingNew"}, None),
]


@pytest.mark.parametrize(("status", "cause"), ENDS)
def test_an_end_of_a_pod(status: dict[str, Any], cause: Cause | None) -> None:
    there = machine(job(), pod(status))
    if cause is None:
        assert there is None, "the baton and the last beat say how it ended"
    else:
        assert state(job(), pod(status)) == (S.ENDED, cause)


def test_the_memory_of_the_container_counts_before_the_disruption() -> None:
    status = {**ended("OOMKilled", 137), **conditions(("DisruptionTarget", "TerminationByKubelet", ""))}
    assert state(job(), pod(status)) == (S.ENDED, C.HOST_OOM)


@pytest.mark.parametrize("status", [{"phase": "Unknown"}, {"phase": "Dreaming"}, {"phase": ""}, {"reason": "NodeLost"}])
def test_a_word_that_nobody_knows_and_a_node_that_is_away_end_nothing(status: dict[str, str]) -> None:
    with pytest.raises(UnknownState):
        machine(job(), pod(status))


def test_the_first_pod_is_the_machine() -> None:
    later = pod(name="m-y", metadata={"creationTimestamp": "2026-11-26T10:05:00Z"})
    first = pod(ended("Error", 137))
    there = next(iter(sightings([job()], [later, first], Beside())))
    assert [each["metadata"]["name"] for each in there.pods] == ["m-x", "m-y"]
    again = seen(there, GPU).machine
    assert again is not None
    assert again.record is not None
    assert (again.state, again.record.cause, again.record.detail) == (S.ENDED, C.PREEMPTED, AGAIN)
    oom = replace(there, pods=[pod(ended("OOMKilled", 137)), later])
    assert state(oom.job, *oom.pods) == (S.ENDED, C.HOST_OOM)


def test_of_two_pods_of_one_second_the_same_one_is_always_the_machine() -> None:
    one, other = pod(metadata={"uid": "b"}), pod(name="m-y", metadata={"uid": "a"})
    both = [next(iter(sightings([job()], pods, Beside()))).pods for pods in ([one, other], [other, one])]
    assert both == [[other, one]] * 2


def test_a_pod_of_another_job_and_a_job_of_somebody_else_are_none_of_ours() -> None:
    foreign = pod()
    foreign["metadata"]["ownerReferences"][0]["uid"] = "other"
    (there,) = sightings([job(), {"metadata": {"name": "backup", "uid": "b", "labels": {}}}], [foreign], Beside())
    assert (there.name, there.pods) == ("m", [])


# --- a Job without its pod --------------------------------------------------------------------------------------------


def test_the_conditions_of_a_job_outlive_its_pod() -> None:
    deadline = ("DeadlineExceeded", "Job was active longer than specified deadline")
    assert state(job(conditions(("Failed", *deadline)))) == (S.ENDED, C.TIME_LIMIT)
    assert state(job(conditions(("FailureTarget", *deadline))), pod(metadata=DELETED)) == (S.ENDING, C.TIME_LIMIT)
    policy = "Pod ns/m-x has condition DisruptionTarget matching FailJob rule at index 0"
    assert state(job(conditions(("Failed", "PodFailurePolicy", policy)))) == (S.ENDED, C.PREEMPTED)
    assert machine(job(conditions(("Complete", "CompletionsReached", "")))) is None
    assert state(job(conditions(("SuccessCriteriaMet", "", "")))) == (S.ENDING, None)


def test_a_condition_that_does_not_hold_or_is_new_says_nothing() -> None:
    rows = {"conditions": [{"type": "Failed", "status": "False"}, {"type": "SomethingNew", "status": "True"}]}
    assert state(job(rows), pod()) == (S.UP, None)


# --- Kueue ------------------------------------------------------------------------------------------------------------

QUEUE = {"metadata": {"labels": {**LABELS, "kueue.x-k8s.io/queue-name": "team"}}}


def suspended(since: str = CREATED) -> dict[str, Any]:
    row = {"type": "Suspended", "status": "True", "reason": "JobSuspended", "lastTransitionTime": since}
    return job({"conditions": [row]}, spec={"suspend": True}, **QUEUE)


def test_a_job_in_a_queue_is_asked_for_and_keeps_its_place() -> None:
    there = machine(suspended())
    assert there is not None
    assert (there.state, there.queued, there.record) == (S.ASKED, True, None)
    assert there.detail == "it waits to be admitted by the queue team"
    admitted = machine(job(spec={"suspend": False}, **QUEUE))
    assert admitted is not None
    assert (admitted.state, admitted.queued) == (S.ASKED, True), "its pod waits for a node, and the queue comes no more"


@pytest.mark.parametrize("how", ["seen", "late", "pod"])
def test_suspended_again_after_it_ran_is_a_preemption(how: str) -> None:
    late = "2026-11-26T10:02:01Z"
    there = {
        "seen": lambda: state(suspended(), has_run=True),
        "late": lambda: state(suspended(late)),
        "pod": lambda: state(suspended(), pod(metadata=DELETED)),
    }[how]()
    assert there == (S.ENDING if how == "pod" else S.ENDED, C.PREEMPTED)
    assert state(suspended("2026-11-26T10:01:59Z")) == (S.ASKED, None), "the controller was only slow"


# --- a pod before its container runs ----------------------------------------------------------------------------------

WAITS = [
    ("ContainerCreating", "", S.STARTING, None),
    ("PodInitializing", "", S.STARTING, None),
    ("SomethingNew", "words", S.STARTING, None),
    ("ErrImagePull", 'failed to resolve reference "x": not found', S.ENDING, C.IMAGE_ERROR),
    ("ErrImagePull", "manifest unknown: manifest unknown", S.ENDING, C.IMAGE_ERROR),
    (
        "ErrImagePull",
        "pull access denied, repository does not exist or may require authorization",
        S.ENDING,
        C.IMAGE_ERROR,
    ),
    ("ErrImagePull", "failed to authorize: 401 Unauthorized", S.ENDING, C.IMAGE_ERROR),
    ("ErrImagePull", "no match for platform in manifest", S.ENDING, C.IMAGE_ERROR),
    ("ImagePullBackOff", 'Back-off pulling image "x": ErrImagePull: not found', S.ENDING, C.IMAGE_ERROR),
    ("ImagePullBackOff", 'Back-off pulling image "x"', S.STARTING, None),
    (
        "ErrImagePull",
        'failed to resolve "r.io/timeout/geoformer@sha256:0429": r.io/timeout/geoformer@sha256:0429: not found',
        S.ENDING,
        C.IMAGE_ERROR,
    ),
    (
        "ErrImagePull",
        'failed to resolve reference "r.io/denied@sha256:a": Get "https://r.io/v2/": EOF',
        S.STARTING,
        None,
    ),
    ("ErrImagePull", "net/http: TLS handshake timeout", S.STARTING, None),
    ("ErrImagePull", "dial tcp: lookup registry.example: no such host", S.STARTING, None),
    ("ErrImagePull", "toomanyrequests: access denied for now", S.STARTING, None),
    ("ErrImagePull", "502 Bad Gateway", S.STARTING, None),
    ("RegistryUnavailable", "", S.STARTING, None),
    ("InvalidImageName", "couldn't parse image name", S.ENDING, C.IMAGE_ERROR),
    ("ErrImageNeverPull", "", S.ENDING, C.IMAGE_ERROR),
    ("CreateContainerConfigError", "container has runAsNonRoot and image will run as root", S.ENDING, C.IMAGE_ERROR),
    (
        "CreateContainerConfigError",
        "failed to sync configmap cache: timed out waiting for the condition",
        S.STARTING,
        None,
    ),
    ("CreateContainerError", 'exec: "/bin/sh": executable file not found in $PATH', S.ENDING, C.IMAGE_ERROR),
    ("RunContainerError", "nvidia-container-cli: device error: unknown device", S.ENDING, C.GPU_UNAVAILABLE),
    ("CreateContainerError", "context deadline exceeded", S.STARTING, None),
]


@pytest.mark.parametrize(("reason", "message", "where", "cause"), WAITS)
def test_why_a_container_waits(reason: str, message: str, where: MachineState, cause: Cause | None) -> None:
    status = {"phase": "Pending", **container(waiting={"reason": reason, "message": message})}
    there = machine(job(), pod(status))
    assert there is not None
    assert (there.state, None if there.record is None else there.record.cause) == (where, cause)
    assert reason in there.detail or reason in ("ContainerCreating", "PodInitializing")
