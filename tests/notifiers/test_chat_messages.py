"""Slack and Discord: the messages, and that no name or text can become more than text."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.domain.events import KINDS
from supervisor.notifiers import forms
from supervisor.ports.notifier import Notification

COST = {"cost_usd": 41.7, "budget_usd": 120.0, "budget_from_usd": 0.0, "attempt": 9, "cost_known": True}
HOSTILE = [
    "<!channel>",
    "<@U012>",
    "&lt;!here&gt;",
    "<http://evil|good>",
    "@everyone",
    "a" * 900,
    "\u202e\x00\n",
    "💥" * 700,
]
TEXTS = st.one_of(st.text(max_size=200), st.sampled_from(HOSTILE))
KIND_NAMES = st.one_of(st.sampled_from(sorted(KINDS)), TEXTS)
DATA = st.dictionaries(
    st.sampled_from([*COST, "cause", "status_text", "rule", "certainty", "quote"]),
    st.one_of(st.floats(), st.integers(), TEXTS, st.booleans(), st.none()),
)
NOTIFICATIONS = st.builds(
    Notification, st.integers(0, 9), st.integers(0, 9), TEXTS, KIND_NAMES, TEXTS, st.floats(0, 1e9), DATA
)
# Everything that a message may hold between < and >: the one link that we make.
ALLOWED = re.compile(r"<https://spot\.example/runs/[A-Za-z0-9%._~-]*\|open run>")


def note(kind: str, text: str, run_id: str = "llm-a", **data: object) -> Notification:
    return Notification(7, 3, run_id, kind, text, 0.0, data)


PREEMPTED = note(
    "preempted",
    "Preempted in us-east1-c after 2 h 14 min. Checkpoint 71,200 is saved, 10 steps lost. Restarting in us-east1-b.",
    **COST,
)


def slack_text(batch: Sequence[Notification], run_page: str = "") -> str:
    blocks = json.loads(forms.slack_body(batch, run_page))["blocks"]
    return "\n".join(block["text"]["text"] if "text" in block else block["elements"][0]["text"] for block in blocks)


def test_a_preemption_reads_as_it_should() -> None:
    first, second = slack_text([PREEMPTED], "https://spot.example/runs/").splitlines()
    assert first == (
        ":warning: llm-a was preempted in us-east1-c after 2 h 14 min. "
        "Checkpoint 71,200 is saved, 10 steps lost. Restarting in us-east1-b."
    )
    assert second == (
        "Cost so far $41.70 of $120.00 · attempt 9 · You need to do nothing · "
        "<https://spot.example/runs/llm-a|open run>"
    )


def test_an_end_that_a_rule_explains_names_it_with_one_quote_on_one_line() -> None:
    """Broken variant: a quote of the log began a second line, or mentioned a channel."""
    verdict = {"cause": "user_error", "certainty": "certain", "rule": "U5.module", "quote": "No <!channel>\nmodule"}
    first, second = slack_text([note("failed", "Failed.", **COST, **verdict)]).splitlines()
    assert first == ":rotating_light: llm-a: Failed."
    assert second.startswith("user_error (certain, rule U5.module): No &lt;!channel&gt; module · Cost $41.70")
    without = note("failed", "Failed.", **COST, cause="user_error", rule="", quote="x")
    assert "user_error" not in slack_text([without])


@pytest.mark.parametrize(
    ("told", "line"),
    [
        (
            note("recovered", "Training again in b, resumed from step 71,200 after 3 min 10 s."),
            ":white_check_mark: llm-a is training again in b, resumed from step 71,200 after 3 min 10 s.",
        ),
        (
            note("needs_person", "Needs you: quota L4 is 0. Nothing is billed.", "probe-2"),
            ":rotating_light: probe-2 needs you: quota L4 is 0. Nothing is billed.",
        ),
        (note("patrol", "2 running.", ""), ":information_source: 2 running."),
        (note("completed", "Completed; results verified."), ":white_check_mark: llm-a: Completed; results verified."),
    ],
)
def test_each_sentence_begins_with_its_run(told: Notification, line: str) -> None:
    assert slack_text([told]).splitlines()[0] == line


def test_where_the_run_says_more_than_its_event_that_is_told() -> None:
    full = "Completed after 9 h 41 min (4 attempts, 3 preemptions), results verified. Cost $6.12."
    told = note("completed", "Completed; results verified.", status_text=full)
    assert slack_text([told]).splitlines()[0] == f":white_check_mark: llm-a: {full}"
    quota = note("needs_person", "Needs you: quota L4 is 0.", status_text="Quota L4 is 0.")
    assert "llm-a needs you: quota L4 is 0." in slack_text([quota])


def test_who_is_needed_is_not_told_to_do_nothing() -> None:
    assert "do nothing" not in slack_text([note("needs_approval", "Results verified.", **COST)])
    assert "do nothing" in slack_text([note("completed", "Completed.", **COST)])


def test_a_budget_of_a_later_generation_counts_from_its_own_beginning() -> None:
    told = note("preempted", "Preempted in a.", **{**COST, "budget_from_usd": 40.0})
    assert "Cost so far $1.70 of $120.00" in slack_text([told])


def test_a_price_that_is_not_known_is_not_shown_as_nothing() -> None:
    told = note("preempted", "Preempted in a.", cost_usd=0.0, cost_known=False, attempt=2)
    assert "Cost" not in slack_text([told])
    assert "at least $1.00" in slack_text([note("preempted", "x", cost_usd=1.0, cost_known=False)])


def test_of_many_the_ones_that_need_a_person_come_first() -> None:
    batch = [*[PREEMPTED] * 39, note("failed", "Failed: user_error.", "probe-2")]
    lines = slack_text(batch).splitlines()
    assert lines[0] == "40 announcements: 39 preempted, 1 failed"
    assert lines[1].startswith(":rotating_light: probe-2: Failed")
    assert len(lines) == 41, "each of them is told"


def problems(message: str, run_page: str) -> list[str]:
    """What Slack would refuse, or understand as more than text."""
    told, found = json.loads(message), []
    blocks = told["blocks"]
    if not told["text"] or not 1 <= len(blocks) <= 50:
        found.append("blocks or fallback")
    for block in blocks:
        part = block["text"] if "text" in block else block["elements"][0]
        text, limit = part["text"], 150 if block["type"] == "header" else 3000
        if len(text.encode("utf-16-le", "surrogatepass")) // 2 > limit:
            found.append("too long")
        if part["type"] == "mrkdwn":
            found += _more_than_text(text, run_page)
            if not part["verbatim"]:
                found.append("looks for names")
    return [*found, *_more_than_text(told["text"], "")]


def _more_than_text(text: str, run_page: str) -> list[str]:
    rest = ALLOWED.sub("", text) if run_page else text
    found = ["markup"] if "<" in rest or ">" in rest else []
    if re.search(r"&(?!(amp|lt|gt);)", rest):
        found.append("half an escape")
    return found


@given(st.lists(NOTIFICATIONS, min_size=1, max_size=12), st.sampled_from(["", "https://spot.example/runs/"]))
def test_no_name_or_text_is_more_than_text_in_slack(batch: list[Notification], run_page: str) -> None:
    message = forms.slack_body(batch, run_page)
    assert problems(message, run_page) == []
    message.encode()


def test_a_text_that_is_not_escaped_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = [note("failed", "<!channel>")]
    assert problems(forms.slack_body(batch), "") == []
    monkeypatch.setattr(forms, "_ESCAPES", {})
    assert "markup" in problems(forms.slack_body(batch), "")


@given(st.text(), st.integers(1, 40))
def test_an_escaped_text_is_the_text_or_its_beginning(text: str, limit: int) -> None:
    shown = forms.escaped(text, limit)
    assert len(shown.encode("utf-16-le")) // 2 <= limit
    back = html.unescape(shown) if "&" in text else shown.replace("&lt;", "<").replace("&gt;", ">")
    if "&" not in text:
        assert back == text or (back.endswith("…") and text.startswith(back[:-1]))


def test_a_full_message_holds_what_slack_takes() -> None:
    hostile = [note("failed", text * 50, "r" * 63) for text in HOSTILE for _ in range(20)]
    assert problems(forms.slack_body(hostile), "") == []


@given(st.lists(NOTIFICATIONS, min_size=1, max_size=12))
def test_discord_gets_what_it_takes_and_nobody_is_pinged(batch: list[Notification]) -> None:
    message = forms.discord_body(batch)
    message.encode()
    told = json.loads(message)
    assert told["allowed_mentions"] == {"parse": []}
    assert 0 < len(told["content"].encode("utf-16-le")) // 2 <= 2000
    for embed in told.get("embeds", ()):
        assert 0 < len(embed["description"]) <= 4096


def test_discord_links_to_the_run_that_a_message_is_about() -> None:
    page = "https://spot.example/ui/runs/"
    assert json.loads(forms.discord_body([PREEMPTED], page))["content"].endswith(f" <{page}llm-a>")
    for unlinked in (forms.discord_body([PREEMPTED]), forms.discord_body([note("patrol", "All is well.", "")], page)):
        assert "<" not in json.loads(unlinked)["content"]
    long = json.loads(forms.discord_body([note("failed", "x" * 9000)], "https://" + "a" * 200))["content"]
    assert len(long) <= 2000
    assert long.endswith("llm-a>")


def test_discord_tells_each_of_fifty() -> None:
    batch = [
        note("preempted", f"Preempted in zone-{n}, which has a long name and a long story to tell.", f"run-{n}")
        for n in range(50)
    ]
    [embed] = json.loads(forms.discord_body(batch))["embeds"]
    assert all(f" run-{n} " in embed["description"] for n in range(50))
    assert "more" not in embed["description"]


def test_every_kind_has_a_sign() -> None:
    for kind in KINDS.values():
        shown = forms.sign(note(kind.name, "x"))
        assert (shown == forms.URGENT) == kind.urgent, kind.name
