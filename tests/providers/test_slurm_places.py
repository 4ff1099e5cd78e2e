"""Where jobs of a real cluster work: on which node, in a container, with stores behind a login node."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.contract import runfiles
from supervisor.contract.stores.folder import FolderStore
from supervisor.ports.objectstore import StayBeat
from supervisor.providers.slurm.make import relay_of
from supervisor.providers.slurm.provider import SlurmPlatform
from supervisor.providers.slurm.settings import SlurmSettings
from supervisor.providers.slurm.site import LoginNode
from supervisor.remote.connections import Connections
from tests.contracts.provider_subject import ref
from tests.providers import stub_apptainer
from tests.providers.local_machines import alive
from tests.providers.slurm_cluster import SlurmCluster, running
from tests.providers.slurm_machines import BehindLoginNode, Calls, SlurmSubject
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with running() as cluster:
        yield cluster


def test_a_node_that_is_set_aside_is_avoided_and_one_that_is_gone_stops_nothing(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    subject = SlurmSubject(cluster, tmp_path)
    try:
        first, second, third = (subject.request(attempt=number) for number in (1, 2, 3))
        node = subject.up(first).node
        assert node == cluster.run("squeue", "--me", "--noheader", "--format=%N")
        assert subject.up(replace(second, avoid=(node,))).node not in ("", node)
        subject.provider.release(ref(first))
        subject.gone(first)
        calls = Calls(subject.provider)
        subject.up(replace(third, avoid=("no-such-node",)))
        submits = [words for words in calls.made if words[0] == "sbatch"]
        assert ["--exclude=no-such-node" in words for words in submits] == [True, False]
    finally:
        subject.end_all()


def test_a_job_runs_in_the_container_of_its_shape(cluster: SlurmCluster, tmp_path: Path) -> None:
    """A stop reaches its agent through Apptainer, which is the batch shell; here a stand-in."""
    program, image = stub_apptainer.write(tmp_path)
    containers = {"slurm_containers": {"v100": str(image)}, "slurm_apptainer": str(program)}
    subject = SlurmSubject(cluster, tmp_path, slurm_gres={"v100": "gpu:1"}, **containers)
    try:
        request = subject.request()
        request = replace(request, placement=replace(request.placement, shape="v100"))
        subject.up(request)
        agent = subject.pids(request)["agent"]
        (words,) = stub_apptainer.words_given(image)
        assert words[:5] == ["exec", "--nv", "--bind", str(tmp_path / "shared"), str(image)]
        preview = SlurmPlatform(subject.provider, SlurmSettings(**subject.settings)).preview(request)
        assert preview["argv"][-7:] == ["--", str(program), *words[:5]]
        parent = Path(f"/proc/{agent}/stat").read_text().rpartition(")")[2].split()[1]
        assert b"stub_apptainer" in Path(f"/proc/{parent}/cmdline").read_bytes()
        subject.provider.ask_to_stop(ref(request))
        wait_for(lambda: not alive(agent), 30, "the agent to stop")
    finally:
        subject.end_all()


@pytest.mark.parametrize(("image", "digest"), [("docker://a/b@sha256:12", "sha256:12"), ("/x.sif", None)])
def test_the_digest_of_a_reference_is_for_the_facts(
    cluster: SlurmCluster, tmp_path: Path, image: str, digest: str | None
) -> None:
    subject = SlurmSubject(cluster, tmp_path, slurm_containers={"spot": image})
    try:
        request = subject.request()
        subject.provider.launch(request)
        assert json.loads((subject.folder(request) / "job.json").read_text()).get("image_digest") == digest
    finally:
        subject.end_all()


def test_a_listing_has_the_beats_of_stores_on_the_cluster(cluster: SlurmCluster, tmp_path: Path) -> None:
    """Before it returns, and with no further call. All partitions are one place, so each stay is listed once."""
    subject = BehindLoginNode(cluster, tmp_path)
    transfers = Connections(subject.node.config, subject.node.known_hosts, waits=False)
    site, notes = subject.provider.site, list[tuple[str, list[tuple[str, bytes]]]]()
    assert isinstance(site, LoginNode)
    relay = relay_of(subject.provider, site.host, transfers, "sup-1")

    def note(place: str, beats: Sequence[StayBeat]) -> None:
        notes.append((place, [(beat.run_id, beat.data) for beat in beats]))

    try:
        relay.follow(note)
        store = relay.make("cluster", "digits-1.1.1", "digits")
        store.put(runfiles.beat("digits"), b"a beat")
        assert FolderStore.at(store.url).root == str(tmp_path / "shared" / "stays/digits-1.1.1/store")
        subject.provider.find(ref(subject.request()))
        assert notes == []
        subject.provider.machines()
        assert notes == [("cluster", [("digits", b"a beat")])]
        assert relay.places() == ("cluster",)
        assert {relay.place_of(zone) for zone in ("spot", "prod")} == {"cluster"}
        assert [stay.busy for stay in relay.stays("cluster")] == [False]
    finally:
        transfers.close()
        subject.end_all()
