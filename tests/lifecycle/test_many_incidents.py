"""Incidents of thousands of ends in near linear work, and of several owners, who close them for the own runs."""

from __future__ import annotations

import random
from dataclasses import replace

from supervisor.domain.causes import Cause
from supervisor.domain.incidents import MEMBERS_MAX, Closing, Common, Signature
from supervisor.lifecycle import incidents
from supervisor.lifecycle.incidents import Ended, grouped
from tests.lifecycle.sample_runs import NOW
from tests.lifecycle.test_incidents import CODE, KEY_ERROR, OTHER_CODE, end, found, nothing_works


def random_ends(chance: random.Random, most: int) -> list[Ended]:
    return [
        end(
            f"run-{chance.randrange(12)}", chance.choice((Cause.USER_ERROR, Cause.BOOT_TIMEOUT, Cause.GPU_FAULT)),
            chance.choice((KEY_ERROR, "OSError: full", "TypeError: x")), ago=chance.uniform(0.0, 9000.0),
            owner=chance.choice(("alice", "bob")), code=chance.choice((CODE, OTHER_CODE, None)),
            machine=chance.choice(("", "box", "case")), zone=chance.choice(("a", "b")),
            image=chance.choice(("", "i@1")),
        )
        for _ in range(chance.randrange(most))
    ]  # fmt: skip


def slowly_grouped(ends: list[Ended]) -> list[list[Ended]]:
    """The rule in its shortest form: the largest group of what is left, again and again."""
    left, groups = sorted(ends, key=lambda end: (end.member.at, end.member.run_id)), []
    while True:
        by_signature: dict[Signature, list[Ended]] = {}
        for each in left:
            for signature in each.signatures:
                by_signature.setdefault(signature, []).append(each)
        enough = [
            group for signature, group in by_signature.items()
            if len({each.member.run_id for each in group if each.member.at > NOW - 3600}) >= 3
            or (signature.kind == Common.MACHINE and sum(each.member.fault for each in group) >= 2)
        ]  # fmt: skip
        if not enough:
            return groups
        group = max(enough, key=lambda group: len({each.member.run_id for each in group}))
        common = incidents._common(group)
        groups.append(group)
        left = [each for each in left if not any(signature in common for signature in each.signatures)]


def test_the_groups_are_those_of_the_slow_rule() -> None:
    for seed in range(300):
        ends = random_ends(random.Random(seed), 60)
        counting = [each for each in ends if incidents.in_window(each, NOW)]
        expected = [
            (incidents._common(group), {each.member.run_id for each in group}) for group in slowly_grouped(counting)
        ]
        assert [(incident.common, set(incident.runs)) for incident in found(*ends)] == expected, seed


class Looked:
    """An end that counts how often it is looked at."""

    count = 0

    def __init__(self, real: Ended) -> None:
        self.member, self._signatures = real.member, real.signatures

    @property
    def signatures(self) -> tuple[Signature, ...]:
        Looked.count += 1
        return self._signatures


def looks(groups: int, stored: int = 0) -> int:
    """At the ends of so many groups of three; the first `stored` of them are incidents already."""
    ends = [
        end(f"run-{group}-{n}", text=f"{word(group)}Error", code=f"code {group}", ago=1.0 + group)
        for group in range(groups) for n in range(3)
    ]  # fmt: skip
    known = [replace(each, id=n + 1) for n, each in enumerate(found(*ends[: 3 * stored]))] if stored else []
    Looked.count = 0
    new = grouped([Looked(each) for each in ends], known, nothing_works, NOW)  # type: ignore[misc]
    assert len(new) == groups - stored
    return Looked.count


def word(number: int) -> str:
    return "".join(chr(ord("a") + int(digit)) for digit in f"{number:06d}")


def test_four_times_the_groups_take_four_times_the_work() -> None:
    """Broken variant: each group, and each stored incident, was compared with every end that was left."""
    for known in (0, 1):
        few, many = looks(100, 100 * known // 2), looks(400, 400 * known // 2)
        assert many <= 4.4 * few
        assert many <= 30 * 400 * 3


# --- an owner closes it for the own runs ------------------------------------------------------------------------------


def test_an_owner_closes_it_for_the_own_runs_and_later_ends_join_it_again() -> None:
    mine = [end(name, ago=60.0) for name in ("one", "two", "three")]
    theirs = [end(f"of-bob-{n}", owner="bob", ago=50.0) for n in range(3)]
    [incident] = found(*mine, *theirs)
    incident = replace(incident, id=7)
    assert set(incident.blocked_owners()) == {"alice", "bob"}
    closed = incident.closed_for(Closing("alice", NOW - 30.0, "ada", "fixed"))
    assert (closed.closed_at, closed.blocks, closed.blocked_owners()) == (None, True, ("bob",))
    seen = closed.seen_by("alice")
    assert (seen.closed_at, seen.closed_by, set(seen.runs)) == (NOW - 30.0, "ada", {"one", "two", "three"})
    assert closed.seen_by("bob").closed_at is None
    assert found(*mine, *theirs, end("before", ago=40.0), stored=(closed,)) == [], "her ends until then count no more"
    [again] = found(*(end(f"again-{n}", ago=9.0 - n) for n in range(3)), stored=(closed,))
    assert (again.id, set(again.blocked_owners())) == (7, {"alice", "bob"})
    assert again.seen_by("alice").runs == ("again-0", "again-1", "again-2")
    assert closed.closed_for(Closing("bob", NOW, "bob")).closed_at == NOW, "it is open for nobody"


def test_a_full_incident_that_an_owner_closed_has_room_for_later_ends() -> None:
    [incident] = found(*(end(f"run-{n}", ago=600.0 - n) for n in range(MEMBERS_MAX - 1)), end("other", owner="bob"))
    closed = replace(incident, id=7).closed_for(Closing("alice", NOW - 30.0, "ada"))
    [grown] = found(end("later", ago=1.0), stored=(closed,))
    assert grown.runs == ("other", "later")
