"""The checks of pages find faults: a correct page passes, and each page with one fault does not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.browser.strangers import pages
from tests.browser.test_every_page import faults_of
from tests.browser.visiting import Visitor

pytestmark = pytest.mark.xdist_group("browser")
SOUND = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>A page · Spot Supervisor</title>
<style>
  :root { color-scheme: light dark; background: light-dark(#fff, #111); color: light-dark(#111, #eee); }
  .skip { position: absolute; left: -9999px; }
  .card { background: light-dark(#eee, #333); }
  a { color: light-dark(#0b57d0, #82b1ff); } a, button, input { display: inline-block; padding: 8px; }
  svg text { fill: #111; } rect { fill: #fff; }
</style></head>
<body><a class="skip" href="#main">Skip</a>
<header><nav aria-label="Pages"><a href="/runs">Runs</a></nav></header>
<main id="main"><h1>A page</h1><h2>Below</h2>
<table aria-label="Runs"><tr><th scope="col">Run</th></tr><tr><td>llm-a</td></tr></table>
<label for="q">Search</label><input id="q"><button aria-label="Close">x</button>
<p class="card">Words on a card, with <a href="/runs">a link</a>.</p>
<svg role="img" aria-label="Steps"><rect width="90" height="30"/><text x="5" y="20">12</text></svg>
</main></body></html>"""
# What is written instead of what, and what is found then.
WRONG = (
    ('lang="en"', "", "does not say that it is English"),
    ("A page · Spot", "Spot", "title: "),
    ('<label for="q">Search</label>', "", 'no name: <input id="q">'),
    ('aria-label="Close"', "", None),  # x is a letter, if no good name
    ('aria-label="Close">x', ">✕", "no name: <button>✕"),
    (' href="/runs">a link', ">a link", "leads nowhere"),
    ("<h2>Below</h2>", "<h3>Below</h3>", "heading of level 3 after level 1"),
    ("<h2>Below</h2>", "<h1>Below</h1>", "not exactly one h1"),
    ("<main", "<p>Outside</p><main", "outside of all landmarks"),
    ('<nav aria-label="Pages">', "<nav>", "a navigation without a name"),
    ('<a class="skip" href="#main">Skip</a>', "", "no skip link first"),
    (' scope="col"', "", "a header without scope"),
    ('<table aria-label="Runs">', "<table>", "a table without a name"),
    (">Run</th>", "></th>", "an empty table header"),
    ("<h2>Below", '<h2 id="q">Below', "the id q is given twice"),
    ('<button aria-label="Close">', '<button aria-labelledby="gone">x', "aria-labelledby leads nowhere"),
    ('role="img"', "", "a picture without a name"),
    ('href="/runs">a link', 'href="javascript:struck(1)">a link', "an address of javascript:"),
    ("<p class", '<p style="color: red" class', "a style in place"),
    ("light-dark(#eee, #333)", "light-dark(#777, #333)", "light: contrast 4."),
    ("light-dark(#eee, #333)", "light-dark(#eee, #888)", "dark: contrast 3."),
    (".card {", ".card { opacity: .5;", "light: contrast 3.49"),
    ("rect { fill: #fff", "rect { fill: #555", "light: contrast 2."),
    ("Words on", '<b style="font: 900px x">Words</b> on', "360 px: the page is"),
    ("display: inline-block; padding: 8px", "font-size: 9px; padding: 0", "is small beside"),
    ("<header>", '<header style="margin-bottom: -40px">', "the header covers the beginning"),
    ("<h1>", '<h1 style="position: fixed; inset: 0">', "covered in the header"),
)


@pytest.fixture(scope="module")
def looker(browser: Browser) -> Iterator[Visitor]:
    texts = {f"p{at}": SOUND.replace(old, new, 1) for at, (old, new, _) in enumerate(WRONG)}
    with pages(sound=SOUND, **texts) as port:
        found = Visitor(browser, f"http://127.0.0.1:{port}")
        yield found
        found.context.close()


def test_a_sound_page_passes(looker: Visitor) -> None:
    assert faults_of(looker, "/sound") == []


def test_every_wrong_is_found(looker: Visitor) -> None:
    for at, (old, new, fault) in enumerate(WRONG):
        assert old in SOUND
        found = faults_of(looker, f"/p{at}", 0)
        assert any(fault in one for one in found) if fault else not found, (new, found)


def test_scripts_of_a_page_that_was_left_are_no_fault_and_those_that_broke_are(browser: Browser) -> None:
    waiting = '<title>waiting</title><script type=module src="/slow.js"></script><p>Here</p>'
    with pages(waiting=waiting, next="<title>next</title>") as port:
        somebody = Visitor(browser, f"http://127.0.0.1:{port}")
        held: list[Route] = []

        def hold(route: Route) -> None:
            held.append(route)

        somebody.page.route("**/slow.js", hold)
        somebody.page.goto("/waiting", wait_until="commit")
        expect(somebody.page.get_by_text("Here")).to_be_visible()
        somebody.page.goto("/next")
        assert held
        assert somebody.watch.faults == []
        somebody.page.route("**/slow.js", lambda route: route.abort("connectionreset"))
        somebody.page.goto("/waiting")
        assert any("slow.js: net::ERR_CONNECTION_RESET" in fault for fault in somebody.watch.faults)
        somebody.context.close()
