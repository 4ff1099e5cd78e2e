"""The stand-in's API as a client sees it. A broken object is refused, and what no API has fails the test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.deploy.chart_rules import RIGHTS as CHART
from tests.kubernetes.api import NAMESPACE, TOKEN
from tests.kubernetes.cluster import IMAGE, Cluster
from tests.kubernetes.kinds import POD, SECRET
from tests.kubernetes.quantities import GPU

JOBS, PODS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs", f"/api/v1/namespaces/{NAMESPACE}/pods"
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
LABELS = {"team": "digits"}


def job(name: str = "train", **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": IMAGE, "command": ["/bin/true"], "resources": {"limits": {GPU: "1"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": dict(LABELS)},
        "spec": {
            "backoffLimit": 0,
            "template": {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [container]}},
            **spec,
        },
    }


def secret(name: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, **more}


class Client:
    def __init__(self, cluster: Cluster) -> None:
        self.http = httpx.Client(base_url=cluster.api.url, headers={"Authorization": f"Bearer {TOKEN}"})

    def create(self, path: str, body: Any) -> httpx.Response:
        return self.http.post(path, json=body)

    def names(self, path: str, **params: Any) -> list[str]:
        response = self.http.get(path, params=params)
        assert response.status_code == 200, response.text
        return [item["metadata"]["name"] for item in response.json()["items"]]

    def delete(self, path: str, **options: Any) -> httpx.Response:
        return self.http.request("DELETE", path, json=options) if options else self.http.delete(path)


@pytest.fixture
def now() -> list[float]:
    return [1_790_000_000.0]


@pytest.fixture
def cluster(now: list[float]) -> Iterator[Cluster]:
    cluster = Cluster(lambda: now[0])
    yield cluster
    cluster.close()


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    client = Client(cluster)
    with client.http:
        yield client


def test_what_comes_in_comes_out_with_the_defaults_of_kubernetes(client: Client) -> None:
    made = client.create(JOBS, job())
    assert made.status_code == 201
    read = client.http.get(f"{JOBS}/train").json()
    assert read == made.json()
    assert (read["spec"]["podReplacementPolicy"], read["spec"]["suspend"]) == ("TerminatingOrFailed", False)
    uid = read["metadata"]["uid"]
    assert read["spec"]["template"]["metadata"]["labels"]["batch.kubernetes.io/controller-uid"] == uid
    again = client.create(JOBS, job())
    assert (again.status_code, again.json()["reason"]) == (409, "AlreadyExists")
    assert again.json()["message"] == 'jobs.batch "train" already exists'


def change(path: str, value: Any) -> dict[str, Any]:
    """A Job with this value at this path."""
    body = job()
    *parents, last = path.split(".")
    at: Any = body
    for name in parents:
        at = at[int(name)] if name.isdigit() else at[name]
    at[last] = value
    return body


POD_AT = "spec.template.spec"
INVALID = [
    (f"{POD_AT}.restartPolicy", "Always", "spec.template.spec.restartPolicy"),
    ("metadata.name", "Train", "metadata.name"),
    (f"{POD_AT}.containers.0.resources", {"limits": {GPU: "0.5"}}, "must be an integer"),
    (f"{POD_AT}.containers.0.resources", {"limits": {GPU: "2"}, "requests": {GPU: "1"}}, "must be equal to"),
    (f"{POD_AT}.containers.0.resources", {"requests": {GPU: "1"}}, "Limit must be set"),
    (f"{POD_AT}.containers.0.volumeMounts", [{"name": "none", "mountPath": "/x"}], 'Not found: "none"'),
    (f"{POD_AT}.volumes", [{"name": "two", "emptyDir": {}, "secret": {"secretName": "x"}}], "more than 1 volume type"),
    (f"{POD_AT}.tolerations", [{"key": "spot", "operator": "Exists", "value": "x"}], "value must be empty"),
    ("metadata.labels", {"run": "é"}, "metadata.labels"),
    ("metadata.ownerReferences", [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": ""}], "uid"),
    ("spec.activeDeadlineSeconds", -1, "spec.activeDeadlineSeconds"),
]


@pytest.mark.parametrize(("path", "value", "field"), INVALID, ids=[f"{row[0]}-{row[2]}" for row in INVALID])
def test_a_broken_object_is_refused_and_says_which_field(client: Client, path: str, value: Any, field: str) -> None:
    refused = client.create(JOBS, change(path, value))
    assert (refused.status_code, refused.json()["reason"]) == (422, "Invalid")
    causes = refused.json()["details"]["causes"]
    assert any(field in f"{cause['field']}: {cause['message']}" for cause in causes), causes


def test_a_secret_has_at_most_a_mebibyte_and_an_immutable_one_stays(client: Client, cluster: Cluster) -> None:
    cluster.api.rights.add("patch secrets")
    large = client.create(SECRETS, secret("large", stringData={"key": "x" * (1 << 20)}))
    assert large.status_code == 201
    larger = client.create(SECRETS, secret("larger", data={"key": "eHh4" * 350_000}))
    assert (larger.status_code, larger.json()["reason"]) == (422, "Invalid")
    client.create(SECRETS, secret("fixed", immutable=True, stringData={"key": "one"}))
    patched = client.http.patch(
        f"{SECRETS}/fixed", json={"data": {"key": "dHdv"}}, headers={"Content-Type": "application/merge-patch+json"}
    )
    assert patched.status_code == 422


@pytest.fixture
def faulty(now: list[float]) -> Iterator[Cluster]:
    """One whose violations are the point."""
    cluster = Cluster(lambda: now[0])
    yield cluster
    with pytest.raises(AssertionError, match="does not have"):
        cluster.close()


@pytest.mark.parametrize(
    ("path", "value"),
    [("spec.backofflimit", 1), ("spec.backoffLimit", "0"), (f"{POD_AT}.containers.0.volumes", []), ("kinds", "x")],
)
def test_a_field_that_kubernetes_does_not_have_fails_the_test(faulty: Cluster, path: str, value: Any) -> None:
    client = Client(faulty)
    with client.http:
        refused = client.create(JOBS, change(path, value))
    assert (refused.status_code, refused.json()["reason"]) == (400, "BadRequest")
    assert "strict decoding error" in refused.json()["message"]
    assert len(faulty.api.violations) == 1


@pytest.mark.parametrize(
    "path", ["/api/v1/pods/x/y/z", f"{JOBS}?limits=5", f"{JOBS}?watch=true", "/apis/batch/v2/jobs"]
)
def test_a_path_or_parameter_that_the_api_does_not_have_fails_the_test(faulty: Cluster, path: str) -> None:
    with Client(faulty).http as http:
        http.get(path)
    assert len(faulty.api.violations) == 1


def test_what_the_stand_in_itself_sends_is_compared_too(faulty: Cluster) -> None:
    client = Client(faulty)
    with client.http:
        client.create(JOBS, job())
        faulty.job("train")["status"]["actives"] = 1
        faulty.objects.touch(faulty.job("train"))
        assert client.names(JOBS) == ["train"]
    assert "status" in faulty.api.violations[0]


def test_a_list_comes_in_pages_of_one_moment_and_its_token_becomes_too_old(
    client: Client, cluster: Cluster, now: list[float]
) -> None:
    for number in range(5):
        client.create(JOBS, job(f"train-{number}"))
    first = client.http.get(JOBS, params={"limit": 2}).json()
    client.create(JOBS, job("train-9"))
    params = {"limit": 4, "continue": first["metadata"]["continue"]}
    assert client.names(JOBS, **params) == ["train-2", "train-3", "train-4"], "without what came later"
    now[0] += 301.0
    late = client.http.get(JOBS, params=params)
    assert (late.status_code, late.json()["reason"]) == (410, "Expired")
    proceed = late.json()["metadata"]["continue"]
    assert client.names(JOBS, **{"continue": proceed}) == ["train-2", "train-3", "train-4", "train-9"]


def test_selectors_choose_and_an_unknown_field_is_a_bad_request(client: Client) -> None:
    client.create(JOBS, job("one"))
    other = job("two")
    other["metadata"]["labels"] = {"team": "other", "gpu": "yes"}
    client.create(JOBS, other)
    for selector, names in {
        "team=digits": ["one"], "team!=digits": ["two"], "team in (digits,other),gpu": ["two"], "!gpu": ["one"],
        "team notin (digits)": ["two"],
    }.items():  # fmt: skip
        assert client.names(JOBS, labelSelector=selector) == names, selector
    assert client.names(JOBS, fieldSelector="metadata.name=two") == ["two"]
    assert client.http.get(JOBS, params={"fieldSelector": "spec.x=1"}).status_code == 400


def test_a_delete_minds_the_uid_and_keeps_the_pods_of_a_job_unless_it_says_otherwise(
    client: Client, cluster: Cluster
) -> None:
    uid = client.create(JOBS, job()).json()["metadata"]["uid"]
    cluster.step()
    other = client.delete(f"{JOBS}/train", preconditions={"uid": f"{uid}9"})
    assert (other.status_code, other.json()["reason"]) == (409, "Conflict")
    client.delete(f"{JOBS}/train")
    cluster.step()
    (orphan,) = cluster.objects.of(POD)
    assert "ownerReferences" not in orphan["metadata"]
    client.create(JOBS, job())
    cluster.step()
    assert client.delete(f"{JOBS}/train", propagationPolicy="Foreground").json()["kind"] == "Job"
    cluster.step()
    assert client.http.get(f"{JOBS}/train").json()["reason"] == "NotFound"
    assert cluster.objects.of(POD) == [orphan]


def test_what_belongs_to_a_job_goes_with_it(client: Client, cluster: Cluster) -> None:
    uid = client.create(JOBS, job()).json()["metadata"]["uid"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": uid}
    for name, each in (("of-it", uid), ("of-nothing", "7")):
        body = secret(name, data={})
        body["metadata"]["ownerReferences"] = [{**owner, "uid": each}]
        assert client.create(SECRETS, body).status_code == 201
    cluster.step()
    assert [item["metadata"]["name"] for item in cluster.objects.of(SECRET)] == ["of-it"]
    client.delete(f"{JOBS}/train", propagationPolicy="Background")
    cluster.step()
    assert cluster.objects.of(SECRET) == []


def test_fixed_fields_stay_and_labels_may_change(client: Client, cluster: Cluster) -> None:
    cluster.api.rights.add("patch jobs.batch")
    client.create(JOBS, job())
    merge = {"Content-Type": "application/merge-patch+json"}
    labelled = client.http.patch(f"{JOBS}/train", json={"metadata": {"labels": {"step": "7"}}}, headers=merge)
    assert labelled.json()["metadata"]["labels"] == {**labelled.json()["metadata"]["labels"], **LABELS, "step": "7"}
    changed = client.http.patch(f"{JOBS}/train", json={"spec": {"completions": 2}}, headers=merge)
    assert "field is immutable" in changed.json()["message"]


def test_rights_and_tokens_are_checked(client: Client, cluster: Cluster) -> None:
    nodes = client.http.get("/api/v1/nodes")
    assert (nodes.status_code, nodes.json()["reason"]) == (403, "Forbidden")
    assert "at the cluster scope" in nodes.json()["message"]
    cluster.api.rights.remove("create jobs.batch")
    denied = client.create(JOBS, job())
    assert 'cannot create resource "jobs" in API group "batch" in the namespace "training"' in denied.json()["message"]
    attributes = {"namespace": NAMESPACE, "verb": "create", "group": "batch", "resource": "jobs"}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    asked = client.create(path, {**review, "spec": {"resourceAttributes": attributes}})
    assert asked.json()["status"]["allowed"] is False
    cluster.api.token = "another"
    assert client.http.get(JOBS).status_code == 401


def test_the_account_has_the_rights_of_the_chart_and_no_other(cluster: Cluster) -> None:
    granted = {f"{verb} {resource}.{group}".rstrip(".") for (group, resource), verbs in CHART.items() for verb in verbs}
    assert cluster.api.rights == granted


def test_a_quota_is_counted_and_named(client: Client, cluster: Cluster) -> None:
    cluster.add_quota("team", {"count/jobs.batch": "1", f"requests.{GPU}": "0"})
    assert client.create(JOBS, job("one")).status_code == 201
    cluster.step()
    refused = client.create(JOBS, job("two")).json()["message"]
    assert refused.endswith(
        "exceeded quota: team, requested: count/jobs.batch=1, used: count/jobs.batch=1, limited: count/jobs.batch=1"
    )
    events = client.http.get(f"/api/v1/namespaces/{NAMESPACE}/events", params={"fieldSelector": "reason=FailedCreate"})
    (event,) = events.json()["items"]
    assert f"exceeded quota: team, requested: requests.{GPU}=1" in event["message"]
