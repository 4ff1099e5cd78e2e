"""Any input gives a refusal, or a run that every reader can show."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervisor.api.shapes.run_spec import LimitsSpec, RunSpec, StallSpec
from supervisor.contract.heartbeat import encode
from tests.services.bed import Bed, Client, beat

ODD = st.sampled_from([None, True, -1, 0, 1, 2**63, 1e308, "", "a", "\x00", "ä\u202e", "\ud800", [], {}, "9" * 400])
JSON = st.recursive(
    ODD | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6) | ODD.map(str), inner, max_size=3),
    max_leaves=8,
)


def fields(model: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(sorted(model.model_fields)), JSON, max_size=3)


SPECS = st.fixed_dictionaries(
    {"command": st.just("x") | JSON},
    optional={"limits": fields(LimitsSpec), "stall": fields(StallSpec), "env": JSON, "labels": JSON, "results": JSON},
) | fields(RunSpec)
ONE_BED = settings(
    max_examples=max(120, settings().max_examples), suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@ONE_BED
@given(spec=SPECS, more=st.dictionaries(st.sampled_from(["run_id", "rerun", "replace_spec", "x"]), JSON, max_size=2))
def test_submits(bed: Bed, client: Client, spec: Any, more: dict[str, Any]) -> None:
    content = json.dumps({"spec": spec, **more}).encode()
    told = client.post("/v1/runs", content=content, headers={"content-type": "application/json"})
    assert told.status_code in (200, 201, 400, 409, 422), (told.text, content)
    assert client.get("/v1/runs").status_code == 200
    if told.is_success:
        assert client.get(told.headers["location"]).json()["run_id"] == told.json()["run_id"]


@ONE_BED
@given(
    changes=st.dictionaries(st.sampled_from(sorted(beat("digits-7")._fields)), JSON, max_size=4),
    cut=st.integers(0, 400),
)
def test_beats(bed: Bed, client: Client, changes: dict[str, Any], cut: int) -> None:
    if bed.store.find("digits-7") is None:
        bed.submit("digits-7")
        bed.train("digits-7")
    raw = json.dumps({**json.loads(encode(beat("digits-7", 50))), **changes}).encode()
    for content in (raw, raw[:cut]):
        told = client.post("/v1/runs/digits-7/heartbeat", content=content)
        assert told.status_code in (200, 403, 413, 422), (told.text, content)
    assert client.get("/v1/runs/digits-7").status_code == 200
