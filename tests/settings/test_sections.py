"""Sections [providers.NAME] of the settings file: each is a provider, with the flat settings as defaults."""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.domain.errors import SettingsRefused
from supervisor.domain.findings import OK, WARN, Check, Finding
from supervisor.reconciler.system_clock import SystemClock
from supervisor.settings.loading import Settings
from supervisor.wiring import adapters
from supervisor.wiring import settings as wired
from supervisor.wiring.surroundings import groups_of, in_group

CLOUD = """
[providers.cloud]
kind = "gce"
project = "my-project-123456"
zones = ["us-east1-c"]
shapes = {t4 = "n1-standard-8+1xnvidia-tesla-t4"}
"""
LAB = '[providers.lab]\nkind = "local"\nzones = ["bench"]\n'
CONTENT = 'store_url = "file:///content/spot"\n'
BUCKET = 'store_url = "gs://my-bucket/spot"\n'


def load(tmp_path: Path, text: str, **environ: str) -> Settings:
    file = tmp_path / "spot.toml"
    file.write_text(text, encoding="utf-8")
    return wired.load(environ={"HOME": str(tmp_path), **environ}, file=file)


def test_a_section_is_a_provider_under_its_name(tmp_path: Path) -> None:
    known = load(tmp_path, LAB)
    assert (known.provider, list(known.sections)) == ("lab", ["lab"])
    section = known.sections["lab"]
    assert (section.kind, section.values.local_zones) == ("local", ("bench",))
    opened = adapters.choose(known, None, SystemClock()).lone
    assert (opened.provider.name, opened.provider.traits.kind) == ("lab", "local")
    assert {offer.placement.provider for offer in opened.provider.offers()} == {"lab"}


def test_a_key_missing_in_a_section_has_the_value_of_the_flat_setting(tmp_path: Path) -> None:
    known = load(tmp_path, BUCKET + CLOUD, SPOT_GCE_NOTICE_S="120", SPOT_GCE_ZONES="us-east1-d")
    values = known.sections["cloud"].values
    assert (values.gce_notice_s, values.gce_zones) == (120, ("us-east1-c",))
    assert values.gce_boot_disk_gb == 100, "the default of the setting"


def test_sections_keep_the_order_of_the_file(tmp_path: Path) -> None:
    assert list(load(tmp_path, BUCKET + CLOUD + LAB).sections) == ["cloud", "lab"]
    assert list(load(tmp_path, BUCKET + LAB + CLOUD).sections) == ["lab", "cloud"]


def test_a_key_may_be_the_whole_name_of_the_setting(tmp_path: Path) -> None:
    known = load(tmp_path, '[providers.lab]\nkind = "local"\nlocal_zones = ["bench"]\n')
    assert known.sections["lab"].values.local_zones == ("bench",)


def test_each_key_knows_where_it_comes_from(tmp_path: Path) -> None:
    known = load(tmp_path, LAB)
    origin = f"file {tmp_path / 'spot.toml'}"
    assert known.origins["provider"] == known.origins["providers.lab.local_zones"] == origin
    assert known.value("providers.lab.kind") == "local"
    assert known.value("providers.lab.local_zones") == ("bench",)
    assert known.value("local_zones") == ("local-a", "local-b", "local-c"), "the flat one is left alone"


def test_without_sections_the_kind_is_the_name(tmp_path: Path) -> None:
    known = load(tmp_path, 'local_zones = ["z"]\n')
    assert list(known.sections) == ["local"]
    assert known.sections["local"].values.local_zones == ("z",)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[providers]\n", r"providers: expected sections such as \[providers.local\]"),
        ('providers = ["local"]\n', r"providers: expected sections such as \[providers.local\]"),
        ('[providers]\nlab = "local"\n', r"providers.lab: expected a section \[providers.lab\]"),
        ('[providers.Lab]\nkind = "local"\n', r"\[providers.Lab\]: a name is a lower-case letter"),
        ("[providers.lab]\n", r"\[providers.lab\]: kind is not set: expected local or gce"),
        (
            '[providers.lab]\nkind = "locla"\n',
            r"kind = locla: expected local or gce or .* or kubernetes or kaggle or colab; did you mean local\?",
        ),
        (
            '[providers.lab]\nkind = "aws"\n',
            r"kind = aws: expected local or gce or ssh or .* or kubernetes or kaggle or colab$",
        ),
        (LAB + "zone = 1\n", r"\[providers.lab\]: zone is not a setting of local; did you mean zones\?"),
        (LAB + "colour = 1\n", "colour is not a setting of local; local has zones, shapes, capacity"),
        (LAB + 'local_zones = ["b"]\n', "zones and local_zones are the same setting: keep one"),
        (LAB + LAB, "cannot read the settings file"),
        (LAB + "machines = -1\n", r"local_machines \(file .*\[providers.lab\]\): expected a whole number"),
        (LAB + "capacity = {elsewhere = 1}\n", r"\[providers.lab\]: local_capacity names elsewhere, .*\(bench\)"),
        (BUCKET + CLOUD.replace("project", "network"), r"\[providers.cloud\]: provider = gce needs gce_project"),
        (CLOUD, r"\[providers.cloud\] \(kind = gce\) needs store_url = gs://BUCKET\[/PREFIX\]; it is file:///"),
        (CONTENT + '[providers.colab]\nkind = "colab"\n', r"\[providers.colab\].* needs store_url = file:///FOLDER"),
        ('provider = "local"\n' + LAB, r"provider = local \(file .*\), but .* has sections .* leave provider out"),
    ],
)  # fmt: skip
def test_refused_with_the_value_and_the_expected_form(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(SettingsRefused, match=told):
        load(tmp_path, text)


def test_the_form_of_a_store_is_that_of_the_sections_own_kind(tmp_path: Path) -> None:
    """/content is refused by Colab alone."""
    assert list(load(tmp_path, CONTENT + LAB).sections) == ["lab"]


def test_a_variable_that_names_the_provider_contradicts_sections(tmp_path: Path) -> None:
    with pytest.raises(SettingsRefused, match=r"provider = gce \(environment SPOT_PROVIDER\)"):
        load(tmp_path, LAB, SPOT_PROVIDER="gce")


def test_a_setting_of_a_kind_without_section_gets_a_warning(tmp_path: Path) -> None:
    (warning,) = load(tmp_path, LAB, SPOT_GCE_PROJECT="my-project").warnings
    assert warning == "gce_project = my-project has no effect, because no section of [providers] has kind = gce."


def test_two_sections_that_see_the_same_machines_are_refused(tmp_path: Path) -> None:
    known = load(tmp_path, LAB + LAB.replace("lab", "bench"))
    with pytest.raises(SettingsRefused, match=r"\[providers.lab\] and \[providers.bench\] see the same machines"):
        adapters.choose(known, None, SystemClock())


def test_another_section_is_another_digest(tmp_path: Path) -> None:
    one, other = load(tmp_path, LAB), load(tmp_path, LAB.replace("bench", "desk"))
    assert wired.digest(one) != wired.digest(other)


def test_the_doctors_lines_stand_in_a_group_for_each_provider(tmp_path: Path) -> None:
    assert groups_of(load(tmp_path, BUCKET + LAB + CLOUD)) == {
        "cloud": ("google", "Google Cloud"), "lab": ("local", "This computer"),
    }  # fmt: skip
    two = load(tmp_path, BUCKET + CLOUD + CLOUD.replace("providers.cloud", "providers.europe"))
    assert list(groups_of(two).items()) == [
        ("cloud", ("google cloud", "Google Cloud (cloud)")),
        ("europe", ("google europe", "Google Cloud (europe)")),
    ]
    here = Finding("disk", OK, "free")
    check = Check("quota", lambda: [Finding("quota", WARN, "spent", group="google"), here], "google")
    moved = in_group(check, "google", "google europe")
    assert (moved.group, [line.group for line in moved.ask()]) == ("google europe", ["google europe", here.group])
    assert in_group(check, "google", "google") is check


def test_a_single_value_is_that_of_the_first_provider_with_it(tmp_path: Path) -> None:
    known = load(tmp_path, BUCKET + LAB + CLOUD, SPOT_GCE_NETWORK="other")
    key = known.in_use("gce_project")
    assert (key, known.value(key)) == ("providers.cloud.gce_project", "my-project-123456")
    assert known.in_use("gce_network") == "gce_network", "the section leaves it out"
    assert known.in_use("default_image") == "default_image"
