"""spot submit --secret: references are sent, and a value in the place of one is not repeated."""

from pathlib import Path

import pytest

from tests.cli.fake_api import a_run


@pytest.fixture
def accepting(api):
    """The API accepts every submit."""
    run = a_run(status="pending", status_text="Accepted.")
    api.respond("POST", "/v1/runs", {**run, "warnings": [], "differs": []}, 201)
    return api


def test_secrets_are_sent_as_references(accepting, spot, tmp_path: Path) -> None:
    file = tmp_path / "train.yaml"
    file.write_text("command: x\nsecrets: {A: 'env:OLD', B: 'env:B'}\n")
    given = ("--secret", "HF_TOKEN", "--secret", "A=env:NEW", "--secret", "K=file:keys/../k")
    assert spot("submit", str(file), *given).code == 0
    assert accepting.bodies("/v1/runs")[-1]["spec"]["secrets"] == {
        "A": "env:NEW", "B": "env:B", "HF_TOKEN": "env:HF_TOKEN", "K": f"file:{Path.cwd()}/k",
    }  # fmt: skip


@pytest.mark.parametrize("written", ["HF_TOKEN=hush-hush", "HF_TOKEN=file:", "=env:hush", "HF_TOKEN=vault:hush"])
def test_a_value_in_the_place_of_a_reference_is_not_repeated(accepting, spot, written: str) -> None:
    ended = spot("submit", "--secret", written, "--", "x")
    assert ended.code == 2
    assert "NAME=file:PATH" in ended.err
    assert "hush" not in ended.err
    assert accepting.requests == []
