"""The core of the diagnosis: a verdict for every evidence, in one order of rules, the same in any order of items."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from supervisor.contract.heartbeat import LEFT, Exit
from supervisor.contract.logs.patterns import PATTERNS
from supervisor.contract.signs import Hit
from supervisor.domain.causes import Cause
from supervisor.domain.diagnosis.evidence import NAMES, Clock, Evidence, Item, Source, Value, in_order
from supervisor.domain.diagnosis.verdict import Certainty, Retry, Where
from supervisor.lifecycle.diagnosis.diagnose import ALIVE, UNKNOWN, diagnose
from supervisor.lifecycle.diagnosis.reading import of_document, of_files
from supervisor.lifecycle.diagnosis.remedies import REMEDIES, fitting_workers
from supervisor.lifecycle.diagnosis.rule import Match, Rule, Sign, Tier, filled
from supervisor.lifecycle.diagnosis.rules.table import LIVING, RULES
from tests.properties import examples

EXITS = (
    None, Exit(1, None, False, 40.0, "KeyError: 'x'"), Exit(None, 9, False, 0.0, "", oom_kills=1),
    Exit(137, None, False, 3.0, "Killed"), Exit(127, None, False, 9000.0), Exit(0, None, False), Exit(None, 15, True),
    Exit(None, None, False), Exit(1, None, False, 5.0, "torch.OutOfMemoryError: CUDA out of memory", after_work=True),
)  # fmt: skip
VALUES: tuple[Value, ...] = (
    0, 1, 7, True, False, -1.5, 0.97, 5e17, "", "preempted", "host_oom", "no_gpu", "stopped", "input", "a b {c}", "[x]",
    (0.0, 79.0), (1.0, 31.0), (None, 2.0), (1.0,), (1e300, 5.0), float("nan"), float("inf"),
)  # fmt: skip


def any_items(random_: random.Random) -> list[Item]:
    read = {name for rule in RULES for sign in signs_of(rule) for name in sign.reads}
    names = sorted(random_.choice((read, NAMES)))
    return [
        Item(
            random_.choice(names),
            random_.choice((*VALUES, *(cause.value for cause in Cause), *LEFT)),
            random_.choice(list(Source)),
            random_.choice((None, 0.0, 12.5, 1e9)),
            random_.choice(list(Clock)),
            random_.choice(("", "up", "scratch", "last beat")),
        )
        for _ in range(random_.randrange(12))
    ]


def any_hits(random_: random.Random) -> tuple[Hit, ...]:
    patterns = [random_.choice(PATTERNS) for _ in range(random_.randrange(4))]
    return tuple(
        Hit(pattern.id, pattern.role, 1, "words {x} [y]", 1.0, 2.0, random_.choice((None, 0, 5)), random_.randrange(9))
        for pattern in patterns
    )


def test_every_evidence_has_a_verdict_in_any_order_of_its_items() -> None:
    random_ = random.Random(19)
    rules = set()
    for _ in range(examples(600, 10_000)):
        items, hits, end = any_items(random_), any_hits(random_), random_.choice(EXITS)
        error = random_.choice(("", "KeyError: 'x'", "ChildFailedError"))
        verdict = diagnose(Evidence(in_order(items), hits, end, error))
        random_.shuffle(items)
        shuffled = tuple(random_.sample(hits, len(hits)))
        assert diagnose(Evidence(in_order(items), shuffled, end, error)) == verdict
        rules.add(verdict.rule)
    assert len(rules) > 20


def test_a_verdict_takes_less_than_five_milliseconds() -> None:
    evidence = of_files(b"step 1\nKilled\n", {"exit_code": 137, "oom_kill_before": 4, "oom_kill_after": 5})
    began = time.process_time()
    for _ in range(20):
        diagnose(evidence)
    assert (time.process_time() - began) / 20 < 0.005


# --- the table --------------------------------------------------------------------------------------------------------


def signs_of(rule: Rule) -> tuple[Sign, ...]:
    return (*rule.requires, *rule.excludes, *rule.likely_without)


def test_the_table_is_consistent() -> None:
    ids = [rule.id for rule in (*RULES, *LIVING)]
    assert len(ids) == len(set(ids))
    for rule in (*RULES, *LIVING):
        assert set(rule.remedies) <= set(REMEDIES), rule.id
        assert set(rule.likely_without) <= set(rule.requires), rule.id
        assert rule.requires, rule.id
        assert {name for sign in signs_of(rule) for name in sign.reads} <= NAMES, rule.id
        if rule.certainty == Certainty.HINT:
            assert (rule.cause, rule.retry) == (None, Retry.NONE), rule.id
        if rule.retry in (Retry.FREE_ELSEWHERE, Retry.FREE_SAME) and rule.cause is not None:
            assert rule.can_go_on, rule.id
    assert all(rule.certainty != Certainty.HINT for rule in RULES)
    assert all(rule.certainty == Certainty.HINT for rule in LIVING)


def test_every_remedy_word_is_used_or_for_living_runs() -> None:
    for word, (text, ours, _) in REMEDIES.items():
        assert re.fullmatch(r"[a-z_]+", word)
        assert text
        assert isinstance(ours, bool)


def test_advice_to_shrink_the_batch_belongs_to_gpu_memory_alone() -> None:
    shrinks = {rule.cause for rule in RULES if "smaller_batch" in rule.remedies}
    assert shrinks == {Cause.GPU_OOM}


# --- the order of rules -----------------------------------------------------------------------------------------------

YES = Sign("yes", lambda _: Match())
NO = Sign("no", lambda _: None, no="it is not so")
UNREAD = Sign("the counter", lambda _: None, ("oom.kills",))
ENDED = Evidence(exit=Exit(1, None, False))


def rule_of(name: str, tier: Tier, *requires: Sign, certainty: Certainty = Certainty.CERTAIN) -> Rule:
    return Rule(name, (), tier, requires, (), certainty, Cause.UNKNOWN, Where.UNKNOWN, Retry.ONCE_IDENTICAL, name)


def rule_in(rules: Sequence[Rule]) -> str:
    return diagnose(ENDED, rules).rule


def test_the_first_certain_rule_wins_else_the_best_likely_one() -> None:
    later, first = rule_of("later", Tier.LOG, YES), rule_of("first", Tier.AGENT, YES)
    likely = rule_of("likely", Tier.OURS, YES, certainty=Certainty.LIKELY)
    assert rule_in([later, first]) == "first"
    assert rule_in([likely, later]) == "later"
    assert rule_in([likely, replace(likely, id="second")]) == "likely"
    assert rule_in([rule_of("missing", Tier.OURS, YES, NO), later]) == "later"
    assert rule_in([replace(first, excludes=(YES,)), later]) == "later"


def test_what_was_not_read_lowers_a_rule_and_what_was_read_stops_it() -> None:
    rule = replace(rule_of("counter", Tier.AGENT, YES, UNREAD), likely_without=(UNREAD,))
    assert diagnose(ENDED, [rule]).certainty == Certainty.LIKELY
    read = Evidence(in_order([Item("oom.kills", 0, Source.AGENT)]), exit=ENDED.exit)
    assert diagnose(read, [rule]).rule == UNKNOWN


def test_an_unknown_end_names_the_nearest_rules() -> None:
    rules = [
        rule_of("far", Tier.LOG, NO, NO),
        rule_of("near", Tier.LOG, YES, NO),
        rule_of("half", Tier.LOG, YES, NO, NO),
    ]
    verdict = diagnose(ENDED, rules)
    assert (verdict.rule, verdict.cause, verdict.certainty) == (UNKNOWN, None, Certainty.HINT)
    assert verdict.hints == ("near", "half")


def test_a_rejected_rule_says_why() -> None:
    other = replace(rule_of("other", Tier.AGENT, YES), excludes=(Sign("the agent sent it", lambda _: Match()),))
    assert diagnose(ENDED, [other, rule_of("this", Tier.LOG, YES)]).rejected == (("other", "the agent sent it"),)


def test_what_has_not_ended_is_alive() -> None:
    for evidence in (Evidence(), of_files(b"epoch 1\nstep 30\n"), of_files(b"", {"load": 400, "memory": 5e9})):
        verdict = diagnose(evidence)
        assert (verdict.rule, verdict.cause, verdict.retry) == (ALIVE, None, Retry.NONE)


def test_sentences_leave_unknown_figures_out_and_never_read_values_as_templates() -> None:
    template = "memory{x}[ of {limit}][; {a} and {b}]"
    assert filled(template, {"x": " {limit} [y]", "a": "1"}) == "memory {limit} [y]"
    assert filled("{message:no words}", {}) == "no words"
    assert filled("{message}", {}) == "unknown"


# --- remedies ---------------------------------------------------------------------------------------------------------


def test_the_number_of_workers_that_fit_is_computed() -> None:
    gib = 2**30
    facts = {"exit_code": 137, "oom_kill": 1, "worker_rss": 3.4 * gib, "workers": 17, "memory_limit": 64 * gib}
    evidence = of_files(b"Killed\n", {**facts, "memory": 62.9 * gib, "main_rss": 5 * gib})
    assert fitting_workers(evidence) == 16
    remedies = {remedy.word: remedy.text for remedy in diagnose(evidence).remedies}
    assert remedies["fewer_workers"] == "num_workers ≤ 16 fits this machine; the batch can stay"
    assert remedies["larger_shape"] == "a shape with at least 96 GiB of memory"
    assert fitting_workers(of_files(b"", facts | {"worker_rss": 0})) is None


# --- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "rule"),
    [
        ({"exit_code": 137, "oom_kill_before": 4, "oom_kill_after": 5}, "U9.counter"),
        ({"exit code": 137, "oom-kill-before": 4, "oom-kill-after": 4}, "U3.killed"),
        ({"returncode": -9, "memory": {"used": 63, "limit": 64}}, "U9.memory"),
        ({"exit": 137}, "U3.unread"),
        ({"signal": "SIGHUP"}, "GEN2.hangup"),
        ({"signal": "kill", "sent_by_us": True}, "OWN.signal"),
        ({"platform_state": "OUT_OF_MEMORY", "exit_code": 1}, "SLURM4.state"),
        ({"platform_state": "PREEMPTED"}, "RECORD.preempted.2"),
        ({"platform_message": "image pull timeout"}, ALIVE),
        ({"boot_id_before": "a", "boot_id_after": "b"}, "RECORD.host_rebooted.2"),
        ({"exit_code": 1, "xid": 79}, "U22.card"),
        ({"exit_code": 1, "xid": [[0, 31]]}, "CODE.exit"),
        ({"gpus_promised": 2, "gpus_opened": 0, "left": "no_gpu"}, "LEFT.no_gpu"),
        ({"left": "no_gpu", "left_message": "docker: unknown or invalid runtime name: nvidia"}, "0-E.arguments"),
    ],
)
def test_loose_facts_are_understood(facts: dict[str, object], rule: str) -> None:
    assert diagnose(of_files(b"", facts)).rule == rule


def test_anything_may_stand_in_files_and_documents() -> None:
    odd: list[object] = [None, -1, 1e300, float("nan"), "x" * 5000, [], {}, [[]], {"a": {"b": 1}}, True, ["x"], [None]]
    names = ("exit_code", "signal", "xid", "held", "memory", "exit", "agent", "beat", "readings", "records", "log_tail")
    for value in odd:
        for name in names:
            evidence = of_files(b"\xff\x00", {name: value})
            assert set(evidence.items) <= NAMES
            diagnose(evidence)
            assert set(of_document({name: value}).items) <= NAMES


def test_a_log_alone_is_judged_by_the_error_that_it_ends_with() -> None:
    raised = "Traceback (most recent call last):\n  File 't.py', line 3, in <module>\n    import foo\n"
    log = f"step 1\n{raised}ModuleNotFoundError: No module named 'foo'\n".encode()
    assert diagnose(of_files(log)).rule == "U5.module"
    assert diagnose(of_files(b"step 1\nstep 2\n")).rule == ALIVE
