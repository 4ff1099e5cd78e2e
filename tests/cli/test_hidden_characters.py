"""What strangers write shows on a terminal as it is: nothing that turns the direction of reading, hides or drives."""

import re
from typing import Any

import pytest
import yaml

from supervisor.cli.output import safe_log
from tests.cli.fake_api import a_page, a_run, an_event, serve_run
from tests.cli.fake_machines import MACHINE, seen
from tests.cli.test_token import SHOWN as SHOWN_TOKEN
from tests.cli.test_webhook import SHOWN as SHOWN_HOOK

HIDDEN = "\u202egnp.exe \x9b31m\x85 \u2066x\u200b"
HIDING = re.compile("[\x1b\x7f-\x9f\u200b\u202e\u2066]")
WORDS = ("status", "cause", "kind", "phase", "code", "run_id", "result")


def hostile(value: Any, key: str = "") -> Any:
    """The same response with hidden characters in every text that is no time and none of our words."""
    if isinstance(value, dict):
        changed = {name: hostile(item, name) for name, item in value.items()}
        more = {"metrics": {HIDDEN: 1.0}, "labels": {"team": HIDDEN}}.get(key, {})
        return {**changed, **more}
    if isinstance(value, list):
        return [hostile(item, key) for item in value]
    if isinstance(value, str) and key not in WORDS and not re.match(r"20\d\d-", value):
        return value + HIDDEN
    return value


@pytest.mark.parametrize(
    "words",
    [
        ("ls",), ("ls", "-o", "json"), ("ls", "-o", "jsonl"), ("show", "digits-7"), ("show", "digits-7", "--spec"),
        ("show", "digits-7", "-o", "json"), ("events", "digits-7"), ("events", "digits-7", "-o", "json"),
        ("events", "digits-7", "-o", "jsonl"), ("cost", "digits-7"), ("stop", "digits-7"), ("stop", "gone-1"),
        ("webhook", "ls"), ("webhook", "ls", "-o", "json"), ("token", "ls"), ("ls", "--machines"), ("logs", "digits-7"),
    ],
)  # fmt: skip
def test_nothing_that_is_printed_holds_hidden_characters(api, spot, words: tuple[str, ...]) -> None:
    serve_run(api, a_run(), an_event(1, "submitted", "Submitted by local."))
    api.respond("GET", "/v1/runs", a_page(a_run()))
    api.respond("GET", "/v1/runs/digits-7/facts", {"spec": {"command": "train", "labels": {"team": "a"}}})
    api.respond("POST", "/v1/runs/digits-7/stop", a_run())
    api.respond("GET", "/v1/webhooks", {"webhooks": [SHOWN_HOOK]})
    api.respond("GET", "/v1/tokens", {"tokens": [SHOWN_TOKEN]})
    api.respond("GET", "/v1/machines", seen((MACHINE,)))
    plain = api.response_to

    def answer(request: Any) -> tuple[int, Any]:
        status, body = plain(request)
        return status, hostile(body)

    api.response_to = answer
    ended = spot(*words)
    assert not HIDING.search(ended.out + ended.err), ended
    assert re.search(r"⟨U\+202E⟩|\\u202[eE]", ended.out + ended.err), ended


def test_a_spec_with_hidden_characters_is_printed_as_a_file_that_means_the_same(api, spot) -> None:
    spec = {"command": ["train", HIDDEN], "env": {"A": "\x1b[31m", "B": "ü"}}
    serve_run(api, a_run())
    api.respond("GET", "/v1/runs/digits-7/facts", {"spec": spec})
    ended = spot("show", "digits-7", "--spec")
    assert yaml.safe_load(ended.out) == spec
    assert not HIDING.search(ended.out)


def test_the_log_on_a_terminal_shows_hidden_characters_by_number() -> None:
    assert safe_log(f"\x1b[31mred\x1b[0m\t{HIDDEN}\n") == "\x1b[31mred\x1b[0m\t⟨U+202E⟩gnp.exe 31m ⟨U+2066⟩x⟨U+200B⟩\n"
