"""Each rule of the table with an end that it explains, and with what looks like it and is not: the look-alike must take
the rule as soon as its `excludes` are dropped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from supervisor.contract import heartbeat
from supervisor.domain.diagnosis.evidence import Evidence
from supervisor.lifecycle.diagnosis.diagnose import diagnose, findings
from supervisor.lifecycle.diagnosis.reading import of_document, of_files
from supervisor.lifecycle.diagnosis.rules.table import LIVING, RULES

Facts = Mapping[str, object]
GIB = 2**30
KILLED = {"signal": 9, "ran_s": 900}
FAILED = {"exit_code": 1, "ran_s": 900, "step": 300}
CUDA = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB."
SPACE = "OSError: [Errno 28] No space left on device: 'best.pt'"
TORN = "RuntimeError: [enforce fail at inline_container.cc:471] . unexpected pos 64 vs 0"

SETUP = {"exit_code": 1, "ran_s": 20, "in_setup": True}
UNREACHED = "WARNING: Retrying after connection broken by '[Errno -3] Temporary failure in name resolution'\n"
KERNEL = "slurmstepd: error: Detected 1 oom_kill event in StepId=4.0. Some of the step tasks have been OOM Killed.\n"


def raised(error: str) -> str:
    return f"step 1\nTraceback (most recent call last):\n  File 't.py', line 3, in <module>\n    main()\n{error}\n"


def evidence(facts: Facts, log: str = "") -> Evidence:
    return of_files(log.encode(), facts)


# rule -> (facts, log)
EXPLAINED: dict[str, tuple[Facts, str]] = {
    "OWN.stopped": ({"left": "stopped"}, ""),
    "OWN.done": ({"exit_code": 0}, ""),
    "OWN.signal": ({**KILLED, "sent_by_us": True}, ""),
    "LEFT.noticed": ({"left": "noticed"}, ""),
    "LEFT.superseded": ({"left": "superseded"}, ""),
    "U37.after_last_step": ({**FAILED, "after_work": True}, ""),
    "U33.unverified": ({"results.unverified": "best.pt"}, ""),
    "RECORD.preempted": ({**FAILED, "record": "preempted"}, ""),
    "RECORD.host_rebooted.2": ({"boot_id_before": "a", "boot_id_after": "b"}, ""),
    "NB5.cap": ({"session_age_s": 31_000, "session_cap_s": 32_400, "session_listed": False}, ""),
    "NB5.session": ({"session_age_s": 9_000, "session_cap_s": 32_400, "session_listed": False}, ""),
    "SLURM4.state": ({**FAILED, "platform_state": "OUT_OF_MEMORY"}, ""),
    "K8S5.evicted": ({"platform_message": "The node was low on resource: ephemeral-storage."}, ""),
    "K8S1.taint": ({"platform_message": "0/3 nodes are available: 3 node(s) had untolerated taint gpu."}, ""),
    "K8S1.full": ({"platform_message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."}, ""),
    "K8S3.image": ({"platform_state": "ImagePullBackOff", "platform_message": "manifest unknown"}, ""),
    "K8S2.refused": ({"platform_message": "Job.batch is invalid: spec.template: Required value"}, ""),
    "0-E.arguments": ({"left": "no_start", "left_message": "docker: unknown or invalid runtime name: x"}, ""),
    "LEFT.no_gpu": ({"left": "no_gpu", "left_message": "0 of 1 GPUs can be opened"}, ""),
    "LEFT.no_code": ({"left": "no_code"}, ""),
    "SETUP.waited": ({**SETUP, "exit_code": 124, "last_line": heartbeat.SETUP_WAITED % 60}, ""),
    "SETUP.late": ({**SETUP, "exit_code": 124, "last_line": heartbeat.SETUP_LATE % 60}, ""),
    "SETUP.network": (SETUP, UNREACHED + "ERROR: No matching distribution found for timm\n"),
    "SETUP.known": ({**SETUP, "exit_code": 127}, "sh: 1: ptp: not found\n"),
    "SETUP.exit": (SETUP, "ERROR: No matching distribution found for timmm\n"),
    "U26.line_ends": ({"exit_code": 127, "ran_s": 0.1}, "/bin/bash^M: bad interpreter: No such file or directory\n"),
    "CODE.not_found": ({"exit_code": 127, "ran_s": 0.1}, "sh: 1: trian: not found\n"),
    "U22.card": ({**FAILED, "xid": 79}, ""),
    "U22.likely": ({**FAILED, "xid": 94}, ""),
    "U22.words": (FAILED, raised("RuntimeError: CUDA error: uncorrectable ECC error encountered")),
    "U31.none": ({"gpus_promised": 2, "gpus_opened": 1, "exit_code": 1, "ran_s": 3}, ""),
    "U31.words": (
        {"gpus_opened": 0, "exit_code": 1, "ran_s": 3},
        raised("RuntimeError: No CUDA GPUs are available"),
    ),
    "U11.held": ({**FAILED, "held": [20 * GIB]}, raised(CUDA)),
    "U10.text": (FAILED, raised(CUDA)),
    "U9.counter": ({**KILLED, "oom_kills": 1}, ""),
    "U9.container": ({**KILLED, "oom_killed": True}, ""),
    "U9.worker": (
        {**FAILED, "oom_kills": 1},
        raised("RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed."),
    ),
    "U9.near": ({**FAILED, "oom_kills": 1}, "worker 77 ended with 9\n"),
    "U9.shared": ({**KILLED, "oom_kills": 1, "oom_shared": True, "memory": 63, "memory_limit": 64}, ""),
    "U9.memory": ({**KILLED, "memory": 63, "memory_limit": 64}, ""),
    "U9.kernel": (KILLED, KERNEL),
    "U3.cpu_time": ({"exit_code": 152, "ran_s": 60}, ""),
    "GEN2.hangup": ({"signal": "SIGHUP"}, ""),
    "U3.killed": ({**KILLED, "oom_kills": 0}, ""),
    "U3.unread": (KILLED, ""),
    "U3.killed_later": ({**KILLED, "oom_kills": 1, "oom_shared": True}, ""),
    "U3.signal": ({"signal": "SIGTERM"}, ""),
    "U6.space": ({**FAILED, "free_bytes": 0}, raised(SPACE)),
    "U6.text": (FAILED, raised(SPACE)),
    "U6.torn": (FAILED, raised(TORN)),
    "HANG.collective": ({"hang": "collective", "still_s": 300}, ""),
    "U5.module": (FAILED, raised("ModuleNotFoundError: No module named 'timm'")),
    "U5.environment": ({**FAILED, "env.has_module": "vision"}, raised("ModuleNotFoundError: No module named 'timm'")),
    "U27.config": (FAILED, raised("omegaconf.errors.ConfigAttributeError: Key 'lr' is not in struct")),
    "U28.layers": (FAILED, raised("RuntimeError: CUDA error: no kernel image is available for execution")),
    "U28.driver": (FAILED, raised("RuntimeError: CUDA driver version is insufficient for CUDA runtime version")),
    "GEN5.shapes": (FAILED, raised("RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x3 and 4x5)")),
    "GEN5.start": ({"exit_code": 1, "ran_s": 30}, raised("KeyError: 'lr'")),
    "SAME.twice": ({**FAILED, "repeat.same": True}, raised("KeyError: 'lr'")),
    "CODE.exit": (FAILED, raised("KeyError: 'lr'")),
}  # fmt: skip

# (rule that it looks like, the right rule, facts, log)
LOOK_ALIKES: tuple[tuple[str, str, Facts, str], ...] = (
    ("U37.after_last_step", "OWN.stopped", {**FAILED, "after_work": True, "left": "stopped"}, ""),
    ("RECORD.preempted", "LEFT.expired", {"left": "expired", "record": "preempted"}, ""),
    ("NB5.session", "NB5.cap", {"session_age_s": 31_000, "session_cap_s": 32_400, "session_listed": False}, ""),
    ("SLURM4.state", "CODE.exit", {**FAILED, "platform_state": "OUT_OF_MEMORY"}, raised("KeyError: 'lr'")),
    ("K8S3.image", "ALIVE", {"platform_state": "ImagePullBackOff", "platform_message": "i/o timed out"}, ""),
    ("LEFT.no_gpu", "0-E.arguments", {"left": "no_gpu", "left_message": "docker: unresolvable CDI devices x"}, ""),
    ("CODE.not_found", "CODE.exit", {"exit_code": 127, "ran_s": 9000, "step": 9}, "sh: 1: evaluate.sh: not found\n"),
    ("U22.card", "OWN.signal", {**KILLED, "sent_by_us": True, "xid": 79}, ""),
    ("U22.card", "CODE.exit", {**FAILED, "card.xid": [[0, 95]], "step.at": 900}, raised("KeyError: 'lr'")),
    ("U10.text", "U11.held", {**FAILED, "held": [20 * GIB]}, raised(CUDA)),
    ("U9.counter", "OWN.signal", {**KILLED, "oom_kills": 1, "sent_by_us": True}, ""),
    ("U9.counter", "U3.killed_later", {**KILLED, "oom_kills": 1, "oom.rose": 10, "up.s": 900}, ""),
    ("U9.counter", "U3.killed_later", {**KILLED, "oom_kills": 1, "oom_shared": True}, ""),
    ("U9.container", "OWN.signal", {**KILLED, "oom_killed": True, "sent_by_us": True}, ""),
    ("U9.worker", "CODE.exit", {**FAILED, "oom_kills": 1, "oom.rose": 10, "up.s": 900}, raised("BrokenProcessPool: x")),
    ("U9.near", "CODE.exit", {**FAILED, "oom_kills": 1}, raised("KeyError: 'lr'")),
    ("U9.memory", "U3.killed", {**KILLED, "oom_kills": 0, "memory": 63, "memory_limit": 64}, ""),
    ("U9.kernel", "U3.killed", {**KILLED, "oom_kills": 0}, KERNEL),
    ("U3.cpu_time", "OWN.signal", {"exit_code": 152, "sent_by_us": True}, ""),
    ("GEN2.hangup", "OWN.signal", {"signal": "SIGHUP", "sent_by_us": True}, ""),
    ("U3.killed", "OWN.signal", {**KILLED, "oom_kills": 0, "sent_by_us": True}, ""),
    ("U3.unread", "U9.kernel", KILLED, KERNEL),
    ("U3.signal", "OWN.signal", {"signal": "SIGTERM", "sent_by_us": True}, ""),
    ("SETUP.exit", "U6.text", SETUP, raised(SPACE)),
    ("SETUP.exit", "U9.near", {**SETUP, "oom_kills": 1}, "collect2: fatal error: ld terminated\n"),
    ("U6.torn", "CODE.exit", {**FAILED, "free_bytes": 60 * GIB, "total_bytes": 100 * GIB}, raised(TORN)),
    ("HANG.lock", "CODE.exit", {**FAILED, "hang": "lock"}, raised("KeyError: 'lr'")),
    ("GEN5.start", "CODE.exit", {"exit_code": 1, "ran_s": 30}, raised("ConnectionError: Network is unreachable")),
)  # fmt: skip


@pytest.mark.parametrize("rule", EXPLAINED)
def test_a_rule_explains_its_end(rule: str) -> None:
    verdict = diagnose(evidence(*EXPLAINED[rule]))
    assert verdict.rule == rule, verdict
    assert not {"{", "["} & set(verdict.sentence.partition("`")[0]), "a value is missing"
    without = [each for each in RULES if each.id != rule]
    assert diagnose(evidence(*EXPLAINED[rule]), without).rule != rule


@pytest.mark.parametrize(("looks_like", "rule", "facts", "log"), LOOK_ALIKES)
def test_what_looks_like_it_is_excluded(looks_like: str, rule: str, facts: Facts, log: str) -> None:
    found = evidence(facts, log)
    if "card.xid" in facts:  # with the time of the error
        items = {**found.items, "card.xid": tuple(replace(item, at=60.0) for item in found.items["card.xid"])}
        found = replace(found, items=items)
    assert diagnose(found).rule == rule
    row = next(each for each in RULES if each.id == looks_like)
    assert diagnose(found, [replace(row, excludes=())]).rule == looks_like


def test_every_group_of_the_table_is_told_here_or_in_the_corpus() -> None:
    gotchas = {gotcha for rule in RULES for gotcha in rule.gotchas}
    told = {gotcha for rule in RULES if rule.id in EXPLAINED for gotcha in rule.gotchas}
    assert gotchas - told <= {"0-B", "0-C", "0-D", "0-F", "NB3", "SLURM1", "SLURM2", "SLURM3", "U35"}


# --- living runs ------------------------------------------------------------------------------------------------------


def hints(**items: object) -> set[str]:
    return {verdict.rule for verdict in findings(evidence({name.replace("__", "."): it for name, it in items.items()}))}


def test_slow_runs_have_hints_by_their_figures() -> None:
    starved = {"mount__data": "nfs4", "window__io_pressure": 52.0, "window__gpu_util": 27.0}
    assert hints(**starved) == {"U8.mount"}
    assert hints(**{**starved, "window__gpu_util": 90.0}) == set()
    slowed = {"window__clock_reasons": 64, "window__steps_share": 0.6}
    assert hints(**slowed) == {"U23.throttled"}
    assert hints(**{**slowed, "window__clock_reasons": 4}) == set(), "a limit of power that a person set"
    assert hints(window__clock_reasons=4, window__steps_share=0.4) == {"METRIC.halved"}
    assert hints(window__card_others_bytes=4 * GIB, window__steps_share=0.5) == {"GEN7.shared"}
    assert hints(step__from=4000, step__first_after_restore=10) == {"RESUME.ignored"}
    assert hints() == set()
    assert len(LIVING) >= 18


# --- stored documents -------------------------------------------------------------------------------------------------


def test_a_document_of_either_version_is_read() -> None:
    agent = {
        "version": 2, "exit": {"signal": 9, "ran_s": 900.0, "oom_kills": 1}, "oom_kills": 1, "xids": [[0, 31, 5.0]],
        "oom": {"before": 4, "after": 5, "rose_up_s": 899.0, "shared": False}, "cards_before": [[0, 5e9, 2.4e10]],
        "start": {"conda_prefix": "/opt/vision", "cards_opened": 1},
        "signs": {"up_s": 901.0, "oom": [899.0, False], "began": "", "error": ""},
    }  # fmt: skip
    whole = {"version": 1, "cause": "host_oom", "detail": "…", "readings": {}, "agent": agent, "beat": None}
    verdict = diagnose(of_document(whole))
    assert verdict.rule == "U9.counter"
    assert "oom_kill 4 → 5, 899 s after the agent's start" in verdict.sentence
    late = {**agent, "oom": {**agent["oom"], "rose_up_s": 100.0}, "signs": {"up_s": 901.0}}  # type: ignore[dict-item]
    none = {
        **agent,
        "exit": {"code": 1, "ran_s": 900.0},
        "oom_kills": 0,
        "oom": {},
        "signs": None,
        "start": {"cards_opened": 0},
    }
    assert diagnose(of_document({**whole, "agent": none})).rule == "CODE.exit", "its shape has no GPU"
    assert diagnose(of_document({**whole, "agent": late})).rule == "U3.killed_later"
    old = {name: agent[name] for name in ("exit", "oom_kills")}
    assert diagnose(of_document({**whole, "agent": {**old, "version": 1}})).rule == "U9.counter"
