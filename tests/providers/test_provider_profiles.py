"""The profiles of the providers themselves: documented facts, and settings that change them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.domain.profile import (
    Danger,
    End,
    Profile,
    Reach,
    Source,
    Stops,
    Survival,
    danger_clocks,
    survival,
    tier_of,
)
from supervisor.providers.gce.config import DataDisk, GceConfig, NewDisk
from supervisor.providers.gce.profile import SCRATCH
from supervisor.providers.gce.profile import profile as gce_profile
from supervisor.providers.local.profile import profile as local_profile
from tools.project_files import ROOT

DAY = "2026-11-20"
CONFIG = GceConfig(project="p", zones=("us-east1-c",), shapes={}, store_url="gs://bucket/runs")
YES, NO, VERIFY = Survival.YES, Survival.NO, Survival.VERIFY


def cloud(config: GceConfig = CONFIG) -> Profile:
    return gce_profile(config, DAY)


def ends(profile: Profile, path: str) -> list[Survival | None]:
    return [survival(profile, path, end).value for end in End]


class TestGoogleCloud:
    def test_a_spot_machine_has_thirty_seconds_and_with_the_setting_two_minutes_more(self) -> None:
        plain = cloud()
        assert (plain.notice_s.value, plain.notice_s.source, plain.saving_s) == (0.0, Source.DOCUMENTED, 30.0)
        asked = cloud(replace(CONFIG, notice_s=120))
        assert (asked.notice_s.value, asked.notice_s.source, asked.notice_s.on) == (120.0, Source.USER, DAY)
        assert asked.saving_s == 150.0

    def test_only_the_bucket_outlives_the_machine(self) -> None:
        profile = cloud()
        assert ends(profile, "/root/checkpoints") == ends(profile, "~/x") == [YES, NO, YES, NO]
        assert ends(profile, f"{SCRATCH}/data") == [YES, NO, VERIFY, NO]
        assert ends(profile, "gs://bucket/runs/digits-7") == [YES] * 4
        assert ends(profile, "gs://another/runs") == [None] * 4

    def test_the_scratch_folder_is_that_of_the_start_up_script(self) -> None:
        script = (ROOT / "supervisor/providers/gce/machines/startup_machine.sh").read_text()
        assert f"SCRATCH={SCRATCH} " in script

    def test_an_existing_disk_outlives_the_machine_and_holds_it_in_its_zone(self) -> None:
        disk = DataDisk("corpus", "us-east1-c", read_only=True)
        profile = cloud(replace(CONFIG, data_disk=disk))
        assert ends(profile, f"{disk.mount}/x") == [YES] * 4
        assert profile.region_lock.value == "the disk corpus, in us-east1-c"
        assert (profile.shared_fs.value, profile.shared_fs.source) == (disk.mount, Source.USER)
        assert profile.verbs[0].left_usd_per_gb_month.value is None, "the disk is billed after the machine"
        assert cloud(replace(CONFIG, data_disk=replace(disk, read_only=False))).shared_fs.value == ""

    def test_a_new_disk_goes_with_its_machine(self) -> None:
        profile = cloud(replace(CONFIG, new_disk=NewDisk(500, "pd-balanced")))
        assert ends(profile, "/mnt/disks/data/x") == [YES, NO, YES, NO]
        assert profile.region_lock.value == ""
        assert profile.verbs[0].left_usd_per_gb_month.value == 0.0

    def test_the_dead_man_switch_ends_the_bill_without_us(self) -> None:
        clocks = {clock.danger: clock for clock in danger_clocks(cloud(), 0.21)}
        assert (clocks[Danger.BILLS].verb, clocks[Danger.BILLS].after_s) == ("delete", 86400.0)
        assert clocks[Danger.STOP_STILL_BILLS].verb == "stop"
        assert clocks[Danger.PREEMPTED].after_s == 30.0

    def test_what_nobody_has_measured_is_unknown(self) -> None:
        unknown = {name for name, fact in cloud().facts.items() if not fact.is_known}
        assert unknown >= {"egress_usd_per_gb", "cross_zone_usd_per_gb", "driver_cuda_max", "unpaid", "local_nvme"}
        assert cloud().store_reach.value is Reach.DIRECT


class TestThisComputer:
    BOX = local_profile(Path("/var/lib/spot/machines"), 3, DAY)

    def test_nothing_is_billed_and_nothing_is_dangerous(self) -> None:
        assert self.BOX.meter_stop.value == ""
        assert danger_clocks(self.BOX, 0.0) == ()
        assert [verb.stops_meter.value for verb in self.BOX.verbs] == [Stops.YES]

    def test_only_the_folder_of_the_machine_goes_with_it(self) -> None:
        assert ends(self.BOX, "/var/lib/spot/machines/spot-1-a1-t1/work/x") == [YES, NO, YES, NO]
        assert ends(self.BOX, "/var/lib/spot/objects/runs/x") == [YES] * 4
        assert ends(self.BOX, "~/results") == [YES] * 4
        assert tier_of(self.BOX, "/run/user/1000/x") is not tier_of(self.BOX, "/home/x")

    @pytest.mark.parametrize(("most", "text"), [(3, "3 at once"), (None, "machines at once in each zone")])
    def test_the_limit_is_a_setting(self, most: int | None, text: str) -> None:
        quota = local_profile(Path("/x"), most, DAY).quota
        assert (quota.value, quota.source, quota.on) == (text, Source.USER, DAY)
