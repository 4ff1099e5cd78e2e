"""docs/operations.md, "In a Kubernetes cluster": its values make a chart that works, and its commands, like those that
Helm prints after the installation, name what the chart makes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from supervisor.services.access.data_folder import ADMIN_FILE
from supervisor.wiring import settings as wired
from tests.deploy.chart import CHART, NAMESPACE, RELEASE, Object, Rendered, mounted, rendered
from tests.deploy.chart_rules import problems
from tests.docs.test_pages_match_the_code import calls_in, page

ROOT = Path(__file__).resolve().parents[2]
PAGE = page("docs/operations.md")
SECTION = PAGE.split("\nIn a Kubernetes cluster, ")[1].split("\n## ")[0]
SECRETS = {"spot-database": {"url": "postgresql://spot@db/spot"}, "spot-admin-token": {"token": "sup_…"}}
DEFAULTS: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", SECTION, re.DOTALL)
    assert found is not None
    return found[1]


def commands(text: str) -> list[list[str]]:
    lines = (line.strip() for line in text.splitlines())
    return [shlex.split(line, comments=True) for line in lines if line.startswith(("kubectl ", "helm "))]


def chart() -> Rendered:
    values: Object = yaml.safe_load(block("yaml"))
    return rendered(values)


def unknown(words: list[str], made: Rendered) -> list[str]:
    """What a command of kubectl names and the chart does not make."""
    variables = {each["name"]: each.get("value") for each in made.server["env"]}
    (port,) = made.only("Service")["spec"]["ports"]
    known = {
        f"deployment/{made.only('Deployment')['metadata']['name']}",
        f"service/{made.only('Service')['metadata']['name']}",
        f"{variables['SPOT_DATA_DIR']}/{ADMIN_FILE}",
        str(port["port"]),
    }
    return [word for word in words if re.match(r"deployment/|service/|/|\d+$", word) and word not in known]


def test_its_values_work(tmp_path: Path) -> None:
    made = chart()
    assert problems(made) == []
    environ = mounted(made, tmp_path / "pod", SECRETS, tmp_path)
    settings = wired.load(environ={"HOME": "/nowhere", **environ}, file=environ["SPOT_CONFIG"])
    assert settings.database_url.startswith("postgresql:")
    assert settings.sections


def test_its_commands_name_what_the_chart_makes() -> None:
    found = commands(block("bash"))
    assert [words[0] for words in found].count("helm") == 1
    assert [unknown(words, chart()) for words in found if words[0] == "kubectl"] == [[]] * (len(found) - 1)
    own, runs = (words[-1] for words in found if words[1:3] == ["create", "namespace"])
    assert {words[words.index("--namespace") + 1] for words in found if "--namespace" in words} == {own}
    assert chart().only("Role")["metadata"]["namespace"] == runs
    (helm,) = (words for words in found if words[0] == "helm")
    assert helm[3:5] == [RELEASE, str(CHART.relative_to(ROOT))]
    assert f"# {helm[-1]};" in block("yaml")


def test_the_secrets_that_it_creates_are_those_that_the_pod_mounts() -> None:
    secrets = [volume["secret"] for volume in chart().pod["volumes"] if "secret" in volume]
    wanted = {(secret["secretName"], item["key"]) for secret in secrets for item in secret["items"]}
    created = set()
    for words in (words for words in commands(block("bash")) if "secret" in words):
        key, file = words[-1].removeprefix("--from-file=").split("=")
        created.add((words[words.index("generic") + 1], key))
        assert f"> {file}\n" in PAGE, "a command writes it"
    assert created == wanted


def test_what_helm_prints_names_what_the_chart_makes() -> None:
    for values in ({}, {"ingress": {"enabled": True, "host": "spot.lab.example"}}, {"migrate": True}):
        made = rendered({**yaml.safe_load(block("yaml")), **values})
        found = commands(made.notes)
        assert len(found) >= 3
        assert [unknown(words, made) for words in found] == [[]] * len(found)
        assert {words[2] for words in found} == {NAMESPACE}
        assert "spot" in made.notes
        assert "{{" not in made.notes


def test_a_command_with_a_wrong_name_would_be_found() -> None:
    words = shlex.split("kubectl exec deployment/spots -- cat /var/lib/spot/admin-token")
    assert unknown(words, chart()) == ["deployment/spots", "/var/lib/spot/admin-token"]


@pytest.mark.parametrize("setting", sorted(set(re.findall(r"--set ([\w.]+=\w+)", PAGE))))
def test_each_value_that_it_sets_is_a_value_of_the_chart(setting: str) -> None:
    path, _, value = setting.partition("=")
    here: Any = DEFAULTS
    for name in path.split("."):
        assert name in here, setting
        here = here[name]
    assert type(yaml.safe_load(value)) is type(here)


def test_the_values_that_its_sentences_name_are_values() -> None:
    assert set(re.findall(r"`([a-z]+[A-Z]\w+)`", SECTION)) <= set(DEFAULTS)


def test_it_says_how_helm_is_called() -> None:
    assert calls_in(SECTION, "helm") == {"upgrade"}
