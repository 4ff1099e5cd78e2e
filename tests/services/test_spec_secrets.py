"""Secrets in a spec: reserved names, values in plain text, and refusals that never repeat a value."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.domain.errors import InvalidRequest, SecretInSpec
from supervisor.providers.gce import traits as gce
from supervisor.providers.local import traits as local
from supervisor.services.runs.policy import warnings_of
from supervisor.services.runs.spec_secrets import check_secrets
from tests.services.bed import COMMAND, Bed

# Put together here, so that no scanner takes this file for a leak.
TAIL = "1a2B3c4D5e6F7a8B9c0D1a2B3c4D5e6F7a8B9c0D"
LOOKS_LIKE = {
    "a key that begins with sk-": "sk-" + "proj-" + TAIL,
    "a Hugging Face token": "hf_" + TAIL[:34],
    "a GitHub token": "ghp_" + TAIL[:36],
    "a GitLab token": "glpat-" + TAIL[:20],
    "an AWS access key": "AKIA" + "ABCDEFGH12345678",
    "a Slack token": "xoxb-" + TAIL[:24],
    "a Google API key": "AIza" + TAIL[:35],
    "a private key": "-----BEGIN " + "RSA PRIVATE KEY-----\nMIIE",
}


@pytest.mark.parametrize(("what", "value"), LOOKS_LIKE.items())
@pytest.mark.parametrize(
    ("place", "pointer"),
    [
        (lambda v: {"command": ["python", "train.py", v]}, "#/spec/command/2"),
        (lambda v: {"command": f"run --key={v}"}, "#/spec/command"),
        (lambda v: {"env": {"MODE": v}}, "#/spec/env/MODE"),
        (lambda v: {"labels": {"team": v}}, "#/spec/labels/team"),
        (lambda v: {"labels": {v: "team"}}, "#/spec/labels/0"),
        (lambda v: {"secrets": {v: "file:/run/key"}}, "#/spec/secrets/0"),
        (lambda v: {"results": [{"path": "a", "verify": f"check {v}"}]}, "#/spec/results/0/verify"),
    ],
)
def test_a_text_like_a_key_is_refused_with_its_place(what: str, value: str, place: Any, pointer: str) -> None:
    with pytest.raises(SecretInSpec) as refused:
        check_secrets({**COMMAND, **place(value)}, local.TRAITS.secrets)
    assert refused.value.errors == ((pointer, f"looks like {what}"),)
    assert "secrets" in refused.value.detail
    assert value not in f"{refused.value.detail}{refused.value.errors}{refused.value.meta}"
    check_secrets({**COMMAND, **place(value), "allow_plain_secrets": True}, local.TRAITS.secrets)


def test_the_advice_fits_the_provider() -> None:
    """A remote machine cannot read a file of this computer."""
    for traits, place, other in ((local.TRAITS, "file:/PATH", "gcp:"), (gce.TRAITS, "gcp:projects/PROJECT", "file:")):
        with pytest.raises(SecretInSpec) as refused:
            check_secrets({**COMMAND, "env": {"WANDB_API_KEY": TAIL}}, traits.secrets)
        assert place in refused.value.detail
        assert other not in refused.value.detail


@pytest.mark.parametrize(
    "spec",
    [
        {"env": {"WANDB_API_KEY": TAIL}},
        {"env": {"DB_PASSWORD": TAIL}},
        {"command": f"WANDB_API_KEY={TAIL} python train.py"},
        {"command": ["train", f"--api-key={TAIL}"]},
    ],
)
def test_a_name_that_says_key_is_believed(spec: dict[str, Any]) -> None:
    with pytest.raises(SecretInSpec, match="the value of a key"):
        check_secrets({**COMMAND, **spec}, local.TRAITS.secrets)


@pytest.mark.parametrize(
    "spec",
    [
        {"env": {"TOKENIZERS_PARALLELISM": "false", "MAX_TOKEN": "4096", "TOKEN": "/home/me1/token/of-mine.txt"}},
        {"env": {"TOKEN": "https://host/path/to/1234567890", "COMMIT": TAIL}},
        {"command": ["python", "train.py", "--task-name", "sk-learn", "--secret=short1", "risk-" + TAIL]},
        {"secrets": {"HF_TOKEN": "env:HF_TOKEN", "KEY": "file:/etc/sk-" + TAIL}},
    ],
)
def test_ordinary_words_are_let_through(spec: dict[str, Any]) -> None:
    check_secrets({**COMMAND, **spec}, local.TRAITS.secrets)


@pytest.mark.parametrize(
    ("spec", "pointer", "why"),
    [
        ({"secrets": {"K": "env:K"}, "env": {"K": "v"}}, "#/spec/secrets/K", "is in env too"),
        ({"secrets": {"K": "env:PATH"}}, "#/spec/secrets/K", "refers to an ordinary variable"),
        ({"secrets": {"SPOT_RUN_ID": "env:K"}}, "#/spec/secrets/SPOT_RUN_ID", "is set by the agent"),
        ({"secrets": {"PYTHONPATH": "env:K"}}, "#/spec/secrets/PYTHONPATH", "is set by the agent"),
        ({"secrets": {"K": "env:SPOT_DATABASE_URL"}}, "#/spec/secrets/K", "refers to a setting of the service"),
    ],
)
def test_a_name_that_is_taken_is_refused(spec: dict[str, Any], pointer: str, why: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_secrets({**COMMAND, **spec}, local.TRAITS.secrets)
    ((at, text),) = refused.value.errors
    assert at == pointer
    assert text.startswith(why)
    assert why in refused.value.detail


def test_a_variable_that_others_may_have_inherited_is_warned_of() -> None:
    assert warnings_of({**COMMAND, "secrets": {"A": "env:HF_TOKEN", "B": "file:/etc/plain"}}, local.TRAITS) == ()
    (warning,) = warnings_of({**COMMAND, "secrets": {"A": "env:HF_TOKEN", "B": "env:PLAIN"}}, local.TRAITS)
    assert warning.startswith("PLAIN in the service's environment does not look like a secret")
    assert warnings_of({**COMMAND, "secrets": {"B": "env:PLAIN"}}, gce.TRAITS) == ()


def test_a_refused_spec_is_stored_nowhere(bed: Bed) -> None:
    value = LOOKS_LIKE["a Hugging Face token"]
    bed.provider.secrets["env:HF_TOKEN"] = value  # where the reference at the end finds it
    with pytest.raises(SecretInSpec):
        bed.submit("digits-7", {**COMMAND, "env": {"HF_TOKEN": value}})
    with pytest.raises(SecretInSpec):
        bed.submit("digits-7", {**COMMAND, "env": {"HF_TOKEN": value}}, key="one")
    assert bed.store.find("digits-7") is None
    bed.submit("digits-7", {**COMMAND, "secrets": {"HF_TOKEN": "env:HF_TOKEN"}}, key="one")


@pytest.mark.parametrize("shortest", ["xoxb-" + TAIL[:10], "TOKEN=" + TAIL[:20], "sk-" + TAIL[:20]])
def test_the_shortest_of_each_kind_is_refused(shortest: str) -> None:
    assert len(shortest) >= 15
    with pytest.raises(SecretInSpec):
        check_secrets({**COMMAND, "labels": {"team": shortest}}, local.TRAITS.secrets)
