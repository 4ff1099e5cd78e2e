"""Entity tags: the syntax of If-Match and If-None-Match, and the meaning of a run's tag."""

from __future__ import annotations

import pytest

from supervisor.api.wire import responses as etags
from supervisor.api.wire.responses import Tag, Tags
from supervisor.domain.status import Status
from tests.services.bed import Bed, Client

READ = {
    "*": Tags(anything=True),
    ' "a" ': Tags((Tag("a"),)),
    'W/"a"': Tags((Tag("a", weak=True),)),
    '"a","b" ,  W/"c"': Tags((Tag("a"), Tag("b"), Tag("c", weak=True))),
    '"a", , "b",': Tags((Tag("a"), Tag("b"))),
    '"a,b"': Tags((Tag("a,b"),)),
    '""': Tags((Tag(""),)),
}
UNREADABLE = ("", "a", '"a', 'w/"a"', '"a" "b"', '*, "a"', '"a", *', 'W/ "a"', '"a"b', '"a\x7f"', ",")


@pytest.mark.parametrize("text", READ)
def test_lists_of_tags(text: str) -> None:
    assert etags.parse_tags([text]) == READ[text]


@pytest.mark.parametrize("text", UNREADABLE)
def test_texts_that_are_not_a_list_of_tags(text: str) -> None:
    assert etags.parse_tags([text]) is None


def test_several_lines_are_one_list() -> None:
    assert etags.parse_tags(['"a"', 'W/"b"']) == Tags((Tag("a"), Tag("b", weak=True)))


def test_a_tag_holds_the_version_and_what_is_shown() -> None:
    tag = etags.make_tag(7, "shown")
    assert etags.parse_tags([tag]) == Tags((Tag(tag[1:-1]),))
    assert Tag(tag[1:-1]).version == 7
    assert etags.make_tag(7, "shown otherwise") != tag != etags.make_tag(8, "shown")
    assert Tag("7").version is None
    assert Tag("x-" + tag[3:-1]).version is None


def test_reading_compares_weakly_and_changing_strongly() -> None:
    tag = etags.make_tag(7, "shown")
    assert etags.is_known([f'"x", W/{tag}'], tag)
    assert not etags.is_known([etags.make_tag(7, "other")], tag)
    assert etags.is_known(["*"], tag)
    assert not etags.is_known(["what"], tag)
    assert etags.versions(Tags((Tag(tag[1:-1], weak=True), Tag("x")))) == frozenset()
    assert etags.versions(Tags((Tag(tag[1:-1]), Tag(etags.make_tag(9, "")[1:-1])))) == {7, 9}
    assert etags.versions(Tags(anything=True)) is None


def test_a_run_that_stays_as_it_is_is_sent_once(bed: Bed, client: Client) -> None:
    bed.submit("digits-7")
    first = client.get("/v1/runs/digits-7")
    again = client.get("/v1/runs/digits-7", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    bed.change("digits-7", hold="something else")
    changed = client.get("/v1/runs/digits-7", headers={"If-None-Match": first.headers["etag"]})
    assert changed.status_code == 200
    assert changed.headers["etag"] != first.headers["etag"]


def test_a_beat_changes_the_tag_and_not_its_version(bed: Bed, client: Client) -> None:
    bed.submit("digits-7")
    run = bed.train("digits-7")
    before = client.get("/v1/runs/digits-7").headers["etag"]
    bed.clock.advance(1.0)
    after = client.get("/v1/runs/digits-7", headers={"If-None-Match": before})
    assert after.status_code == 200
    assert _version(before) == _version(after.headers["etag"]) == run.version == bed.run("digits-7").version


def test_every_response_with_a_run_has_its_version(bed: Bed, client: Client) -> None:
    body = {"run_id": "digits-7", "spec": {"command": "x"}}
    answers = [client.post("/v1/runs", json=body), client.post("/v1/runs/digits-7/stop")]
    keyed = {"json": {"spec": {"command": "x"}}, "headers": {"Idempotency-Key": "k"}}
    answers += [client.post("/v1/runs", **keyed), client.post("/v1/runs", **keyed)]
    assert answers[3].headers["idempotency-replayed"] == "true"
    assert answers[2].headers["etag"] == answers[3].headers["etag"]
    bed.end("digits-7", Status.STOPPED)
    answers.append(client.post("/v1/runs/digits-7/resume"))
    for answer in answers:
        assert _version(answer.headers["etag"]) == answer.json()["version"]


def _version(tag: str) -> int | None:
    found = etags.parse_tags([tag])
    assert found is not None
    return found.tags[0].version
