"""One list of Jobs and one of pods, in pages; and what is read beside them, rarely."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import httpx2
import pytest

from supervisor.domain.causes import Cause
from supervisor.domain.machines import MachineState
from supervisor.ports.provider import ProviderUnavailable, QuotaExceeded
from supervisor.providers.kubernetes.api import PAGE, Api, Connection, connection
from supervisor.providers.kubernetes.platform import KubernetesPlatform
from supervisor.providers.kubernetes.provider import MOST_LOG_BYTES, SETTLED_S
from tests.providers.kubernetes_script import NAMESPACE, Bench, ref, status


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_thousand_jobs_are_four_requests(bench: Bench) -> None:
    bench.script.pages = PAGE
    for number in range(1000):
        wanted = bench.request(f"run-{number}")
        bench.script.pod(bench.job(wanted))
    began = time.process_time()
    listing = bench.provider.machines()
    took_s = time.process_time() - began
    assert {machine.state for machine in listing.machines} == {MachineState.UP}
    assert len(listing.machines) == 1000
    assert len(bench.script.requests) == 4
    assert all(f"limit={PAGE}" in str(each.url) for each in bench.script.requests)
    assert took_s < 5.0, "a tick may take 1 s of CPU on a computer without load"


def test_a_list_that_becomes_too_old_begins_again(bench: Bench) -> None:
    bench.script.pages = 1
    wanted = [bench.request(run) for run in ("a", "b", "c")]
    for each in wanted:
        bench.job(each)
    bench.script.fail("GET", "continue=2", partial(status, 410, "Expired"))
    assert len(bench.provider.machines().machines) == 3
    assert bench.script.count("GET", "/jobs") == 3 + 3
    bench.script.fail("GET", "continue=2", partial(status, 410, "Expired"), times=9)
    with pytest.raises(ProviderUnavailable, match="too old"):
        bench.provider.machines()


def test_a_list_without_an_end_is_given_up(bench: Bench) -> None:
    page = {"items": [], "metadata": {"continue": "again"}}
    bench.script.fail("GET", "/jobs", lambda: httpx2.Response(200, json=page), times=10_000)
    with pytest.raises(ProviderUnavailable, match="has no end"):
        bench.provider.machines()


def test_a_page_without_items_is_no_end_of_the_list(bench: Bench) -> None:
    bench.script.fail("GET", "/pods", lambda: httpx2.Response(200, json={"kind": "PodList"}))
    with pytest.raises(ProviderUnavailable, match="no items"):
        bench.provider.machines()


def test_machines_of_every_supervisor_are_listed_and_other_jobs_are_not(bench: Bench) -> None:
    ours, theirs = bench.request("ours"), bench.request("theirs", supervisor_id="supervisor-two")
    for each in (ours, theirs):
        bench.script.pod(bench.job(each))
    bench.script.add("jobs", {"metadata": {"name": "backup", "labels": {"app": "backup"}}})
    listed = {machine.name: machine.supervisor_id for machine in bench.provider.machines().machines}
    assert listed == {ours.name: "supervisor-one", theirs.name: "supervisor-two"}


def test_a_word_that_nobody_knows_makes_its_pool_unknown_and_no_other(bench: Bench) -> None:
    odd, fine = bench.request("odd"), bench.request("fine")
    bench.script.pod(bench.job(odd), status={"phase": "Unknown"})
    bench.script.pod(
        bench.job(fine, metadata={"labels": {**bench.job(fine)["metadata"]["labels"], "spot-zone": "big"}})
    )
    listing = bench.provider.machines()
    assert [machine.name for machine in listing.machines] == [fine.name]
    assert listing.unread("spot") == "spot-odd-a1-t1: Kubernetes says 'Unknown' about its phase"
    assert listing.unread("big") == ""
    with pytest.raises(ProviderUnavailable):
        bench.provider.find(ref(odd))


def test_events_are_read_only_for_a_wait_and_at_most_once_a_minute(bench: Bench) -> None:
    running, young = bench.request("running"), bench.request("young")
    bench.script.pod(bench.job(running))
    bench.provider.machines()
    assert bench.script.count("GET", "/events") == 0
    bench.job(young)
    for _ in range(3):
        bench.provider.machines()
    assert bench.script.count("GET", "/events") == 1
    bench.now += 61.0
    bench.script.fail("GET", "/events", partial(status, 403, "Forbidden"))
    assert len(bench.provider.machines().machines) == 2, "the listing is complete without them"
    bench.now += 600.0
    bench.provider.machines()
    assert bench.script.count("GET", "/events") == 2, "a refusal is remembered for an hour"
    bench.now += 3600.0
    bench.provider.machines()
    assert bench.script.count("GET", "/events") == 3


def test_a_suspended_job_that_was_seen_running_was_preempted(bench: Bench) -> None:
    wanted = bench.request()
    job = bench.job(wanted, spec={"suspend": True})
    job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "team"
    first = bench.listed(wanted)
    assert first is not None
    assert (first.state, first.queued) == (MachineState.ASKED, True)
    job["spec"]["suspend"] = False
    bench.script.pod(job)
    bench.provider.machines()
    job["spec"]["suspend"] = True
    bench.script.all("pods").clear()
    again = bench.listed(wanted)
    assert again is not None
    assert again.record is not None
    assert (again.state, again.record.cause) == (MachineState.ENDED, Cause.PREEMPTED)


def test_a_login_program_that_hangs_holds_up_nothing_for_longer_than_the_deadline() -> None:
    hangs, over = threading.Event(), threading.Event()

    def handle(request: httpx2.Request) -> httpx2.Response:
        hangs.wait(30)
        over.set()
        return httpx2.Response(200, json={"items": []})

    client = httpx2.Client(base_url="https://cluster.example", transport=httpx2.MockTransport(handle))
    api = Api(lambda: Connection(client, NAMESPACE), limit_s=0.05)
    try:
        with pytest.raises(ProviderUnavailable, match=r"within 0\.05 s"):
            api.items(api.jobs())
    finally:
        hangs.set()
        assert over.wait(30)
        api.close()


def test_a_kubeconfig_that_cannot_be_used_is_said_in_words(tmp_path: Path) -> None:
    for text in ("", "a: [", "clusters: []\ncontexts: []\nusers: []\n"):
        (tmp_path / "config").write_text(text)
        api = Api(lambda: connection(str(tmp_path / "config"), "", ""))
        with pytest.raises(ProviderUnavailable, match="kubeconfig cannot be used"):
            api.items("/api/v1/pods")
    missing = Api(lambda: connection(str(tmp_path / "missing"), "", ""))
    with pytest.raises(ProviderUnavailable, match="not found"):
        missing.namespace  # noqa: B018 - raises


def test_a_kubeconfig_that_is_no_yaml_shows_no_token(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("users:\n- {name: u, user: {token: a-secret, }\nx: [\n")
    api = Api(lambda: connection(str(tmp_path / "config"), "", ""))
    with pytest.raises(ProviderUnavailable, match="ParserError: line 3 is not YAML") as failed:
        api.items("/api/v1/pods")
    assert "a-sec" not in str(failed.value)


CONFIG = """\
apiVersion: v1
kind: Config
current-context: a
clusters:
- {name: c, cluster: {server: "http://127.0.0.1:9/prefix"}}
users:
- {name: u, user: {token: t}}
contexts:
- {name: a, context: {cluster: c, user: u, namespace: one}}
- {name: b, context: {cluster: c, user: u}}
"""


def test_the_namespace_is_that_of_the_settings_else_of_the_context(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(CONFIG)
    for context, namespace, wanted in (("", "", "one"), ("b", "", "default"), ("a", "two", "two")):
        opened = connection(str(path), context, namespace)
        assert opened.namespace == wanted
        opened.http.close()


def test_what_is_created_while_a_list_is_read_is_not_forgotten(bench: Bench) -> None:
    """The list does not have that Job, and its Secret is known to be there all the same."""
    wanted, handle = bench.request(), bench.script.handle

    def first_list(request: httpx2.Request) -> httpx2.Response:
        response = handle(request)
        bench.script.handle = handle  # type: ignore[method-assign]
        bench.provider.launch(wanted)
        return response

    bench.script.handle = first_list  # type: ignore[method-assign]
    bench.provider.api.close()
    assert bench.provider.machines().machines == ()
    bench.provider.machines()
    before = len(bench.script.requests)
    assert bench.provider.launch(replace(wanted, repeated=True)).state is MachineState.ASKED
    assert len(bench.script.requests) == before


@pytest.mark.parametrize("restarted", [False, True])
def test_a_refusal_counts_also_where_the_machines_are_listed_before_each_repeat(bench: Bench, restarted: bool) -> None:
    """As the loop does it: what is unclear about the first call must not begin again with each listing."""
    wanted = bench.request()
    bench.script.fail("POST", "/jobs$", httpx2.ReadTimeout)
    bench.script.fail("POST", "/jobs$", partial(status, 403, "Forbidden", "exceeded quota: team"), times=99)
    with pytest.raises(ProviderUnavailable):
        bench.provider.launch(wanted)
    provider = bench.fresh() if restarted else bench.provider
    for _ in range(3):
        provider.machines()
        with pytest.raises(ProviderUnavailable):
            provider.launch(replace(wanted, repeated=True))
        bench.now += SETTLED_S / 3
    provider.machines()
    with pytest.raises(QuotaExceeded):
        provider.launch(replace(wanted, repeated=True))


def test_a_console_is_read_only_as_far_as_it_is_needed(bench: Bench) -> None:
    """A cluster may keep a log of many GB."""
    wanted = bench.request()
    pod = bench.script.pod(bench.job(wanted))
    bench.script.add("logs", {"metadata": {"name": pod["metadata"]["name"]}, "content": b"0123456789" * 10})
    platform = KubernetesPlatform(bench.provider, bench.settings)
    parts = [platform.console_after(ref(wanted), start, 20) for start in (0, 20, -5, 100)]
    assert [(part.content, part.end) for part in parts] == [
        (b"0123456789" * 2, 20), (b"0123456789" * 2, 40), (b"56789", 100), (b"", 100),
    ]  # fmt: skip
    limits = [int(each.url.params["limitBytes"]) for each in bench.script.requests if "/log" in each.url.path]
    assert limits == [20, 40, MOST_LOG_BYTES, 120]
