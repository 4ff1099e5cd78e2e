"""docs/google-cloud-setup.md: its table and its gcloud commands grant what deploy/terraform grants, nothing else."""

from __future__ import annotations

import re
import sys

import pytest

from supervisor.cli.files import build_image
from supervisor.providers.gce.doctor import permissions as product
from supervisor.wiring.settings import load
from tests.cloud import rolefiles
from tests.cloud.rolefiles import BUILD, BUILDER, PERSON, PREDEFINED, SUPERVISOR, WORKER, Grant, blocks, local_values
from tests.docs.test_pages_match_the_code import page

PAGE = page("docs/google-cloud-setup.md")
NAMES = {
    SUPERVISOR: "supervisor",
    PERSON: "a person who runs the supervisor",
    WORKER: "worker",
    BUILD: "build",
    BUILDER: "a person who builds",
}
PLACES = {
    "bucket": "the bucket",
    "staging": "the bucket, `build-staging/`",
    "repository": "the registry",
    "secret": "each named secret",
    "worker account": "`spot-worker`",
    "build account": "`spot-build`",
}
MEMBERS = {"$WHO": SUPERVISOR, "$WORKER": WORKER, "$BUILD": BUILD, "$ME": BUILDER}


def between(name: str) -> str:
    found = re.search(rf"<!-- {name}: begin -->\n(.*?)\n<!-- {name}: end -->", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


def table() -> str:
    """As it must stand in the page; `python -m tests.docs.test_google_cloud_setup` prints it."""
    rows = ["| account | on | permissions |", "| --- | --- | --- |"]
    for identity, name in NAMES.items():
        if identity == SUPERVISOR:
            groups = local_values()["supervisor_permissions"] | local_values()["advice_permissions"]
            always = [one for group in product.ALWAYS for one in groups[group]]
            rows.append(f"| {name} | the project | {_list(always)} |")
            rows += [
                f"| {name}, `{group}` | the project | {_list(groups[group])} |"
                for group in product.PROJECT
                if group not in product.ALWAYS
            ]
        elif own := _granted(identity, "project"):
            rows.append(f"| {name} | the project | {_list(own)} |")
        rows += [
            f"| {name} | {told} | {_list(own)} |"
            for place, told in PLACES.items()
            if (own := _granted(identity, place))
        ]
    return "\n".join(rows)


def _granted(identity: str, where: str) -> list[str]:
    return sorted(one.permission for one in rolefiles.grants() if (one.identity, one.where) == (identity, where))


def _list(permissions: list[str]) -> str:
    """compute.zones.get, compute.zones.list -> `compute.zones.{get,list}`."""
    things: dict[str, list[str]] = {}
    for permission in sorted(permissions):
        thing, _, verb = permission.rpartition(".")
        things.setdefault(thing, []).append(verb)
    told = (
        f"{thing}.{verbs[0]}" if len(verbs) == 1 else f"{thing}.{{{','.join(verbs)}}}"
        for thing, verbs in things.items()
    )
    return ", ".join(f"`{one}`" for one in told)


def test_the_table_is_what_terraform_grants() -> None:
    assert between("permissions") == table(), "run: python -m tests.docs.test_google_cloud_setup"


def by_hand(commands: str) -> set[Grant]:
    """What the gcloud commands grant."""
    lines = commands.splitlines()
    roles = dict(PREDEFINED)
    for line in lines:
        if made := re.match(r"gcloud iam roles create (\w+) .*--permissions=(\S+)", line):
            roles[f"projects/$PROJECT/roles/{made[1]}"] = tuple(made[2].split(","))
    found = set()
    for line in lines:
        if "add-iam-policy-binding" not in line:
            continue
        member, role = re.search(r"--member=(\S+)", line), re.search(r"--role=(\S+)", line)
        assert member, line
        assert role, line
        found |= {Grant(MEMBERS[member[1]], one, _place(line)) for one in roles[role[1]]}
    return found


def _place(line: str) -> str:
    kinds = {
        "gcloud projects": "project",
        "gcloud storage": "staging" if "$STAGED" in line else "bucket",
        "gcloud artifacts": "repository",
        "gcloud secrets": "secret",
        "gcloud iam": "worker account" if "${WORKER" in line else "build account",
    }
    return next(place for words, place in kinds.items() if line.strip().startswith(words))


def by_terraform() -> set[Grant]:
    """Without the features that are off by default. The person of the commands is the supervisor's user and builds too:
    what is staged, and the right to use the project, need no grant of their own."""
    (features,) = (block["features"]["default"] for block in blocks("variable") if "features" in block)
    groups = local_values()["supervisor_permissions"]
    off = {one for group in groups if group not in (*product.ALWAYS, *features) for one in groups[group]}
    return {
        one
        for one in rolefiles.grants()
        if one.identity != PERSON
        and not (one.identity == SUPERVISOR and one.permission in off)
        and not (one.identity == BUILDER and one.where in ("staging", "bucket"))
    }


def test_the_gcloud_commands_grant_what_terraform_grants() -> None:
    assert by_hand(between("gcloud")) == by_terraform()


@pytest.mark.parametrize("gone", ["compute.zones.get,", ",storage.objects.list", "--role=roles/logging.logWriter"])
def test_a_command_that_grants_less_would_be_seen(gone: str) -> None:
    less = between("gcloud").replace(gone, "--role=roles/storage.objectViewer" if "--role" in gone else "")
    assert by_hand(less) != by_terraform()


def test_the_commands_enable_the_services_that_terraform_enables() -> None:
    enabled = re.search(r"gcloud services enable (.*) --project", between("gcloud"))
    assert enabled is not None
    assert enabled[1].split() == local_values()["services"]


def test_the_settings_that_the_commands_write_are_settings() -> None:
    written = re.search(r"<<END\n(.*?)\nEND", between("gcloud"), re.DOTALL)
    assert written is not None
    text = written[1].replace("$PROJECT", "my-project").replace("$BUCKET", "my-bucket").replace("$REGION", "us-east1")
    text = text.replace("${WORKER#*:}", "spot-worker@my-project.iam.gserviceaccount.com")
    settings = load(environ={"HOME": "/nowhere", **dict(line.split("=", 1) for line in text.splitlines())})
    assert (settings.provider, settings.store_url) == ("gce", "gs://my-bucket")
    assert not [line for line in settings.warnings if "is not a setting" in line]
    told = {line.partition("=")[0] for line in text.splitlines()}
    assert told <= set(local_values()["settings"])


def test_sources_are_staged_where_the_build_account_may_read() -> None:
    (prefix,) = (block["staging_prefix"] for block in blocks("variable") if "staging_prefix" in block)
    assert prefix["default"] == build_image.STAGING_FOLDER
    assert f"/objects/{build_image.STAGING_FOLDER}/" in between("gcloud")


def test_every_feature_is_told() -> None:
    readme = page("deploy/terraform/README.md")
    features = set(product.PROJECT) - set(product.ALWAYS)
    assert set(re.findall(r"^\| `(\w+)` \|", readme, re.MULTILINE)) == features


def test_commands_use_no_variable_that_the_page_has_not_set() -> None:
    for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL):
        used = set(re.findall(r"\$\{?([A-Z][A-Z_]*)", block))
        made = set(re.findall(r"(?:^|\s|for )([A-Z][A-Z_]*)(?:=| in )", block)) | {"PWD"}
        assert used <= made, used - made


def test_it_is_linked() -> None:
    assert "google-cloud-setup.md" in page("docs/google-cloud.md")
    assert "docs/google-cloud-setup.md" in page("README.md")


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
