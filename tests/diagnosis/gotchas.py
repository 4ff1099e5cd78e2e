"""Where each of the 73 known traps is met: a rule, a look-alike that must not fire, a test of its prevention, a page.

The list is closed. An id without a place is open, and `make diagnose` prints how many are. The ids: U, GEN, SLURM, K8S
and NB of the collection of traps that the design page (docs/designs/0025) works through, 0-A to 0-F of its boot
failures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

IDS = (
    *(f"U{number}" for number in range(1, 44)), *(f"GEN{number}" for number in range(1, 9)),
    *(f"SLURM{number}" for number in range(1, 6)), *(f"K8S{number}" for number in range(1, 7)),
    *(f"NB{number}" for number in range(1, 6)), *(f"0-{letter}" for letter in "ABCDEF"),
)  # fmt: skip


@dataclass(frozen=True)
class Rule:
    """A rule of the table names this id."""


@dataclass(frozen=True)
class Negative:
    """Cases of the corpus whose look-alikes these are: the beginning of `family/name`."""

    cases: str


@dataclass(frozen=True)
class Prevented:
    """A test shows that it cannot happen, or what happens before anything is rented."""

    path: str
    test: str


@dataclass(frozen=True)
class Page:
    """A page says what to do; `words` stand in it."""

    path: str
    words: str


@dataclass(frozen=True)
class Open:
    """Nothing meets it yet."""

    why: str


Place = Rule | Negative | Prevented | Page | Open

GOTCHAS: Mapping[str, tuple[Place, ...]] = {
    "U1": (Rule(), Negative("gone/not-ssh-255")),
    "U2": (
        Rule(),
        Prevented(
            "tests/acceptance/test_stories_code.py", "test_a_change_of_code_is_a_new_bundle_and_touches_no_live_run"
        ),
    ),
    "U3": (Rule(), Negative("gone/not-the-record")),
    "U4": (Prevented("tests/diagnosis/test_gotchas.py", "test_launch_and_release_are_two_operations_of_the_host"),),
    "U5": (Rule(), Negative("code/not-import-survived")),
    "U6": (Rule(), Negative("disks/not-survived")),
    "U7": (Rule(), Negative("disks/not-nearly-full")),
    "U8": (Rule(), Negative("slow/not-u8")),
    "U9": (Rule(), Negative("memory/not-a-stranger")),
    "U10": (Rule(), Negative("cards/not-full-caught")),
    "U11": (Rule(), Negative("cards/full-")),
    "U12": (
        Rule(),
        Prevented("tests/objectstores/test_gcs_transfers.py", "test_a_broken_download_goes_on_where_it_was"),
    ),
    "U13": (Prevented("tests/diagnosis/test_gotchas.py", "test_a_transfer_makes_the_folder_of_its_target"),),
    "U14": (
        Rule(),
        Prevented(
            "tests/providers/test_gce_advising.py",
            "test_a_bucket_in_another_region_is_told_with_the_sum_of_each_restore",
        ),
    ),
    "U15": (Rule(),),
    "U16": (
        Prevented("tests/deploy/test_helm_replicas.py", "test_after_a_kill_the_other_replica_leads_within_ten_seconds"),
        Negative("alive/another-name"),
    ),
    "U17": (
        Prevented("tests/reconciler/test_hung_socket.py", "test_a_lookup_is_bounded_too"),
        Negative("alive/poll-unknown"),
    ),
    "U18": (
        Prevented("tests/lifecycle/test_queueing.py", "test_a_recovering_run_first_checks_whether_its_work_is_done"),
    ),
    "U19": (Page("docs/diagnosis.md", "Delete a run in the tracker before you export it again"),),
    "U20": (Rule(),),
    "U21": (Rule(), Negative("slow/not-u21")),
    "U22": (Rule(), Negative("cards/not-an-applications-xid")),
    "U23": (Rule(), Negative("slow/not-u23")),
    "U24": (Rule(),),
    "U25": (Rule(), Negative("slow/not-u25")),
    "U26": (
        Rule(),
        Prevented("tests/cli/test_pack.py", "test_windows_line_ends"),
        Negative("code/not-carriage-returns"),
    ),
    "U27": (Rule(), Negative("code/not-config-printed")),
    "U28": (Rule(), Negative("code/not-driver-warned")),
    "U29": (Rule(),),
    "U30": (Rule(), Prevented("tests/providers/test_gce_registry.py", "test_a_tag_is_pinned_to_what_it_names_now")),
    "U31": (Rule(), Negative("cards/not-idle")),
    "U32": (Page("docs/diagnosis.md", "give each run of a group its own number of epochs"),),
    "U33": (Rule(), Prevented("tests/agent/test_lives.py", "test_a_training_that_finishes_is_done_and_verified")),
    "U34": (
        Prevented("tests/agent/test_rented_lives.py", "test_a_secret_is_read_with_the_machines_account_and_masked"),
    ),
    "U35": (Rule(), Negative("code/not-tracker-off")),
    "U36": (Rule(), Page("docs/diagnosis.md", "Two runs with the same seed differ a little")),
    "U37": (
        Rule(),
        Prevented(
            "tests/agent/test_endings.py", "test_a_failure_after_the_last_step_keeps_the_results_and_the_work_is_done"
        ),
        Negative("results/not-plot-early"),
    ),
    "U38": (Negative("alive/idle-card"),),
    "U39": (Negative("alive/no-event-files"),),
    "U40": (
        Rule(),
        Prevented(
            "tests/agent/test_machine_figures_lives.py",
            "test_a_command_in_a_real_control_group_starts_no_more_threads_than_it_may_run",
        ),
        Negative("slow/not-u40"),
    ),
    "U41": (Negative("alive/loaded-host"),),
    "U42": (Rule(),),
    "U43": (Negative("alive/buffered"), Negative("hangs/not-silent-log")),
    "GEN1": (
        Prevented(
            "tests/lifecycle/test_meter.py",
            "test_reminders_come_after_15_minutes_one_hour_and_every_six_hours_each_once",
        ),
    ),
    "GEN2": (Rule(),),
    "GEN3": (Prevented("tests/objectstores/test_gcs_transfers.py", "test_a_broken_download_goes_on_where_it_was"),),
    "GEN4": (Rule(), Prevented("tests/cli/test_pack.py", "test_windows_line_ends")),
    "GEN5": (Rule(),),
    "GEN6": (Rule(), Negative("gone/not-another-boot")),
    "GEN7": (Rule(), Negative("slow/not-gen7")),
    "GEN8": (Negative("gone/not-unreachable"),),
    "SLURM1": (Rule(),),
    "SLURM2": (Rule(),),
    "SLURM3": (Rule(),),
    "SLURM4": (Rule(),),
    "SLURM5": (
        Rule(),
        Prevented("tests/services/test_gates.py", "test_checkpoints_on_a_tier_that_ends_with_the_machine_are_a_fail"),
    ),
    "K8S1": (Rule(),),
    "K8S2": (Rule(),),
    "K8S3": (Rule(), Negative("boot/not-slow-pull")),
    "K8S4": (
        Prevented(
            "tests/providers/test_kubernetes_waits.py",
            "test_a_volume_that_another_node_holds_needs_a_person_after_ten_minutes",
        ),
    ),
    "K8S5": (Rule(),),
    "K8S6": (Rule(),),
    "NB1": (Rule(),),
    "NB2": (Rule(),),
    "NB3": (Rule(),),
    "NB4": (
        Rule(),
        Prevented("tests/services/test_gates.py", "test_checkpoints_on_a_tier_that_ends_with_the_machine_are_a_fail"),
    ),
    "NB5": (Rule(),),
    "0-A": (Prevented("tests/building/test_ways.py", "test_a_crash_of_gcloud_is_reported_and_the_api_builds"),),
    "0-B": (
        Rule(),
        Prevented("tests/building/test_ways.py", "test_a_403_on_the_source_names_identity_role_and_bucket_first"),
    ),
    "0-C": (Rule(), Negative("boot/not-still-booting")),
    "0-D": (
        Rule(),
        Prevented("tests/providers/test_startup_script_gpus.py", "test_a_driver_that_cannot_be_installed_says_why"),
    ),
    "0-E": (Rule(), Negative("boot/not-its-own-125")),
    "0-F": (Rule(),),
}


def is_open(gotcha: str) -> bool:
    return any(isinstance(place, Open) for place in GOTCHAS[gotcha])


# --- who writes what the rules read -----------------------------------------------------------------------------------

_AGENT, _EVIDENCE = "supervisor/agent/", "supervisor/agent/facts/evidence.py"
_SURROUNDINGS, _NOTES = "supervisor/agent/facts/looks.py", "supervisor/agent/watch/notes.py"
_VITALS, _READING = "supervisor/agent/machine/vitals.py", "supervisor/lifecycle/diagnosis/reading.py"
_SLOW = "supervisor/agent/watch/slow.py"
_HANGS, _LEAVING = "supervisor/agent/watch/hang.py", "supervisor/agent/life/leaving.py"

# Item of the evidence -> the file that makes its value at run time, and words of that file.
WRITTEN: Mapping[str, tuple[str, str]] = {
    "boot.id_now": (_EVIDENCE, '"now": boot_id()'),
    "boot.id_start": (_EVIDENCE, '"at_start": beat.boot_id'),
    "card.held": (_SURROUNDINGS, '"held": held('),
    "card.lost": (_AGENT + "machine/gpus.py", "lost"),
    "card.memory_total": (_AGENT + "machine/nvml.py", '"memory_total_mib"'),
    "card.memory_used": (_AGENT + "machine/nvml.py", '"memory_used_mib"'),
    "card.opened": (_SURROUNDINGS, '"cards_opened": opened[0]'),
    "card.total": (_SURROUNDINGS, '"cards_before": self._cards_before'),
    "card.xid": (_SURROUNDINGS, '"xids": telling_xids('),
    "checkpoint.missing": (_NOTES, '"checkpoint.missing"'),
    "checkpoint.shrinks": (_NOTES, '"checkpoint.shrinks"'),
    "checkpoint.torn": (_NOTES, '"checkpoint.torn"'),
    "code.changed": (_SURROUNDINGS, '"code_edited": self._looks.result(EDITED'),
    "disk.free_bytes": (_EVIDENCE, '"disks": {role: disk._asdict()'),
    "disk.free_inodes": (_EVIDENCE, '"disks": {role: disk._asdict()'),
    "disk.full": (_LEAVING, "disk_full=disk_full"),
    "env.conda": (_AGENT + "facts/start.py", '"conda_prefix"'),
    "env.venv": (_AGENT + "facts/start.py", '"virtual_env"'),
    "error.pattern": (_LEAVING, "began=pattern"),
    "exit.at": (_READING, "attempt.agent_at + beat.up_s"),
    "facts.changed": ("supervisor/services/reading/evidence.py", "def differences_of("),
    "hang.place": (_HANGS, "stall.hang = Hang(place"),
    "hang.still_s": (_HANGS, "stall.hang = Hang(place"),
    "image.moved": ("supervisor/services/reading/evidence.py", "def differences_of("),
    "left": (_EVIDENCE, '"left": left'),
    "left.message": (_READING, "beat.message"),
    "memory.limit": (_VITALS, "cgroup"),
    "memory.used": (_VITALS, "cgroup"),
    "metric.flat": (_AGENT + "watch/metrics.py", "self._odd[name, FLAT] = same"),
    "metric.lasting": (_AGENT + "watch/metrics.py", "kind = NAN_STAYS if"),
    "metric.nonfinite": (_AGENT + "watch/metrics.py", '"nonfinite": tuple(nonfinite)'),
    "metric.reported": (_NOTES, '"metric.reported"'),
    "metric.spike": (_AGENT + "watch/metrics.py", '"metrics": tuple(masked)'),
    "notice.left_s": (_AGENT + "life/parts.py", "notice_s=round("),
    "oom.after": (_SURROUNDINGS, '"oom": self.oom.facts()'),
    "oom.before": (_SURROUNDINGS, '"oom": self.oom.facts()'),
    "oom.kills": (_LEAVING, "oom_kills=parts.surroundings.oom.kills()"),
    "oom.rose": (_SURROUNDINGS, "oom_rose_up_s=rose_up_s"),
    "oom.shared": (_SURROUNDINGS, "oom_shared=self.oom.shared"),
    "own.end": (_READING, 'into.add("own.end", cause.value'),
    "record.cause": (_READING, "machine.record.cause.value"),
    "record.detail": (_READING, "machine.record.detail"),
    "repair.bytes": (_LEAVING, "repaired=(result.files, result.freed_bytes)"),
    "repair.files": (_LEAVING, "repaired=(result.files, result.freed_bytes)"),
    "repeat.same": ("supervisor/services/reading/diagnosis.py", "SAME_FAILURE"),
    "save.best_s": (_AGENT + "watch/saving.py", '"save.best_s"'),
    "save.best_steps": (_AGENT + "watch/saving.py", '"save.best_steps"'),
    "save.every_s": (_AGENT + "watch/saving.py", '"save.every_s"'),
    "save.s": (_AGENT + "watch/saving.py", '"save.s"'),
    "step.at": (_READING, "before.progress_at - attempt.agent_at"),
    "step.first_after_restore": (_NOTES, '"step.first_after_restore"'),
    "step.from": (_NOTES, '"step.from"'),
    "step.last": (_READING, "beat.step if beat.step is not None"),
    "up.s": (_AGENT + "watch/beat_state.py", "up_s=self.up_s()"),
    "mount.data": (_SLOW, '"mount.data"'),
    "window.save_share": (_NOTES, '"window.save_share"'),
    **{
        f"window.{name}": (_SLOW, f'"window.{name}"')
        for name in (
            "card_others_bytes",
            "clock_reasons",
            "cpu_quota",
            "download_still_s",
            "gpu_util",
            "io_pressure",
            "loader_cpu",
            "new_inodes_per_s",
            "power_share",
            "read_bytes",
            "reads_per_s",
            "sm_clock_share",
            "steps_share",
            "threads",
            "throttled_share",
        )
    },
}
_A_PERSON = "only files of a person have it: "
_RECORDED = "the provider reads its platform's words itself: record.cause and record.detail have them"
_NOTEBOOK = "comes with the providers of notebooks"

# Item -> why no code writes it at run time. `spot diagnose` takes each from a file of facts.
WAITING: Mapping[str, str] = {
    "card.promised": _A_PERSON + "the agent leaves with no_gpu before the command, and LEFT.no_gpu decides",
    "contact.closed": _A_PERSON + "commands of ours do not depend on a connection",
    "container.exit": _RECORDED,
    "container.oom_killed": _RECORDED,
    "egress.share": "nobody counts the bytes of pulls; the advice before the start names the price of each restore",
    "env.has_module": _A_PERSON + "to search other environments would import from them",
    "env.wanted": _A_PERSON + "the agent does not start a command whose environment is missing",
    "main.rss": _A_PERSON + "at its end a process has no memory any more",
    "own.kill": _A_PERSON + "the exit says that the agent sent the signal",
    "own.stop": _A_PERSON + "the agent leaves as stopped",
    "platform.message": _RECORDED,
    "platform.state": _RECORDED,
    "results.unverified": _A_PERSON + "own.end has results_unverified",
    "serial.phase": _A_PERSON + "phases of the boot are beats, and own.end has boot_timeout with the last one",
    "session.age_s": _NOTEBOOK,
    "session.cap_s": _NOTEBOOK,
    "session.listed": _NOTEBOOK,
    "smoke.passed": _A_PERSON + "without it the advice of a smoke is shown",
    "upload.missing": _NOTEBOOK,
    "worker.count": _A_PERSON + "at its end a process has no memory any more",
    "worker.rss": _A_PERSON + "at its end a process has no memory any more",
}  # fmt: skip
