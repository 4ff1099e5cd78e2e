"""deploy/terraform cannot be run here: it must parse, have no dangling references, and agree with the product."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from supervisor.providers.gce.doctor import permissions as product
from supervisor.wiring.settings import load
from tests.cloud import access, rolefiles
from tests.cloud.rolefiles import TERRAFORM, blocks, local_values, resources

ALL = "\n".join(path.read_text() for path in sorted(TERRAFORM.glob("*.tf")))
CODE = re.sub(r"(?m)#.*$", "", ALL)


def test_every_file_parses_and_holds_something() -> None:
    names = set(rolefiles.files())
    assert {"main.tf", "variables.tf", "roles.tf", "access.tf", "outputs.tf", "example.tfvars"} <= names
    assert all(rolefiles.files().values())


def declared(kind: str) -> set[str]:
    return {name for block in blocks(kind) for name in block}


def test_every_variable_and_local_that_is_used_is_declared_and_the_other_way_round() -> None:
    assert set(re.findall(r"\bvar\.(\w+)", CODE)) == declared("variable")
    assert set(re.findall(r"\blocal\.(\w+)", CODE)) == set(local_values())
    assert set(rolefiles.files()["example.tfvars"]) <= declared("variable")


def test_every_resource_that_is_referred_to_is_declared() -> None:
    known = {f"{kind}.{name}" for kind, name, _ in resources()}
    known |= {f"{kind}.{name}" for block in blocks("data") for kind, named in block.items() for name in named}
    used = set(re.findall(r"\b(google_\w+\.\w+)", CODE))
    assert used <= known
    roles = {name for name in known if name.startswith("google_project_iam_custom_role.")}
    assert roles <= used, "a role that nobody is given"


def test_every_variable_and_output_says_what_it_is() -> None:
    for kind in ("variable", "output"):
        for block in blocks(kind):
            for name, about in block.items():
                assert about.get("description", "").strip(), name


def test_the_supervisors_role_is_the_products_own_table_group_by_group() -> None:
    groups = local_values()["supervisor_permissions"] | local_values()["advice_permissions"]
    granted = {group: set(names) for group, names in groups.items()}
    assert granted == {group: set(names) for group, names in product.PROJECT.items()}
    always = re.search(r"setunion\(\[(.*?)\], var\.features\)", CODE)
    assert always is not None
    assert tuple(re.findall(r"\w+", always[1])) == product.ALWAYS


def test_a_role_that_google_may_refuse_takes_nothing_else_along() -> None:
    """Whether a custom role may contain the new advice permissions is not documented."""
    roles = rolefiles.custom_roles()
    assert {one for one in roles["supervisor"] if ".advice." in one} == set()
    assert set(roles["advice"]) == {"compute.advice.capacity", "compute.advice.capacityHistory"}


def test_the_features_are_the_groups_that_are_not_always_granted() -> None:
    (features,) = (block["features"] for block in blocks("variable") if "features" in block)
    offered = set(re.findall(r'"(\w+)"', str(features["validation"])))
    assert offered == set(product.PROJECT) - set(product.ALWAYS)
    assert set(features["default"]) <= offered


def test_what_is_granted_beside_the_project_is_the_products_own_table() -> None:
    def of(where: str) -> set[str]:
        return {one.permission for one in rolefiles.grants() if (one.identity, one.where) == ("supervisor", where)}

    assert of("bucket") == set(product.BUCKET)
    assert of("worker account") == set(product.WORKER_ACCOUNT)
    assert of("repository") == set(product.REGISTRY)


def test_no_permission_stands_twice_in_a_group_and_lists_are_in_order() -> None:
    """Two groups may need the same: the permissions of a role are a set."""
    for value in local_values().values():
        for group in value.values() if isinstance(value, dict) else [value]:
            if isinstance(group, list) and group and "." in group[0]:
                assert group == sorted(set(group))


def test_nobody_gets_a_broad_role() -> None:
    given = {attributes["role"] for kind, _, attributes in resources() if "_iam_" in kind and "role" in attributes}
    named = {role for role in given if role.startswith("roles/")}
    assert named == set(rolefiles.PREDEFINED)
    assert all("iam_binding" not in kind and "iam_policy" not in kind for kind, _, _ in resources())


def test_sources_of_builds_lie_where_the_fakes_think() -> None:
    (prefix,) = (block["staging_prefix"] for block in blocks("variable") if "staging_prefix" in block)
    assert prefix["default"] + "/" == access.STAGING


def test_the_settings_that_come_out_are_settings_of_the_supervisor() -> None:
    values = {
        "SPOT_STORE_URL": "gs://my-spot-bucket",
        "SPOT_GCE_PROJECT": "my-project",
        "SPOT_GCE_ZONES": "us-east1-c,us-east1-b",
        "SPOT_GCE_SHAPES": "t4=n1-standard-8+1xnvidia-tesla-t4",
        "SPOT_GCE_SERVICE_ACCOUNT": "spot-worker@my-project.iam.gserviceaccount.com",
        "SPOT_GCE_NETWORK": "default",
        "SPOT_GCE_EXTERNAL_IP": "true",
        "SPOT_GCE_CAPACITY_ADVICE": "true",
    }
    told: Mapping[str, Any] = local_values()["settings"]
    environ = {name: values.get(name, str(text)) for name, text in told.items() if name != "SPOT_GCE_SUBNET"}
    settings = load(environ={"HOME": "/nowhere", **environ})
    assert settings.provider == "gce"
    assert settings.value("gce_service_account").startswith("spot-worker@")
    assert not [line for line in settings.warnings if "is not a setting" in line]


def lists() -> Iterator[tuple[str, int, list[str]]]:
    """Neighbouring one-line attributes of a file: (file, number of the first line, lines)."""
    for path in sorted((*TERRAFORM.glob("*.tf"), *TERRAFORM.glob("*.tfvars"))):
        found: list[str] = []
        for number, line in enumerate([*path.read_text().splitlines(), ""], 1):
            attribute = re.match(r"( *)[\w\"]+ *= ", line)
            indent = re.match(" *", found[0])[0] if found else ""  # type: ignore[index]
            opens = line.rstrip().endswith(("{", "[", "("))
            if attribute and not opens and (not found or attribute[1] == indent):
                found.append(line)
                continue
            if found:
                yield path.name, number - len(found), found
            found = [line] if attribute and not opens else []


def test_it_is_written_as_terraform_fmt_writes() -> None:
    for path in sorted(TERRAFORM.glob("*.tf*")):
        text = path.read_text()
        assert "\t" not in text
        assert not re.search(r"[ \t]+$", text, re.MULTILINE), path.name
        assert text.endswith("}\n") or path.suffix == ".tfvars"
    for name, number, lines in lists():
        columns = {re.sub(r'".*?"', lambda quoted: "x" * len(quoted[0]), line).index("=") for line in lines}
        assert len(columns) == 1, f"{name}:{number}: the signs of equality do not stand below each other"


@pytest.mark.parametrize("role", ["roles/editor", "roles/storage.admin"])
def test_a_role_that_nobody_looked_at_is_an_error(role: str) -> None:
    with pytest.raises(KeyError):
        rolefiles._permissions(role)
