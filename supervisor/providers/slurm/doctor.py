"""The doctor's lines about a Slurm cluster: what it answers, its partitions, its warnings, and the shared folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from supervisor.domain.findings import FAIL, OK, WARN, Check, Finding
from supervisor.ports.provider import LaunchRejected, ProviderUnavailable
from supervisor.providers.slurm.cluster import WARNS, Cluster, ClusterReader, Share
from supervisor.providers.slurm.jobs import Keeper
from supervisor.providers.slurm.profile import preempts
from supervisor.providers.slurm.settings import SlurmSettings
from supervisor.providers.slurm.site import Site
from supervisor.providers.slurm.traits import TRAITS
from supervisor.wording.figures import age_text, size_text

NAME = "cluster"
HINT = "try it by hand: squeue --me"
COMMAND_S = 15.0
FREE_BYTES = 10 * 2**30


def cluster_checks(reader: ClusterReader, s: SlurmSettings, site: Site) -> list[Check]:
    return [Check(NAME, partial(_cluster, reader, s, site), TRAITS.group, FAIL, HINT)]


def _cluster(reader: ClusterReader, s: SlurmSettings, site: Site) -> Sequence[Finding]:
    try:
        cluster = reader.read_now()
    except ProviderUnavailable as error:
        return [Finding(NAME, FAIL, "it does not answer", str(error), HINT, TRAITS.group)]
    shares = map(_share, reader.shares()) if cluster.keeper is Keeper.ACCOUNTING else ()
    return [*findings(cluster, s, site), *shares]


def findings(cluster: Cluster, s: SlurmSettings, site: Site) -> Iterator[Finding]:
    yield _finding(NAME, OK, f"{cluster.name}, Slurm {cluster.version}; ended jobs are in {cluster.keeper}")
    for zone in s.slurm_partitions:
        yield _partition(cluster, zone)
    if cluster.keeper is Keeper.CONTROLLER:
        kept = age_text(cluster.min_job_age_s)
        fact = f"the controller forgets the end of a job after {kept} (MinJobAge)"
        cause = "accounting is off, so an end that the supervisor did not see in time has no known cause"
        yield _finding("ends", WARN, fact, cause, "ask for AccountingStorageType or JobCompType=jobcomp/filetxt")
    yield _folder(s.slurm_folder, site)
    yield from _containers(s, site)


def _share(share: Share) -> Finding:
    fact = f"{share.account}: {share.factor:.2f}, with {share.used_s / 3600:.0f} CPU hours used lately"
    return _finding("fairshare", OK, f"{fact} (1 = nothing used, 0 = far more than the share)")


def _partition(cluster: Cluster, zone: str) -> Finding:
    partition = cluster.partitions.get(zone)
    if partition is None:
        names = ", ".join(cluster.partitions) or "none"
        return _finding(zone, FAIL, "the cluster has no such partition", f"it has: {names}", "change slurm_partitions")
    limit = "no time limit" if partition.max_s is None else f"at most {age_text(partition.max_s)}"
    fact = f"{partition.nodes} {'node' if partition.nodes == 1 else 'nodes'}, {limit}"
    if partition.state.upper() != "UP":
        return _finding(zone, WARN, fact, f"its state is {partition.state}", "no job starts there until it is up")
    if not preempts(cluster, partition):
        return _finding(zone, OK, f"{fact}, no preemption")
    if not cluster.warns:
        cause = f"SlurmctldParameters has no {WARNS}, so a preemption gives no warning"
        fix = f"ask for {WARNS}; until then save checkpoints often"
        return _finding(zone, WARN, f"{fact}, preempts", cause, fix)
    return _finding(zone, OK, f"{fact}, preempts with {partition.grace_s:g} s grace")


def _folder(folder: str, site: Site) -> Finding:
    """Whether the nodes see it too is known only from a job."""
    try:
        free = int(site.folders("room")["free_bytes"])
    except (ProviderUnavailable, LaunchRejected) as error:
        fix = "set slurm_folder to a folder of yours on the shared file system"
        return _finding("folder", FAIL, folder, f"it cannot be written: {error}", fix)
    if free < FREE_BYTES:
        return _finding("folder", WARN, f"{folder}, {size_text(free)} free", "it is almost full", "make space on it")
    return _finding("folder", OK, f"{folder}, {size_text(free)} free")


def _containers(s: SlurmSettings, site: Site) -> Iterator[Finding]:
    """On this computer or the login node; only a job knows the compute nodes."""
    if not s.slurm_containers:
        return
    where = s.slurm_host or "this computer"
    for image in dict.fromkeys(s.slurm_containers.values()):
        if image.startswith("/") and _failure(site, "test", "-r", image):
            fix = "build it there, unless the nodes alone have it"
            yield _finding(image, WARN, f"it cannot be read on {where}", "slurm_containers names it", fix)
    failure = _failure(site, s.slurm_apptainer, "--version")
    if failure:
        fact = f"{s.slurm_apptainer} does not run on {where}"
        fix = "the nodes need it: ask for it, or name its module in slurm_modules"
        yield _finding("containers", WARN, fact, failure, fix)
    else:
        yield _finding("containers", OK, f"{s.slurm_apptainer} runs on {where}")


def _failure(site: Site, *words: str) -> str:
    try:
        done = site.command(words, {}, COMMAND_S)
    except (ProviderUnavailable, LaunchRejected) as error:
        return str(error)
    return "" if done.exit_code == 0 else f"{words[0]} ended with {done.exit_code}: {done.errors.strip()[:200]}"


def _finding(name: str, result: str, fact: str, cause: str = "", fix: str = "") -> Finding:
    return Finding(name, result, fact, cause, fix, TRAITS.group)
