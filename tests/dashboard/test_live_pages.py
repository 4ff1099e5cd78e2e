"""How each page keeps itself up to date, and the response to a script that requests it."""

from __future__ import annotations

import pytest

from supervisor.api.wire.deps import with_tokens
from tests.dashboard.looking import Looking
from tests.services.bed import Bed


def test_a_script_that_asks_for_a_page_is_sent_to_the_sign_in_and_not_given_it(bed: Bed) -> None:
    looking = Looking(with_tokens(bed.services))
    answer = looking.get("/ui/runs?status=running", headers={"HX-Request": "true"})
    assert (answer.status_code, answer.content) == (401, b"")
    assert answer.headers["hx-redirect"] == "/ui/sign-in?next=/ui/runs%3Fstatus%3Drunning"
    assert looking.get("/ui/runs").status_code == 303  # a reader's browser goes itself


LIVE = {
    "/ui/runs": "runs=mine",
    "/ui/runs?status=failed": "runs=",
    **{f"/ui/runs/mine{tab}": "run=mine" for tab in ("", "/log", "/console", "/events", "/charts", "/files", "/spec")},
    **{f"/ui/{name}": "" for name in ("zones", "machines", "alerts", "system")},
}


@pytest.mark.parametrize(("path", "stream"), LIVE.items())
def test_a_page_has_what_makes_it_live(bed: Bed, looking: Looking, path: str, stream: str) -> None:
    """A part that is missing would never come, and one inside another would be put in twice."""
    bed.submit("mine")
    main = looking.page(path).one("main")
    assert main.attributes["sse-connect"] == f"/ui/live?{stream}"
    (asking,) = [one for one in main.all("div") if "hx-get" in one.attributes]
    assert asking.attributes["hx-get"] == path
    ids = [part.removeprefix("#") for part in asking.attributes["hx-select-oob"].split(",")]
    parts = [main.one(id=name) for name in ids]
    for part in parts:
        assert not [inner for inner in part.all() if inner.attributes.get("id") in ids]
