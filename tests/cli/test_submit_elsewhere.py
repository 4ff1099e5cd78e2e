"""spot submit to a supervisor whose machines are elsewhere: no folder of this computer, references that work there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.fake_api import a_run, submitted


@pytest.fixture(autouse=True)
def _machines_on_google_cloud(accepting) -> None:
    accepting.respond("GET", "/v1/meta", {"provider": "gce"})


def sent(api) -> dict:
    return submitted(api)["spec"]


def test_machines_elsewhere_have_no_folder_of_this_computer(accepting, spot, tmp_path: Path) -> None:
    """The supervisor says what it has; a folder that only we can see would end each attempt at once."""
    file = tmp_path / "train.yaml"
    file.write_text("command: x\n")
    for words, workdir in (
        ([str(file)], None),
        (["--", "x"], None),
        (["--workdir", "src", "--", "x"], "src"),
        (["--provider", "local", "--", "x"], str(Path.cwd())),
    ):
        assert spot("submit", *words).code == 0
        assert sent(accepting).get("workdir") == workdir
    file.write_text("command: x\nworkdir: src\n")
    assert spot("submit", str(file)).code == 0
    assert sent(accepting)["workdir"] == "src", "a folder of the image"


def test_an_older_supervisor_has_local_machines_and_an_absent_one_is_not_guessed(accepting, spot) -> None:
    accepting.refuse("GET", "/v1/meta", 404, "NOT_FOUND", "nothing here")
    assert spot("submit", "--", "x").code == 0
    assert sent(accepting)["workdir"] == str(Path.cwd())
    accepting.refuse("GET", "/v1/meta", 503, "UNAVAILABLE", "away")
    before = len(accepting.bodies("/v1/runs"))
    assert spot("submit", "--", "x").code != 0
    assert len(accepting.bodies("/v1/runs")) == before, "not known is not local"


def test_a_secret_of_secret_manager(accepting, spot) -> None:
    reference = "gcp:projects/p/secrets/wandb/versions/3"
    assert spot("submit", "--secret", f"WANDB_API_KEY={reference}", "--", "x").code == 0
    assert sent(accepting)["secrets"] == {"WANDB_API_KEY": reference}
    ended = spot("submit", "--secret", "K=aws:hunter2", "--", "x")
    assert ended.code == 2
    assert "hunter2" not in ended.err


def test_show_says_what_the_machines_run(api, spot) -> None:
    digest = "r/train@sha256:" + "ab" * 32
    for image, text in (
        (
            {"name": "r/train:1", "digest": digest, "follow_tag": False},
            "image r/train:1 = sha256:" + "ab" * 32 + ", the same in every",
        ),
        ({"name": digest, "digest": digest, "follow_tag": False}, f"image {digest}, the same in every"),
        ({"name": "r/train:1", "digest": digest, "follow_tag": True}, "read again for each attempt"),
        ({"name": "r/train:1", "digest": None, "follow_tag": False}, "image r/train:1, not pinned: if the tag"),
    ):
        api.respond("GET", "/v1/runs/digits-7", {**a_run(), "image": image})
        api.respond("GET", "/v1/runs/digits-7/attempts", {"attempts": [], "next": None})
        assert text in spot("show", "digits-7").out
    for status, text in (("pending", "image r:1, not pinned yet\n"), ("failed", "image r:1, not pinned\n")):
        image = {"name": "r:1", "digest": None, "follow_tag": False}
        api.respond("GET", "/v1/runs/digits-7", {**a_run(status=status), "image": image})
        assert text in spot("show", "digits-7").out
    api.respond("GET", "/v1/runs/digits-7", a_run())
    assert "image" not in spot("show", "digits-7").out


def test_a_newer_supervisor_says_it_of_each_provider_by_its_name(accepting, spot) -> None:
    cloud, lab = {"name": "cloud", "shares_computer": False}, {"name": "lab", "shares_computer": True}
    accepting.respond("GET", "/v1/providers", {"providers": [cloud, lab]})
    for words, workdir in (
        (["--", "x"], None),
        (["--provider", "cloud", "--", "x"], None),
        (["--provider", "lab", "--", "x"], str(Path.cwd())),
        (["--provider", "lab", "--provider", "cloud", "--", "x"], None),
    ):
        assert spot("submit", *words).code == 0
        assert sent(accepting).get("workdir") == workdir
    accepting.respond("GET", "/v1/providers", {"providers": [lab, cloud]})
    assert spot("submit", "--", "x").code == 0
    assert sent(accepting)["workdir"] == str(Path.cwd()), "the first one is its own"


def test_providers_on_the_command_line_stand_instead_of_those_of_the_file(accepting, spot, tmp_path: Path) -> None:
    file = tmp_path / "train.yaml"
    file.write_text("command: x\nproviders: [cloud, lab]\n", encoding="utf-8")
    assert spot("submit", str(file)).code == 0
    assert (sent(accepting).get("providers"), "provider" in sent(accepting)) == (["cloud", "lab"], False)
    assert spot("submit", str(file), "--provider", "lab").code == 0
    assert (sent(accepting).get("provider"), "providers" in sent(accepting)) == ("lab", False)
    file.write_text("command: x\nprovider: lab\n", encoding="utf-8")
    assert spot("submit", str(file), "--provider", "lab", "--provider", "cloud").code == 0
    assert (sent(accepting).get("providers"), "provider" in sent(accepting)) == (["lab", "cloud"], False)
