"""The settings of a Kaggle account, what the doctor says of it, its page, and the gate against scratch folders."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from supervisor.contract import runfiles
from supervisor.contract.notebook import cell, cell_apart
from supervisor.contract.parcel import Parcel, encode_parcel
from supervisor.domain.bundle_index import BundleIndex
from supervisor.domain.errors import InvalidRequest, SettingsRefused
from supervisor.domain.findings import FAIL, OK, WARN, Finding
from supervisor.domain.profile import Danger, End, Reach, Survival, danger_clocks, survival
from supervisor.machinefolder.agent_archive import build_agent
from supervisor.providers.kaggle.doctor import account_checks
from supervisor.providers.kaggle.kernels import (
    MOST_CHARS,
    NOTHING,
    Label,
    code_of,
    label_in,
    notebook,
    reason_in,
    slug_of,
)
from supervisor.providers.kaggle.profile import profile
from supervisor.providers.kaggle.pushing import INPUTS, SOURCE_MAX_BYTES, WORKING
from supervisor.providers.kaggle.settings import (
    ACCELERATORS,
    KaggleSettings,
    accelerator_of,
    check,
    complete,
    meaning,
    offers,
)
from supervisor.providers.kaggle.traits import CODE_MAX_BYTES, traits_of
from supervisor.reconciler.system_clock import SystemClock
from supervisor.remote import address
from supervisor.services.runs import code, policy
from supervisor.services.runs.spec_secrets import check_kinds
from supervisor.wiring.adapters import choose
from supervisor.wiring.settings import load
from tests.kaggle.service import HOUR_S, Refusal
from tests.providers.kaggle_subject import DAY, URL, KaggleSubject
from tools.project_files import ROOT

PAGE = (ROOT / "docs/providers/kaggle.md").read_text(encoding="utf-8")
LABEL = Label("spot-digits-a1-t1", "gpu", "t4", "supervisor-one", "digits", "1.1.1", 1_790_000_000.25, 2)


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[KaggleSubject]:
    subject = KaggleSubject(tmp_path)
    yield subject
    subject.close()


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"kaggle_shapes": ("t5",)}, "kaggle_shapes names t5: expected t4, t4x2"),
        ({"kaggle_shapes": ("p100",), "kaggle_accelerators": {"p100": "NvidiaTeslaP100"}}, "is retired"),
        ({"kaggle_accelerators": {"x": "NvidiaL4"}}, "kaggle_accelerators names x, which is not one of kaggle_shapes"),
        ({"kaggle_token": "my-secret-token"}, "kaggle_token: expected env:NAME or file:/PATH"),
        ({"kaggle_user": "a b"}, "kaggle_user = a b"),
        ({"kaggle_session_cap_s": 60.0}, "expected 900 to 43200 seconds"),
        ({"kaggle_image": "python:3"}, "with its digest"),
    ],
)
def test_a_setting_that_cannot_be_right_is_refused(values: dict[str, Any], text: str) -> None:
    with pytest.raises(SettingsRefused, match=re.escape(text)):
        check(KaggleSettings(**values))


def test_without_a_user_nothing_is_opened_and_the_default_is_one_t4() -> None:
    with pytest.raises(SettingsRefused, match="needs kaggle_user"):
        complete(KaggleSettings())
    check(KaggleSettings())
    each = offers("kaggle", KaggleSettings(kaggle_shapes=("t4x2", "l4x4"), kaggle_accelerators={"l4x4": "NvidiaL4"}))
    assert [(o.placement.shape, o.placement.zone, o.price_usd_per_h) for o in each if o.placement.spot] == [
        ("t4x2", "gpu", 0.0),
        ("l4x4", "gpu", 0.0),
    ]
    own = accelerator_of(KaggleSettings(kaggle_accelerators={"t": "TpuV7E8"}), "t")
    assert own is not None
    assert (own.zone, own.words) == ("tpu", "")


def test_it_is_not_opened_without_an_address(tmp_path: Path) -> None:
    pytest.importorskip("kagglesdk")
    flags = {"data_dir": str(tmp_path), "provider": "kaggle", "kaggle_user": "me", "store": f"file://{tmp_path}/store"}
    with pytest.raises(SettingsRefused, match="provider = kaggle needs public_url"):
        choose(load(flags, {}), None, SystemClock())
    choose(load({**flags, "public_url": URL}, {}), None, SystemClock()).close()


def test_the_page_has_the_accelerators_and_the_settings_of_the_code() -> None:
    rows = re.findall(r"^\| `([a-z0-9]+)` \| (?:`(\w+)`|none) \| `(\w+)` \|$", PAGE, flags=re.MULTILINE)
    assert rows == [(shape, each.machine_shape, each.zone) for shape, each in ACCELERATORS.items()]
    table = PAGE.partition("## Settings")[2].partition("| shape |")[0]
    keys = re.findall(r"^\| `([a-z_]+)` \|", table, flags=re.MULTILINE)
    assert [f"kaggle_{key}" for key in keys] == list(KaggleSettings.__dataclass_fields__)


# --- notebooks --------------------------------------------------------------------------------------------------------


def test_a_notebook_says_whose_it_is_and_what_is_none_of_ours_says_nothing() -> None:
    source = notebook(LABEL, "print(1)")
    assert label_in(source) == LABEL
    assert code_of(source).endswith("\nprint(1)")
    spoiled = [source.replace("supervisor_id", "x"), source.replace('\\"push\\": 2', '\\"push\\": null')]
    assert source not in spoiled
    for other in ("", "{}", "[]", *spoiled):
        assert label_in(other) is None


@pytest.mark.parametrize("name", ["spot-digits-a1-t1", "x", f"spot-{'long-' * 12}a12-t3", f"spot-{'long-' * 12}a12-t4"])
def test_a_slug_is_its_own_title_and_fits(name: str) -> None:
    slug = slug_of(name)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", slug)
    assert 5 <= len(slug) <= MOST_CHARS
    assert slug.startswith("spot-")


def test_long_names_have_slugs_of_their_own() -> None:
    names = [f"spot-{'long-' * 12}a{attempt}-t1" for attempt in range(50)]
    assert len({slug_of(name) for name in names}) == len(names)


def test_why_a_cell_started_nothing_is_read_from_its_log() -> None:
    assert reason_in(f"a\n{NOTHING}https://x: no network\nb\n") == "https://x: no network"
    assert reason_in("spot: trained\n") == ""
    assert NOTHING in cell("https://x", "ticket", "0" * 64), "the words of the cell"


# --- what people read before a launch ---------------------------------------------------------------------------------


def test_only_the_store_outlives_a_session() -> None:
    """NB4."""
    shown = profile(KaggleSettings(), DAY)
    for path in (
        "/kaggle/temp/out",
        "/tmp/out",  # noqa: S108 - in the session
        "~/out",
        "/kaggle/working/out",
    ):
        assert survival(shown, path, End.REQUEUE, "/root").value is Survival.NO
    assert shown.is_apart
    dangers = [clock.danger for clock in danger_clocks(shown, 0.0)]
    assert {Danger.SESSION_ENDS, Danger.UNPAID, Danger.PREEMPTED} <= set(dangers)
    assert Danger.IDLE_ENDS not in dangers
    assert not shown.quota.is_known, "nothing was read yet"


# --- the doctor -------------------------------------------------------------------------------------------------------


def report(subject: KaggleSubject, url: str = URL) -> dict[str, Finding]:
    (asked,) = account_checks(subject.provider.api, subject.settings, url, subject.clock.now)
    return {finding.name: finding for finding in asked.ask()}


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address leads to the supervisor."""
    monkeypatch.setattr(address, "why_not", lambda url: "")


@pytest.mark.usefixtures("reached")
def test_the_doctor_names_the_hours_and_what_nobody_can_know(subject: KaggleSubject) -> None:
    subject.up(subject.request())
    shown = report(subject)
    assert (shown["account"].result, shown["address"].result) == (OK, OK)
    assert shown["gpu hours"].fact.startswith("30.0 of 30.0 h are left this week; they begin anew at ")
    assert (shown["internet"].result, shown["internet"].fact) == (WARN, "not known")
    assert "t4 = NvidiaTeslaT4" in shown["accelerators"].fact
    assert "tpu hours" not in shown


@pytest.mark.usefixtures("reached")
def test_the_doctor_finds_a_wrong_user_few_hours_and_no_address(subject: KaggleSubject) -> None:
    subject.kaggle.used_s = 29.5 * HOUR_S
    shown = report(subject, "")
    assert {name for name, finding in shown.items() if finding.result != OK} == {
        "user",
        "gpu hours",
        "internet",
        "address",
    }
    subject.kaggle.refuse["GetAcceleratorQuotaStatistics"] = Refusal(500, "Internal")
    assert report(subject, "http://spot.example")["hours"].result == WARN
    subject.kaggle.refuse = {"ListKernels": Refusal(401, "Unauthenticated")}
    refused = report(subject, "")
    assert [(each.result, "kaggle_token" in each.cause) for each in refused.values()] == [(FAIL, True), (FAIL, False)]
    assert "address" in refused, "both are to be corrected, so both are named at once"


# --- without the internet ---------------------------------------------------------------------------------------------


def test_a_session_without_the_internet_takes_no_secret_no_download_and_little_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    traits = traits_of(internet=False)
    assert (traits_of(internet=True).code_max_bytes, traits_of(internet=True).network) == (None, True)
    with pytest.raises(InvalidRequest, match="nothing: Kaggle stores"):
        check_kinds({"secrets": {"KEY": "env:KEY"}}, "kaggle", traits.secrets)
    with pytest.raises(InvalidRequest, match="download no `stage`"):
        policy._check_job({"command": ["x"], "stage": [{"from": "gs://a/b"}]}, traits)
    policy._check_job({"command": ["x"]}, traits)
    parts: Any = SimpleNamespace(own_provider="kaggle", traits=lambda name: traits, objects=None)
    most = 256 << 10
    spec = {"command": ["x"], "code": "0" * 64}
    monkeypatch.setattr(code, "_find", lambda objects, sha256: BundleIndex.of(sha256, (), most))
    assert code.refusal(parts, spec) is None
    monkeypatch.setattr(code, "_find", lambda objects, sha256: BundleIndex.of(sha256, (), most + 1))
    refusal = code.refusal(parts, spec)
    assert refusal is not None
    assert refusal.code == "CODE_REFUSED"
    assert "262,145 bytes, and the machines of kaggle take 262,144" in str(refusal)


def test_the_largest_code_that_a_submit_accepts_fits_into_the_source_of_a_notebook() -> None:
    """With the real agent, and room for the job, the baton and the cell: else the launch would refuse it."""
    content = os.urandom(CODE_MAX_BYTES)
    parcel = Parcel({"command": ["x"]}, b"a baton", {runfiles.code("0" * 64): content})
    source = cell_apart(build_agent(), encode_parcel(parcel), inputs=INPUTS, output=WORKING, title="a session")
    label = Label("t1-digits-a1-t1", "gpu", "t4", "supervisor-one", "digits", "1.1.1", 0.0, apart=True)
    assert len(notebook(label, source)) < SOURCE_MAX_BYTES - (32 << 10)


def test_without_the_internet_no_address_is_needed_and_the_words_say_how_work_comes_back() -> None:
    offline = KaggleSettings(kaggle_user="ada", kaggle_internet=False)
    text, _ = meaning(offline, "file:///objects", "")
    assert text.endswith("through the output of each version, at its end")
    assert profile(offline, "2026-11-27").store_reach.value is Reach.OUTPUT
    assert profile(KaggleSettings(kaggle_user="ada"), "2026-11-27").store_reach.value is Reach.DOOR
