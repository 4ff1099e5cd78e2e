"""Output made harmless: terminal styles are shown, and no line becomes markup."""

from __future__ import annotations

import re
import time
from html import unescape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.dashboard.ansi import LINE_CHARS, pattern, shown
from tests.dashboard.document import read
from tests.properties import examples

OURS = re.compile(r'<span class="(?:ctl|cut|a-[a-z-]+(?: a-[a-z-]+)*)">|</span>|<mark>|</mark>|&(?:amp|lt|gt|#34|#39);')
PARTS = st.sampled_from(
    ["\x1b", "[", "31m", "0;1m", "\x1b[31m", "\x1b[0m", "\x1b[38;5;200m", "\x1b]8;;http://x\x07", "\x1b]0;t", "\x9b1m",
     "\r", "<b>", "</span>", '"', "'", "&amp;", "&", "<script>", "\u202e", "\x00", "\ud800", "é", "İ", "loss", ";", "m",
     "999999999", "\x1b[" + "9" * 5000 + "m", "\x1bPq\x1b\\", "\x9c", "\t", " ", "\U000e0041"]
)  # fmt: skip
LINES = st.lists(PARTS | st.text(max_size=5), max_size=30).map("".join)


@settings(max_examples=examples(100, 300))
@given(LINES, st.sampled_from(["", "loss", "<", "m", "\x1b", "İ"]), st.integers(0, 40))
def test_nothing_of_a_line_becomes_markup(line: str, text: str, limit: int) -> None:
    made = str(shown(line, pattern(text, False), limit))
    rest = OURS.sub("", made)
    assert not set("<>&\"'") & set(rest), made
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", made)
    made.encode()
    read(made)  # what opens is closed


@given(LINES)
def test_what_is_shown_of_a_line_is_in_it(line: str) -> None:
    """Nothing is invented, and all that is no sequence is shown."""
    plain = unescape(re.sub(r"<[^>]*>", "", str(shown(line, None, 10**6))))
    assert len(plain) <= 10 * len(line) + 20
    if not set(line) & set("\x1b\x9b\x90\x98\x9d\x9e\x9f\r"):
        assert re.findall("[a-z<>&]", plain) == re.findall("[a-z<>&]", line)


@pytest.mark.parametrize(
    ("line", "made"),
    [
        ("plain & <b>", "plain &amp; &lt;b&gt;"),
        ("\x1b[1;31merror\x1b[0m: x", '<span class="a-red a-bold">error</span>: x'),
        ("\x1b[92mok\x1b[39m.", '<span class="a-bright-green">ok</span>.'),
        ("\x1b[38;5;9mr\x1b[38;5;46mg", '<span class="a-bright-red">r</span><span class="a-green">g</span>'),
        ("\x1b[38;2;10;20;250mb\x1b[38;5;250mw", '<span class="a-blue">b</span><span class="a-bright-black">w</span>'),
        ("\x1b[48;5;1;4mu\x1b[m.", '<span class="a-underline">u</span>.'),
        ("\x1b[2J\x1b[10;10Hmoved\x1b[K", "moved"),
        ("\x1b]0;title\x07a\x1b]8;;http://x/\x1b\\link\x1b]8;;\x1b\\", "alink"),
        ("\x1b]0;never ends", '<span class="ctl">␛</span>]0;never ends'),
        ("\x1b(Bcharset\x1b=", "charset"),
        (" 10%|#\r 20%|##\r100%|###\r", "100%|###"),
        ("windows\r", "windows"),
        ("a\x08\x07\x00", 'a<span class="ctl">␈␇␀</span>'),
        ("x\u202egnp.exe", 'x<span class="ctl">⟨U+202E⟩</span>gnp.exe'),
        ("\tindented", "\tindented"),
        ("", ""),
    ],
)  # fmt: skip
def test_looks(line: str, made: str) -> None:
    assert shown(line) == made


def test_a_long_line_is_cut_and_says_so() -> None:
    made = shown("\x1b[31m" + "x" * (LINE_CHARS + 12_345))
    assert made.endswith('<span class="cut">…(12,345 more characters)</span>')
    assert made.count("x") == LINE_CHARS
    assert shown("ab", limit=2) == "ab"


def test_a_match_is_marked_through_its_colours() -> None:
    made = shown("Lo\x1b[31mss is <loss>", pattern("loss", False))
    assert made == (
        '<mark>Lo</mark><mark><span class="a-red">ss</span></mark><span class="a-red"> is &lt;</span>'
        '<mark><span class="a-red">loss</span></mark><span class="a-red">&gt;</span>'
    )
    assert "<mark>" not in shown("LOSS", pattern("loss", True))
    assert shown("x" * 1000, pattern("x", True)).count("<mark>") == 200


def test_the_worst_line_is_quick() -> None:
    """64 KB of beginnings without an end. Broken variant: each looked through all that follows."""
    began = time.process_time()
    for part in ("\x1b]", "\x1b[", "\x1b[1;", "\r", "\x00", "\x9d1", "<"):
        shown(part * (65_536 // len(part)), pattern("1", False))
    assert time.process_time() - began < 2.0


def test_the_worst_line_is_not_a_page_by_itself() -> None:
    """A megabyte of such lines makes a page of some megabytes. Broken variant: each sign and look was an element."""
    for part in ("a\x00", "\x1b[31ma\x1b[32mb", "\x00", "\u202e", "<"):
        assert len(shown(part * 65_536, pattern("a", False))) < 30_000
