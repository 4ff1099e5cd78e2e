"""Every request of the provider, broken in every way: one Job at most, or a definite word why there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from supervisor.domain.machines import MachineState
from supervisor.ports.provider import (
    LaunchFailed,
    LaunchRejected,
    NotSupported,
    ProviderUnavailable,
    QuotaExceeded,
    SecretRefused,
)
from supervisor.providers.kubernetes.provider import SETTLED_S
from supervisor.providers.kubernetes.waiting import NoGpu
from tests.providers.kubernetes_script import Answer, Bench, bodies, conditions, ref, status, torn

JOBS, SECRETS, MAPS = r"/jobs$", r"/secrets$", r"/configmaps$"
# What may come in place of a response, and whether it says for certain that nothing was created.
ANSWERS: dict[str, tuple[Answer, bool]] = {
    "401": (partial(status, 401, "Unauthorized"), False),
    "403 rights": (partial(status, 403, "Forbidden", 'User "x" cannot create resource "jobs"'), True),
    "403 quota": (partial(status, 403, "Forbidden", 'jobs "x" is forbidden: exceeded quota: team'), True),
    "403 webhook": (partial(status, 403, "Forbidden", "admission webhook denied the request: no"), True),
    "404": (partial(status, 404, "NotFound", 'namespaces "training" not found'), True),
    "404 proxy": (lambda: httpx2.Response(404, text="no such route"), False),
    "409": (partial(status, 409, "Conflict", "the object has been modified"), False),
    "410": (partial(status, 410, "Expired"), False),
    "422": (partial(status, 422, "Invalid", "spec.template: Invalid value"), True),
    "429": (partial(status, 429, "TooManyRequests"), False),
    "500": (partial(status, 500, "InternalError"), False),
    "502 proxy": (lambda: httpx2.Response(502, text="<html>"), False),
    "503": (partial(status, 503, "ServiceUnavailable"), False),
    "reset": (httpx2.ReadError, False),
    "refused": (httpx2.ConnectError, False),
    "hang": (httpx2.ReadTimeout, False),
    "torn": (torn, False),
}
each_answer = pytest.mark.parametrize("word", ANSWERS)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def repeat(bench: Bench, wanted: Any, calls: int = 4) -> Any:
    """The same launch until it has a definite end, as the loop does it."""
    for number in range(calls):
        try:
            return bench.provider.launch(replace(wanted, repeated=number > 0))
        except LaunchFailed as error:
            return error
        except ProviderUnavailable:
            bench.now += 30.0
    raise AssertionError("no end")


@each_answer
@pytest.mark.parametrize("lost", [False, True], ids=["not done", "done"])
@pytest.mark.parametrize("path", [JOBS, SECRETS, MAPS])
def test_a_create_that_fails_once_makes_one_machine_or_has_a_definite_end(
    bench: Bench, word: str, lost: bool, path: str
) -> None:
    answer, is_definite = ANSWERS[word]
    wanted = bench.request()
    bench.script.fail("POST", path, answer, lost=lost)
    end = repeat(bench, wanted)
    if isinstance(end, LaunchFailed):
        assert is_definite
        assert not (lost and path == JOBS), "its Job is there"
        assert bench.script.all("jobs") == {}, "a refused launch leaves no Job"
    else:
        assert end.state is MachineState.ASKED
        assert [end.machine_id] == [job["metadata"]["uid"] for job in bench.script.all("jobs").values()]
        assert set(bench.script.all("secrets")) == {wanted.name}
    assert bench.script.made.count(wanted.name) <= 1


@each_answer
def test_a_cluster_that_keeps_failing_is_never_believed_for_a_job_that_is_there(bench: Bench, word: str) -> None:
    """The first create is carried out and its response is lost; after that nothing is answered well."""
    answer, _ = ANSWERS[word]
    wanted = bench.request()
    bench.script.fail("POST", JOBS, httpx2.ReadTimeout, lost=True)
    bench.script.fail("POST", JOBS, answer, times=99)
    bench.script.fail("GET", r"/jobs", answer, times=99)
    with pytest.raises(ProviderUnavailable):
        bench.provider.launch(wanted)
    try:
        bench.provider.launch(replace(wanted, repeated=True))
    except ProviderUnavailable:
        pass
    except LaunchFailed as error:
        raise AssertionError(f"{word}: {error}") from error
    assert len(bench.script.all("jobs")) == 1


@each_answer
def test_a_refused_repeat_finds_the_job_of_the_first_call(bench: Bench, word: str) -> None:
    answer, _ = ANSWERS[word]
    wanted = bench.request()
    bench.script.fail("POST", JOBS, httpx2.ReadTimeout, lost=True)
    bench.script.fail("POST", JOBS, answer)
    end = repeat(bench, wanted)
    assert end.machine_id == bench.script.all("jobs")[wanted.name]["metadata"]["uid"]
    assert len(bench.script.made) == 1


def test_a_refusal_counts_once_no_earlier_call_can_make_a_job(bench: Bench) -> None:
    wanted, answer = bench.request(), ANSWERS["403 quota"][0]
    bench.script.fail("POST", JOBS, httpx2.ReadTimeout)
    bench.script.fail("POST", JOBS, answer, times=9)
    for _ in range(2):
        with pytest.raises(ProviderUnavailable):
            bench.provider.launch(wanted)
    bench.now += SETTLED_S
    with pytest.raises(QuotaExceeded) as refused:
        bench.provider.launch(replace(wanted, repeated=True))
    assert refused.value.scope == "project"


READS: dict[str, Callable[[Bench, Any], Any]] = {
    "machines": lambda bench, wanted: bench.provider.machines(),
    "find": lambda bench, wanted: bench.provider.find(ref(wanted)),
    "release": lambda bench, wanted: bench.provider.release(ref(wanted)),
    "console": lambda bench, wanted: bench.provider.console(ref(wanted)),
}


@each_answer
@pytest.mark.parametrize("call", READS)
@pytest.mark.parametrize("path", [r"/jobs", r"/pods"])
def test_a_read_that_fails_is_unknown_and_never_absent(bench: Bench, word: str, call: str, path: str) -> None:
    answer, _ = ANSWERS[word]
    wanted = bench.request()
    bench.script.pod(bench.job(wanted))
    if call == "release" and path == r"/pods":
        path = r"/jobs/"
    bench.script.fail("GET", path, answer, times=9)
    is_absent = word == "404" and path == r"/jobs/"
    if word == "404" and call in ("find", "release", "console") and path == r"/jobs":
        is_absent = True
    if is_absent:
        assert READS[call](bench, wanted) in (None, b""), "the API says that there is no such Job"
    else:
        with pytest.raises(ProviderUnavailable):
            READS[call](bench, wanted)
    assert list(bench.script.all("jobs")) == [wanted.name]


@each_answer
@pytest.mark.parametrize("lost", [False, True])
def test_a_delete_that_fails_is_repeated_and_a_missing_job_is_success(bench: Bench, word: str, lost: bool) -> None:
    answer, _ = ANSWERS[word]
    wanted = bench.request()
    bench.job(wanted)
    bench.script.fail("DELETE", JOBS.rstrip("$"), answer, lost=lost)
    if word in ("404", "409"):  # it is gone, or has another UID by now
        bench.provider.release(ref(wanted))
    else:
        with pytest.raises(ProviderUnavailable):
            bench.provider.release(ref(wanted))
    bench.provider.release(ref(wanted))
    bench.provider.release(ref(wanted))
    assert bench.script.all("jobs") == {}


# --- launching --------------------------------------------------------------------------------------------------------


def test_the_job_comes_first_and_its_secret_belongs_to_it(bench: Bench) -> None:
    wanted = bench.request()
    machine = bench.provider.launch(wanted)
    posts = [each.url.path.rpartition("/")[2] for each in bench.script.requests if each.method == "POST"]
    assert posts == ["configmaps", "jobs", "secrets"]
    (secret,) = bodies(bench.script.requests, "secrets")
    assert secret["metadata"]["ownerReferences"][0]["uid"] == machine.machine_id
    assert (machine.name, machine.zone, machine.state) == (wanted.name, "spot", MachineState.ASKED)
    bench.provider.launch(bench.request("other"))
    assert bench.script.count("POST", MAPS) == 1, "the agent is there already"
    bench.now += 3600.0
    bench.provider.launch(bench.request("third"))
    assert bench.script.count("POST", MAPS) == 2, "somebody may have deleted it"


def test_a_secret_that_is_missing_is_made_by_the_repeat(bench: Bench) -> None:
    wanted = bench.request()
    bench.script.fail("POST", SECRETS, httpx2.ReadTimeout)
    with pytest.raises(ProviderUnavailable):
        bench.provider.launch(wanted)
    assert bench.script.all("secrets") == {}
    bench.provider = bench.fresh()  # a supervisor that was restarted between the two
    bench.provider.machines()
    bench.provider.launch(replace(wanted, repeated=True))
    assert set(bench.script.all("secrets")) == {wanted.name}
    assert len(bench.script.made) == 1


def test_a_secret_that_is_refused_ends_the_try_and_leaves_no_job(bench: Bench) -> None:
    bench.script.fail("POST", SECRETS, partial(status, 403, "Forbidden", 'cannot create resource "secrets"'))
    with pytest.raises(LaunchRejected, match="spot doctor"):
        bench.provider.launch(bench.request())
    assert bench.script.all("jobs") == {}


def test_a_machine_that_waits_costs_no_request_in_a_repeated_launch(bench: Bench) -> None:
    wanted = bench.request()
    first = bench.provider.launch(wanted)
    bench.provider.machines()
    before = len(bench.script.requests)
    again = bench.provider.launch(replace(wanted, repeated=True))
    assert (again.machine_id, again.state) == (first.machine_id, MachineState.ASKED)
    assert len(bench.script.requests) == before
    bench.now += 91.0
    bench.provider.launch(replace(wanted, repeated=True))
    assert len(bench.script.requests) > before, "the listing is too old"


def test_the_name_of_another_launch_is_refused_and_left_alone(bench: Bench) -> None:
    wanted = bench.request()
    bench.job(wanted)
    other = replace(wanted, launch_id="1.2.1")
    with pytest.raises(LaunchRejected, match=r"spot-digits-a1-t1 already exists, of launch 1\.1\.1 of run digits"):
        bench.provider.launch(other)
    assert list(bench.script.all("jobs")) == [wanted.name]


def test_a_launch_whose_machine_is_already_over_says_so(bench: Bench) -> None:
    wanted = bench.request()
    bench.job(wanted, status=conditions(("Complete", "CompletionsReached", "")))
    machine = bench.provider.launch(replace(wanted, repeated=True))
    assert (machine.state, machine.detail) == (MachineState.ENDED, "started and already ended")
    gone = bench.request("gone")
    bench.job(gone, metadata={"deletionTimestamp": "2026-11-26T10:00:00Z"})
    with pytest.raises(ProviderUnavailable, match="still being deleted"):
        bench.provider.launch(gone)


def test_what_the_settings_do_not_offer_is_refused_unless_it_is_there(bench: Bench) -> None:
    wanted = bench.request()
    elsewhere = replace(wanted, placement=replace(wanted.placement, zone="nowhere"))
    with pytest.raises(LaunchRejected, match="nowhere"):
        bench.provider.launch(elsewhere)
    bench.script.pod(bench.job(elsewhere))
    assert bench.provider.launch(elsewhere).state is MachineState.UP


def test_a_secret_that_cannot_be_read_refuses_the_launch_and_makes_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = bench.request(secrets={"API_KEY": "env:API_KEY_OF_TEST", "OTHER": "k8s:wandb/key"})
    with pytest.raises(SecretRefused, match="secret API_KEY"):
        bench.provider.launch(wanted)
    assert bench.script.count("POST") == 0
    monkeypatch.setenv("API_KEY_OF_TEST", "hush hush")
    bench.provider.launch(wanted)
    told = bench.provider.check_secrets(["env:API_KEY_OF_TEST", "k8s:wandb/key", "k8s:wandb", "env:MISSING_OF_TEST"])
    assert [bool(why) for why in told.values()] == [False, False, True, True]
    assert "hush" not in str(told)


def test_a_machine_that_runs_needs_its_secrets_no_more(bench: Bench) -> None:
    wanted = bench.request(secrets={"API_KEY": "env:MISSING_OF_TEST"})
    bench.script.pod(bench.job(wanted))
    assert bench.provider.launch(wanted).state is MachineState.UP


# --- waits that do not end by themselves ------------------------------------------------------------------------------


def waiting(bench: Bench, reason: str, message: str, **pod: Any) -> Any:
    """A launch whose Job or pod waits with this event."""
    wanted = bench.request()
    bench.provider.launch(wanted)
    job = bench.script.all("jobs")[wanted.name]
    involved = bench.script.pod(job, **pod) if pod else job
    bench.script.add("events", {
        "metadata": {"name": "e"}, "reason": reason, "message": message, "type": "Warning",
        "involvedObject": {"uid": involved["metadata"]["uid"], "name": involved["metadata"]["name"]},
        "lastTimestamp": "2026-11-26T10:00:00Z",
    })  # fmt: skip
    bench.provider.machines()
    return replace(wanted, repeated=True)


MOUNTING = {
    "status": {
        "phase": "Pending",
        "conditions": [
            {"type": "PodScheduled", "status": "True"}, {"type": "PodReadyToStartContainers", "status": "False"},
        ],
    }
}  # fmt: skip


def test_a_quota_ends_the_try_after_its_job_was_deleted(bench: Bench) -> None:
    wanted = waiting(bench, "FailedCreate", 'pods "x" is forbidden: exceeded quota: team')
    bench.script.fail("DELETE", "/jobs/", httpx2.ReadTimeout)
    with pytest.raises(ProviderUnavailable):
        bench.provider.launch(wanted)
    with pytest.raises(QuotaExceeded, match="exceeded quota: team"):
        bench.provider.launch(wanted)
    assert bench.script.all("jobs") == {}


def test_a_volume_that_stays_busy_needs_a_person_after_ten_minutes(bench: Bench) -> None:
    wanted = waiting(bench, "FailedAttachVolume", 'Multi-Attach error for volume "pvc-1"', **MOUNTING)
    machine = bench.provider.launch(wanted)
    assert (machine.state, machine.detail.partition(":")[0]) == (MachineState.ASKED, "volume busy")
    for _ in range(9):
        bench.now += 60.0
        bench.provider.machines()
        assert bench.provider.launch(wanted).state is MachineState.ASKED
    bench.now += 60.0
    bench.provider.machines()
    with pytest.raises(LaunchRejected, match="volume busy"):
        bench.provider.launch(wanted)
    assert bench.script.all("jobs") == {}


def test_a_pool_without_gpus_is_found_after_some_minutes(bench: Bench) -> None:
    row = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    row["message"] = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
    bench.script.add("nodes", {"metadata": {"name": "n", "labels": {"cloud.example/spot": "true"}}, "spec": {}})
    wanted = bench.request()
    bench.provider.launch(wanted)
    pod = bench.script.pod(bench.script.all("jobs")[wanted.name], status={"phase": "Pending", "conditions": [row]})
    del pod["spec"]["nodeName"]
    repeated = replace(wanted, repeated=True)
    bench.provider.machines()
    assert bench.provider.launch(repeated).state is MachineState.ASKED
    bench.now += 301.0
    bench.provider.machines()
    with pytest.raises(NoGpu, match="device plugin"):
        bench.provider.launch(repeated)


# --- the rest ---------------------------------------------------------------------------------------------------------


def test_a_release_leaves_another_id_and_a_job_of_somebody_else_alone(bench: Bench) -> None:
    wanted, foreign = bench.request(), bench.request("backup")
    uid = bench.job(wanted)["metadata"]["uid"]
    bench.job(foreign)["metadata"]["labels"] = {"app": "backup"}
    bench.provider.release(ref(wanted, uid + "9"))
    bench.provider.release(ref(foreign))
    assert len(bench.script.all("jobs")) == 2
    assert bench.provider.find(ref(wanted, uid + "9")) is None
    assert bench.provider.find(ref(wanted, f"{uid}.pod")) is not None, "a beat names the pod too"
    bench.provider.release(ref(wanted, f"{uid}.pod"))
    assert list(bench.script.all("jobs")) == [foreign.name]


def test_a_pod_cannot_be_asked_to_stop(bench: Bench) -> None:
    with pytest.raises(NotSupported):
        bench.provider.ask_to_stop(ref(bench.request()))


def test_the_console_is_the_log_of_its_pod(bench: Bench) -> None:
    wanted = bench.request()
    assert bench.provider.console(ref(wanted)) == b""
    job = bench.job(wanted)
    assert bench.provider.console(ref(wanted)) == b"", "it has no pod yet"
    pod = bench.script.pod(job)
    bench.script.add("logs", {"metadata": {"name": pod["metadata"]["name"]}, "content": b"one\ntwo\n"})
    assert bench.provider.console(ref(wanted)) == b"one\ntwo\n"
    assert bench.provider.console(ref(wanted), 4) == b"two\n"
    assert bench.provider.console(ref(wanted), 0) == b""
    bench.script.fail("GET", "/log", partial(status, 400, "BadRequest", "is waiting to start: ContainerCreating"))
    assert bench.provider.console(ref(wanted)) == b""


def test_credentials_are_read_again_after_they_were_refused(bench: Bench) -> None:
    bench.script.fail("GET", "/jobs", partial(status, 401, "Unauthorized"))
    opened = []
    connect = bench.provider.api._connect
    bench.provider.api._connect = lambda: (opened.append(1), connect())[1]  # type: ignore[method-assign]
    with pytest.raises(ProviderUnavailable, match="401"):
        bench.provider.machines()
    assert bench.provider.machines().machines == ()
    assert len(opened) == 2
