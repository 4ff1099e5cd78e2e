"""Names: a machine's name distinguishes the run, the attempt and the try, however long the run's id is (scenario H)."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.contract import identifiers
from supervisor.contract.identifiers import is_run_id, label_value, launch_id, machine_name, parse_launch_id, request_id
from tests.properties import examples

LONGEST = "a" * 63
run_ids = st.from_regex(r"[a-z][a-z0-9-]{0,61}[a-z0-9]", fullmatch=True)
numbers = st.integers(1, 10**9 - 1)
lives = st.tuples(run_ids, st.integers(1, 10**6), st.integers(1, 10**4))


def cut_off(prefix: str, supervisor_id: str, run_id: str, attempt: int, try_number: int) -> str:
    """The usual practice: the suffix is truncated, and three attempts share one machine."""
    return f"{prefix}-{run_id}-a{attempt}-t{try_number}"[:63]


def tells_apart(
    name_of: Callable[[str, str, str, int, int], str], one: tuple[str, int, int], two: tuple[str, int, int]
) -> bool:
    return (name_of("spot", "s", *one) == name_of("spot", "s", *two)) == (one == two)


@pytest.mark.parametrize("length", [2, 8, 20, 50, 55, 62, 63])
def test_no_two_attempts_of_a_run_share_a_machine_name(length: int) -> None:
    run = "r" * length
    assert is_run_id(run)
    names = {machine_name("spot", "s", run, attempt, n) for attempt in range(1, 120) for n in range(1, 12)}
    assert len(names) == 119 * 11


def test_long_ids_that_differ_in_the_last_letter_alone_do_not_collide() -> None:
    runs = ["x" * 62 + end for end in "abcdefghijklmnopqrstuvwxyz0123456789"] + [LONGEST, LONGEST[:-1]]
    assert len({machine_name("spot", "s", run, 1, 1) for run in runs}) == len(runs)
    assert machine_name("spot", "s", LONGEST, 1, 1) != machine_name("spot", "t", LONGEST, 1, 1)


def test_truncated_names_are_caught() -> None:
    one, two = (LONGEST, 1, 1), (LONGEST, 2, 1)
    assert tells_apart(machine_name, one, two)
    assert not tells_apart(cut_off, one, two)


@settings(max_examples=examples(100, 500))
@given(one=lives, two=lives)
def test_any_two_attempts_have_two_names(one: tuple[str, int, int], two: tuple[str, int, int]) -> None:
    assert tells_apart(machine_name, one, two)


@given(run=run_ids, attempt=numbers, number=numbers)
def test_a_machine_name_is_a_name_to_every_cloud(run: str, attempt: int, number: int) -> None:
    name = machine_name("spot", "supervisor-1", run, attempt, number)
    assert re.fullmatch(r"spot-[0-9a-f]{8}-a[0-9]+-t[0-9]+", name)
    assert name.endswith(f"-a{attempt}-t{number}")
    assert len(name) <= 63
    assert name == machine_name("spot", "supervisor-1", run, attempt, number)


@pytest.mark.parametrize("text", ["ab", "a1", "run-7", "a--b", LONGEST, "a" + "-" * 61 + "0"])
def test_these_are_run_ids(text: str) -> None:
    assert is_run_id(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "A1",
        "1a",
        "-a",
        "a-",
        "a" * 64,
        "a_b",
        "a.b",
        "a/b",
        "a b",
        "ab\n",
        "\nab",
        "ä1",
        "a\x00b",
        "..",
        "a\u0661",
    ],
)
def test_these_are_no_run_ids(text: str) -> None:
    assert not is_run_id(text)


@given(generation=numbers, attempt=numbers, number=numbers)
def test_a_launch_id_is_parsed_as_it_was_written(generation: int, attempt: int, number: int) -> None:
    assert parse_launch_id(launch_id(generation, attempt, number)) == (generation, attempt, number)


def test_launch_ids_compare_as_numbers() -> None:
    texts = ["1.2.1", "1.10.1", "1.10.2", "2.1.1", "10.1.1"]
    assert sorted(texts, key=parse_launch_id) == texts


@pytest.mark.parametrize(
    "text", ["", "1", "1.2", "1.2.3.4", "0.1.1", "1.0.1", "1.1.0", "01.1.1", "1.1.1\n", " 1.1.1", "-1.1.1", "1.1.x",
             "1.1." + "9" * 10, "\u0661.1.1", "1.1.1" * 1000],
)  # fmt: skip
def test_an_invalid_launch_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a launch id") as caught:
        parse_launch_id(text)
    assert len(str(caught.value)) < 80


@given(one=st.tuples(run_ids, numbers, numbers, numbers), two=st.tuples(run_ids, numbers, numbers, numbers))
def test_a_request_id_belongs_to_one_create_call(
    one: tuple[str, int, int, int], two: tuple[str, int, int, int]
) -> None:
    assert (request_id("s", *one) == request_id("s", *two)) == (one == two)
    assert request_id("s", *one) != request_id("t", *one)


@given(text=st.text(max_size=100))
def test_a_label_is_a_label_to_every_cloud(text: str) -> None:
    assert re.fullmatch(r"[a-z0-9_-]{0,63}", label_value(text))


def test_a_run_id_is_its_own_label() -> None:
    assert label_value(LONGEST) == LONGEST


def test_a_nonce_is_kept_as_a_hash() -> None:
    assert identifiers.nonce_hash("secret") != identifiers.nonce_hash("secret2")
    assert "secret" not in identifiers.nonce_hash("secret")
