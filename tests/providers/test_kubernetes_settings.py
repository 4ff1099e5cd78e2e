"""The settings of a Kubernetes cluster: what is refused before any request, its offers, its profile, its doctor."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from supervisor.domain.errors import SettingsRefused
from supervisor.domain.findings import FAIL, OK, WARN, Finding
from supervisor.domain.machines import MachineRef
from supervisor.domain.profile import Danger, End, Survival, danger_clocks, survival
from supervisor.ports.provider import MachineMissing, NotSupported, ProviderUnavailable
from supervisor.providers.kubernetes import make, settings
from supervisor.providers.kubernetes.doctor import RIGHTS, cluster_checks
from supervisor.providers.kubernetes.platform import KubernetesPlatform
from supervisor.providers.kubernetes.profile import profile
from supervisor.providers.kubernetes.settings import KubernetesSettings, offers, toleration
from supervisor.reconciler.system_clock import SystemClock
from supervisor.wiring import adapters
from supervisor.wiring import settings as wired
from tests.providers.kubernetes_script import DAY, SETTINGS, Bench, ref, status
from tools.project_files import ROOT

TOML = """\
store_url = "file:///checkpoints/objects"
[providers.cluster]
kind = "kubernetes"
pools = {spot = "cloud.google.com/gke-spot=true,pool=a", big = "pool=big"}
spot_pools = ["spot"]
shapes = ["a100"]
gpus = {a100 = 1}
memory = {a100 = "64Gi"}
tolerations = ["nvidia.com/gpu=present:NoSchedule", "spot"]
prices = {a100 = "1.10/3.20"}
claim = "shared"
"""


def load(folder: Path, text: str) -> KubernetesSettings:
    path = folder / "spot.toml"
    path.write_text(text)
    values: KubernetesSettings = wired.load({}, {"HOME": str(folder)}, path).sections["cluster"].values
    return values


def test_a_section_of_the_settings_file(tmp_path: Path) -> None:
    s = load(tmp_path, TOML)
    assert s.zones == ("spot", "big")
    assert settings.labels_of(s.kubernetes_pools["spot"]) == {"cloud.google.com/gke-spot": "true", "pool": "a"}
    assert s.kubernetes_prices == {"a100": (1.1, 3.2)}
    assert "claim shared at /checkpoints" in settings.meaning(s, "file:///x", "")[0]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("pools" + TOML.partition("pools")[2], "", "needs kubernetes_pools"),
        ("big = ", '"big-" = ', "ends with a letter or a digit"),
        ("gpus = {a100 = 1}", "gpus = {a100 = 0.5}", "whole number"),
        ("gpus = {a100 = 1}", 'gpus = {a100 = "1/2"}', "whole number"),
        ("gpus = {a100 = 1}", "gpus = {h100 = 1}", "kubernetes_gpus names h100"),
        ('"64Gi"', '"64GB"', "such as a100=64Gi"),
        ('spot_pools = ["spot"]', 'spot_pools = ["cheap"]', "kubernetes_spot_pools names cheap"),
        ('"spot"]\nprices', '"spot:Never"]\nprices', "kubernetes_tolerations = spot:Never"),
        ('claim = "shared"', 'claim = "Shared_1"', "the name of a volume claim"),
        ('claim = "shared"', 'claim = "shared"\nclaim_mount = "/spot/x"', "the supervisor's own"),
        ('claim = "shared"', 'claim = "shared"\nclaim_mount = "checkpoints"', "an absolute path"),
        ('claim = "shared"', 'nodes = {a100 = "pool=b"}', "no node has both"),
        ('claim = "shared"', 'disk = "much"', "a size, such as 50Gi"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_with_what_is_expected(tmp_path: Path, old: str, new: str, why: str) -> None:
    assert old in TOML
    with pytest.raises(SettingsRefused, match=re.escape(why)):
        load(tmp_path, TOML.replace(old, new))


def test_offers_are_spot_in_spot_pools_and_on_demand_in_the_others() -> None:
    s = replace(SETTINGS, kubernetes_spot_pools=("spot",), kubernetes_prices={"a100": (1.0, 3.0)})
    made = [(o.placement.zone, o.placement.shape, o.placement.spot, o.price_usd_per_h) for o in offers("cluster", s)]
    assert made == [
        ("spot", "cpu", True, None), ("spot", "a100", True, 1.0),
        ("big", "cpu", False, None), ("big", "a100", False, 3.0),
    ]  # fmt: skip
    assert len(offers("cluster", SETTINGS)) == 8, "each pool serves both"


@pytest.mark.parametrize(
    ("word", "made"),
    [
        ("spot", {"key": "spot", "operator": "Exists"}),
        ("spot:NoExecute", {"key": "spot", "operator": "Exists", "effect": "NoExecute"}),
        ("a.b/c=d", {"key": "a.b/c", "operator": "Equal", "value": "d"}),
        ("a=:NoSchedule", {"key": "a", "operator": "Equal", "value": "", "effect": "NoSchedule"}),
    ],
)
def test_taints_are_written_as_kubectl_writes_them(word: str, made: dict[str, str]) -> None:
    assert toleration(word) == made


@pytest.mark.parametrize("word", ["", "=x", "a b", "a=b=c", "a:noschedule", "-a"])
def test_anything_else_is_no_taint(word: str) -> None:
    with pytest.raises(SettingsRefused, match="expected taints such as"):
        toleration(word)


def test_without_its_library_the_kind_is_refused_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make.ready()
    monkeypatch.setattr(make, "find_spec", lambda name: None)
    with pytest.raises(SettingsRefused, match=r"pip install 'spot-supervisor\[kubernetes\]'"):
        make.ready()


def test_no_library_is_loaded_before_it_is_used() -> None:
    code = (
        "import sys\nfrom supervisor.providers.kinds import PROVIDERS\nPROVIDERS['kubernetes'].ready()\n"
        "import supervisor.providers.kubernetes.provider, supervisor.providers.kubernetes.doctor\n"
        "print(sorted(name for name in sys.modules if name.split('.')[0] in ('lightkube', 'httpx2')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


# --- the profile ------------------------------------------------------------------------------------------------------

PAGE = (ROOT / "docs/providers/kubernetes.md").read_text(encoding="utf-8")
CLAIMED = profile(replace(SETTINGS, kubernetes_claim="shared"), DAY)


def test_the_settings_of_the_page_are_valid(tmp_path: Path) -> None:
    path = tmp_path / "spot.toml"
    path.write_text(PAGE.partition("<<'END'\n")[2].partition("\nEND\n")[0])
    s = wired.load({}, {"HOME": str(tmp_path)}, path).sections["cluster"].values
    assert [(offer.placement.zone, offer.placement.spot) for offer in offers("cluster", s)] == [
        ("spot", True), ("steady", False),
    ]  # fmt: skip


def test_the_rights_of_the_page_are_those_that_the_doctor_asks_for() -> None:
    section = PAGE.partition("## Rights")[2].partition("\n## ")[0]
    for right in RIGHTS:
        resource = f"{right.resource}/{right.subresource}" if right.subresource else right.resource
        (row,) = [line for line in section.splitlines() if line.startswith("|") and f"`{resource}`" in line]
        assert right.verb in row


def test_only_a_claim_and_a_bucket_outlive_a_pod() -> None:
    assert survival(CLAIMED, "/checkpoints/objects/runs", End.DESTROY).value is Survival.YES
    for path in ("/work", "~/x", "/spot/machines/m/work", "/run/x"):
        assert survival(CLAIMED, path, End.DESTROY).value is Survival.NO
    assert survival(profile(SETTINGS, DAY), "/checkpoints/x", End.DESTROY).value is Survival.NO


def test_the_node_goes_on_costing() -> None:
    clocks = {clock.danger: clock for clock in danger_clocks(CLAIMED, 3.0)}
    assert clocks[Danger.BILLS].verb == "", "no verb of the supervisor stops the bill"
    assert clocks[Danger.STOP_STILL_BILLS].verb == "delete the Job"
    assert "the node goes on costing until its pool shrinks" in clocks[Danger.BILLS].fact.note
    assert clocks[Danger.PREEMPTED].after_s == 120.0


# --- the doctor -------------------------------------------------------------------------------------------------------


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    s = replace(SETTINGS, kubernetes_claim="shared", kubernetes_shapes=("a100",))
    bench = Bench(tmp_path, s)
    bench.script.add("persistentvolumeclaims", claim("ReadWriteMany"))
    bench.script.add("nodes", node("n1", {"cloud.example/spot": "true"}, "8"))
    bench.script.add("nodes", node("n2", {"cloud.example/pool": "big"}, "4"))
    return bench


def claim(mode: str) -> dict[str, Any]:
    return {"metadata": {"name": "shared"}, "spec": {}, "status": {"phase": "Bound", "accessModes": [mode]}}


def node(name: str, labels: dict[str, str], gpus: str, *taints: dict[str, str]) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": list(taints)},
        "status": {"allocatable": {"nvidia.com/gpu": gpus}},
    }


def lines(bench: Bench) -> dict[str, Finding]:
    (check,) = cluster_checks(bench.provider.api, bench.settings)
    return {finding.name: finding for finding in check.ask()}


def test_a_cluster_in_order(bench: Bench) -> None:
    found = lines(bench)
    assert {name: line.result for name, line in found.items()} == dict.fromkeys(
        ("cluster", "rights", "claim", "quota", "spot a100", "big a100"), OK
    )
    assert found["spot a100"].fact == "1 nodes, 8 of nvidia.com/gpu"


def test_each_fault_has_its_line(bench: Bench) -> None:
    script = bench.script
    script.denied = {"create jobs", "get pods/log"}
    assert lines(bench)["rights"].fact == "missing: create jobs, get pods/log"
    assert lines(bench)["rights"].result == FAIL
    script.denied = {"list nodes", "list events"}
    found = lines(bench)
    assert (found["rights"].result, found["rights"].fact) == (WARN, "missing: list events, list nodes")
    assert "spot a100" not in found
    script.denied = set()
    script.add("persistentvolumeclaims", claim("ReadWriteOnce"))
    assert lines(bench)["claim"].result == WARN
    script.all("persistentvolumeclaims").clear()
    assert lines(bench)["claim"].result == FAIL
    script.add("nodes", node("n1", {"cloud.example/spot": "true"}, "0"))
    assert "device plugin" in lines(bench)["spot a100"].fix
    taint = {"key": "gpu", "value": "present", "effect": "NoSchedule"}
    script.add("nodes", node("n1", {"cloud.example/spot": "true"}, "8", taint))
    assert lines(bench)["spot a100"].result == FAIL
    del script.all("nodes")["n2"]
    assert lines(bench)["big a100"].result == WARN
    hard = {"hard": {"requests.nvidia.com/gpu": "8"}, "used": {"requests.nvidia.com/gpu": "8"}}
    script.add("resourcequotas", {"metadata": {"name": "team"}, "status": hard})
    assert lines(bench)["quota"].fact == "team: requests.nvidia.com/gpu 8 of 8"


def test_a_label_for_schedulers_needs_a_right_only_where_one_may_look_at_it(bench: Bench) -> None:
    bench.script.denied = {"patch jobs", "patch pods"}
    assert lines(bench)["rights"].result == OK
    bench.settings = replace(bench.settings, kubernetes_priority_class="low")
    rights = lines(bench)["rights"]
    assert (rights.result, rights.fact) == (WARN, "missing: patch jobs, patch pods")
    assert rights.cause == "no scheduler sees how old a checkpoint is"


def test_a_queue_is_kueues(bench: Bench) -> None:
    bench.settings = replace(bench.settings, kubernetes_queue="team")
    assert lines(bench)["queue"].result == FAIL
    bench.script.fail("GET", "v1beta1/namespaces/training/localqueues", partial(status, 403, "Forbidden"))
    assert lines(bench)["queue"].result == WARN


def test_a_namespace_that_is_missing_and_a_cluster_that_is_away(bench: Bench) -> None:
    bench.script.fail("GET", "/namespaces/training$", partial(status, 404, "NotFound"))
    assert lines(bench)["cluster"].result == FAIL
    bench.script.fail("GET", "/namespaces/training$", partial(status, 403, "Forbidden"))
    assert lines(bench)["cluster"].result == OK
    bench.script.fail("POST", "accessreviews", partial(status, 503, "ServiceUnavailable"), times=99)
    (line,) = lines(bench).values()
    assert (line.result, line.fact) == (FAIL, "it does not answer")


# --- the platform -----------------------------------------------------------------------------------------------------


def test_what_people_can_ask(bench: Bench) -> None:
    platform = KubernetesPlatform(bench.provider, bench.settings)
    wanted = bench.request(secrets={"API_KEY": "env:API_KEY_OF_TEST"})
    shown = platform.preview(wanted)
    assert (shown["kind"], shown["secrets"]) == ("batch/v1 Job", {"API_KEY": "env:API_KEY_OF_TEST"})
    assert bench.script.requests == []
    login = platform.login(ref(wanted))
    assert login.command.startswith("kubectl -n training exec -it job/spot-digits-a1-t1 -c training -- /bin/sh")
    assert [(price.shape, price.spot_usd_per_h) for price in platform.prices()] == [("a100", None)]
    with pytest.raises(NotSupported):
        platform.refresh_prices()


def test_the_parts_of_a_console(bench: Bench) -> None:
    platform = KubernetesPlatform(bench.provider, bench.settings)
    wanted = bench.request()
    with pytest.raises(MachineMissing):
        platform.console_after(ref(wanted), 0)
    pod = bench.script.pod(bench.job(wanted))
    content = "a🚂b".encode()
    bench.script.add("logs", {"metadata": {"name": pod["metadata"]["name"]}, "content": content[:3]})
    torn = platform.console_after(ref(wanted), 0)
    assert (torn.content, torn.end) == (b"a", 1)
    bench.script.add("logs", {"metadata": {"name": pod["metadata"]["name"]}, "content": content})
    assert platform.console_after(ref(wanted), 1).content == "🚂b".encode()
    assert platform.console_after(ref(wanted), -1).content == b"b"
    behind = platform.console_after(ref(wanted), 100)
    assert (behind.content, behind.end) == (b"", 100)
    bench.script.fail("GET", "/log", partial(status, 500, "InternalError"))
    with pytest.raises(ProviderUnavailable):
        platform.console_after(ref(wanted), 0)


def test_the_events_of_a_machine_are_those_of_its_job_and_of_its_pod(bench: Bench) -> None:
    platform = KubernetesPlatform(bench.provider, bench.settings)
    wanted = bench.request()
    names = (wanted.name, f"{wanted.name}-x7f2k", "spot-digits-a1-t12", "other")
    for number, name in enumerate(names):
        bench.script.add("events", {
            "metadata": {"name": f"e{number}"}, "reason": "Killing", "message": "Stopping container",
            "involvedObject": {"kind": "Pod", "name": name}, "lastTimestamp": f"2026-11-26T10:0{9 - number}:00Z",
        })  # fmt: skip
    history = platform.history([ref(wanted)], 0.0)
    assert [event.kind for event in history] == ["Pod.Killing"] * 2
    assert history[0].at < history[1].at
    assert platform.history([ref(wanted)], history[1].at) == (history[1],)
    assert platform.history([MachineRef("cluster", "spot", "never")], 0.0) == platform.history([], 0.0) == ()


def test_opening_sends_no_request_and_a_cluster_that_is_not_there_is_unknown(tmp_path: Path) -> None:
    config = tmp_path / "kubeconfig"
    path = tmp_path / "spot.toml"
    path.write_text(TOML.replace("file:///checkpoints", f"file://{tmp_path}") + f'kubeconfig = "{config}"\n')
    known = wired.load({"data_dir": str(tmp_path / "data")}, {"HOME": str(tmp_path)}, path)
    chosen = adapters.choose(known, None, SystemClock())
    try:
        opened = chosen.opened["cluster"]
        assert opened.scope == "cluster"
        with pytest.raises(ProviderUnavailable, match="kubeconfig"):
            opened.provider.machines()
        assert [finding.result for check in opened.checks() for finding in check.ask()] == [FAIL]
    finally:
        chosen.close()
