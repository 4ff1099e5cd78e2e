"""The spec of a run: masked where it is shown, and exactly the same spec where it is copied."""

from __future__ import annotations

import io
import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.cli.main import cli
from supervisor.cli.runs import submit
from supervisor.cli.runs.specfile import read_spec
from supervisor.dashboard.pages import spec as spec_flags
from supervisor.dashboard.pages import spec as spec_text
from supervisor.domain.attempt import Try
from supervisor.domain.run import Run
from supervisor.services.runs.policy import Spec
from tests.dashboard.looking import Looking
from tests.services.bed import Bed, Client

PAGE = "/ui/runs/digits-7/spec"
HOSTILE: Mapping[str, Any] = {
    "command": [
        "sh", "-c", "echo 'it''s' \"$HOME\" `id` $(touch pwned) \\ !!\nSPEC\nSPEC_\n  indented\n", "--x=é→ ", "-",
    ],
    "env": {"GREETING": "  'hi' </pre><script>alert(1)</script>\n", "YES": "yes", "LR": "1e5", "DAY": "2026-11-22"},
    "labels": {"team": "null", "n": "0x1f", "empty": ""},
    "limits": {"budget_usd": 12.5, "max_runtime_s": 1e7},
    "zones": ["local-a"],
}  # fmt: skip


def stored(bed: Bed, run_id: str) -> Spec:
    return bed.store.spec(bed.run(run_id).key)


def fed(text: str, name: str, folder: Path) -> tuple[str, str]:
    """(arguments, each with a NUL behind it; standard input) that a shell gives to the program of this name."""
    program = folder / name
    program.write_text('#!/bin/sh\nprintf "%s\\0" "$@" > arguments\ncat > input < /dev/stdin\n')
    program.chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    environment = {"PATH": path, "SPOT_URL": "http://127.0.0.1:8787", "SPOT_TOKEN": "sup_x"}
    subprocess.run(["sh", "-c", text], cwd=folder, env=environment, check=True, stdin=subprocess.DEVNULL)
    return (folder / "arguments").read_text(), (folder / "input").read_text()


@pytest.mark.parametrize("spec", [HOSTILE, {"command": ["python", "train.py"]}])
def test_each_text_that_is_copied_submits_the_same_spec(
    bed: Bed, looking: Looking, spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed.submit("digits-7", spec)
    page = looking.page(PAGE)
    cli, curl, plain = ("".join(page.one(id=f"copy-{name}").children) for name in ("cli", "curl", "yaml"))
    client = Client(bed.services)

    arguments, given_ = fed(cli, "spot", tmp_path)
    assert arguments == "submit\0-\0"
    monkeypatch.setattr("sys.stdin", io.StringIO(given_))
    run_id, read = read_spec("-")
    assert run_id is None
    assert client.post("/v1/runs", json={"run_id": "by-cli", "spec": read}).status_code == 201
    assert stored(bed, "by-cli") == stored(bed, "digits-7")

    arguments, given_ = fed(curl, "curl", tmp_path)
    assert "http://127.0.0.1:8787/v1/runs\0-H\0Authorization: Bearer sup_x\0" in arguments
    body = json.loads(given_)
    assert client.post("/v1/runs", json={**body, "run_id": "by-curl"}).status_code == 201
    assert stored(bed, "by-curl") == stored(bed, "digits-7")

    assert yaml.safe_load(plain) == stored(bed, "digits-7")
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("hidden", ["\x7f\x7f", "\x9b201~", "\u202e", "\u2028", "\U000e0041", "\x1b[201~", "\r"])
def test_no_text_that_is_copied_holds_what_a_terminal_would_obey(hidden: str, tmp_path: Path) -> None:
    spec = {"command": ["echo", f"a{hidden}b"], "env": {"A": f"{hidden}é\n{hidden}"}}
    for made in (spec_text.as_command(spec), spec_text.as_curl(spec), spec_text.as_yaml(spec)):
        assert hidden not in made
        assert made.replace("\n", "").isprintable()
    _, sent = fed(spec_text.as_curl(spec), "curl", tmp_path)
    assert json.loads(sent)["spec"] == spec


SAYABLE: Mapping[str, Any] = {
    "command": ["sh", "-c", "echo 'it''s' \"$HOME\" `id` $(touch pwned) \\ !! # é", "--", "-x=1", ""],
    "workdir": "/data/set 1",
    "env": {"A": "  'hi' = $B", "EMPTY": ""},
    "labels": {"team": "-vision", "n": "0x1f"},
    "zones": ["local-b", "local-a"],
    "limits": {"budget_usd": 12.5, "max_runtime_s": 1e7, "max_attempts": 3, "deadline": "2040-01-31T08:00:00Z"},
    "results": [{"path": "*.npz"}],
    "spot": False,
    "stop_grace_s": 45.0,
    "keep_s": 600.0,
    "on_failure": "keep",
}
PINNED = {"command": "cd /x && ./run.sh 'a b'", "provider": "local", "workdir": "/x", "shapes": ["cpu"]}


def typed(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Spec:
    """The spec that the command line makes of it."""
    arguments, _ = fed(text, "spot", folder)
    made: list[Spec] = []

    def keep(client: object, body: Any, file: object) -> None:
        made.append(body["spec"])
        raise SystemExit(0)

    monkeypatch.setattr(submit, "_send", keep)
    monkeypatch.setattr(submit, "machines_here", lambda client, flag: lambda named: (flag or ("local",)) == ("local",))
    monkeypatch.setenv("SPOT_URL", "http://127.0.0.1:1")
    with pytest.raises(SystemExit):
        # As a user does: a command that is called alone would keep another help option for all later tests.
        cli.main(arguments.split("\0")[:-1], "spot", standalone_mode=False)
    return made[0]


@pytest.mark.parametrize("spec", [SAYABLE, PINNED])
def test_what_options_can_say_is_a_command_that_people_type(
    bed: Bed, looking: Looking, spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed.submit("digits-7", spec)
    text = "".join(looking.page(PAGE).one(id="copy-cli").children)
    assert text.startswith("spot submit \\\n  --")
    assert "<<" not in text
    made = typed(text, tmp_path, monkeypatch)
    assert Client(bed.services).post("/v1/runs", json={"run_id": "typed", "spec": made}).status_code == 201
    assert stored(bed, "typed") == stored(bed, "digits-7")
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    "more",
    [
        {"stall": {"polls": 3}},
        {"results": [{"path": "*", "min_count": 2}]},
        {"keep_s": 0.5},
        {"workdir": "data"},
        {"workdir": "/data/../x"},
        {"command": ["sh", "-c", "a\nb"]},
        {"code": "ab" * 32},
    ],
)
def test_what_options_cannot_say_is_a_file(more: Spec) -> None:
    assert spec_text.as_command({**PINNED, **more}).startswith("spot submit - <<'SPEC'\n")


def test_every_option_is_one_of_the_command_line() -> None:
    known = {name for parameter in submit.submit.params for name in parameter.opts}
    words = spec_flags.as_words({**SAYABLE, "provider": "gce", "image": "i", "secrets": {"A": "env:B"}})
    assert words is not None
    assert {word.partition("=")[0] for word in words[: words.index("--")]} <= known


texts = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=40)


@settings(max_examples=60)
@given(st.lists(texts, min_size=1, max_size=4), st.dictionaries(texts, texts, max_size=3))
def test_any_text_comes_back_out_of_yaml_as_it_was(command: list[str], env: dict[str, str]) -> None:
    spec = {"command": command, "env": env}
    assert yaml.safe_load(spec_text.as_yaml(spec)) == spec


def test_values_of_the_environment_are_covered_where_they_are_only_looked_at(bed: Bed, looking: Looking) -> None:
    bed.submit("digits-7", {**HOSTILE, "env": {"PLACE": "a-quiet-place"}})
    page = looking.page(PAGE)
    looked = page.all("pre")[0].text
    assert "PLACE: •••" in looked
    assert "a-quiet-place" not in looked
    environment = page.all("table")[0].text
    assert "PLACE" in environment
    assert "a-quiet-place" not in environment
    folded = page.one(id="copy").all("details")
    assert ["open" in one.attributes for one in folded] == [False] * 3
    assert all("a-quiet-place" in one.text for one in folded)


def test_what_looks_like_a_secret_is_named_and_not_shown(bed: Bed, looking: Looking) -> None:
    value = "hf_" + "aB3dE5gH7" * 4
    bed.submit("digits-7", {"command": ["x", value], "allow_plain_secrets": True})
    answer = looking.get(PAGE)
    assert value not in answer.text
    assert 'insert it again at <code class="break">#/command/1</code>' in answer.text


def preview(run: Run, try_: Try, spec: Spec) -> Mapping[str, object]:
    return {
        "kind": "compute.instances.insert",
        "metadata": {
            "startup-script": "#!/bin/sh\necho begin </pre><b>\n",
            "spot-run-id": run.run_id,
            "spot-job": "YS1xdWlldA==",
        },
        "unpacked": {"spot-job": {"env": dict(spec.get("env", {})), "nonce": "***"}},
    }


def test_the_start_up_script_and_the_rest_of_the_request(bed: Bed) -> None:
    bed.submit("digits-7", {"command": ["x"], "env": {"PLACE": "a-quiet-place"}})
    services = replace(bed.services, plan_sources=replace(bed.services.plan_sources, preview=preview))
    looking = Looking(services)
    assert "no machine was requested yet" in looking.page(PAGE).text
    bed.train("digits-7")
    page = looking.page(PAGE)
    assert page.one(id="launch-script").text == "#!/bin/sh echo begin </pre><b>"
    (rest,) = page.all("pre", aria_label="The request")
    assert "a-quiet-place" not in rest.text
    assert '"PLACE": "•••"' in rest.text
    assert '"spot-run-id": "digits-7"' in rest.text
    assert "startup-script" not in rest.text
    assert "YS1xdWlldA==" not in rest.text, "what is packed is shown unpacked only"


def test_a_provider_without_a_script_shows_what_its_machine_gets_instead(bed: Bed) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    services = replace(
        bed.services,
        plan_sources=replace(bed.services.plan_sources, preview=lambda *_: {"kind": "process", "argv": ["a"]}),
    )
    page = Looking(services).page(PAGE)
    assert "has no start-up script: this is the complete request" in page.text
    assert page.all("pre", aria_label="The request")[0].text == '{ "kind": "process", "argv": [ "a" ] }'
