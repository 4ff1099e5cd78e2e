"""Pages of other sites cannot press our buttons, read our responses or embed our pages.

Two strangers: another site (localhost, where the supervisor is 127.0.0.1), to whose requests the browser adds no cookie
of ours; and another port of the same name, to the browser the same site, whose requests do carry it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Visit
from tests.browser.house import House
from tests.browser.strangers import pages

pytestmark = pytest.mark.xdist_group("browser")
HEAD = "<!doctype html><html lang=en><title>a stranger</title>"
NAMES = ("localhost", "127.0.0.1")
# Every way in which a script may ask; what came of it: a status that it could read, or the name of the error.
ASK = """
async ([root, paths]) => {
  const ways = [];
  for (const path of paths)
    for (const method of ["GET", "POST", "PUT", "PATCH", "DELETE"])
      for (const mode of ["no-cors", "cors"])
        ways.push([path, method, mode]);
  return Promise.all(ways.map(async ([path, method, mode]) => {
    const body = method === "GET" ? undefined : new URLSearchParams({ theme: "dark", confirm: "yes" });
    try {
      const answer = await fetch(root + path, { method, mode, body, credentials: "include" });
      return [path, method, mode, answer.type === "opaque" ? "opaque" : String(answer.status)];
    } catch (error) {
      return [path, method, mode, error.name];
    }
  }));
}
"""

# What a browser says of that.
REFUSALS = (
    "^answer 40[0-9]: ",
    "^console error: Failed to load resource: (the server responded|net::ERR_)",
    "^console error: Access to fetch at .* has been blocked by CORS policy",
    "^failed: (GET|POST|PUT|PATCH|DELETE)",
)


@pytest.fixture(scope="module")
def port(house: House) -> Iterator[int]:
    root = house.daemon.url
    form, leave = (
        f'{HEAD}<form method=post action="{root}{action}"><input name=confirm value=yes><button>Win</button></form>'
        for action in ("/ui/runs/quiet/stop", "/ui/sign-out")
    )
    with pages(empty=HEAD, form=form, leave=leave, frame=f'{HEAD}<iframe src="{root}/ui/runs"></iframe>') as found:
        yield found


def test_a_stranger_changes_nothing_and_reads_nothing(house: House, visit: Visit, port: int, quiet: str) -> None:
    somebody = visit()
    page = somebody.come_back(house.token)
    for fault in REFUSALS:
        somebody.watch.expect(fault)
    answered: list[tuple[str, int]] = []
    page.on("response", lambda answer: answered.append((answer.request.method, answer.status)))
    here = f"/v1/runs/{quiet}"
    paths = [f"/ui/runs/{quiet}/stop", f"{here}/stop", here, "/ui/theme", "/ui/sign-out"]
    for name in NAMES:
        page.goto(f"http://{name}:{port}/empty")
        page.wait_for_load_state()
        answered.clear()
        got = page.evaluate(ASK, [somebody.root, paths])
        assert len(got) == 50
        assert {what for *_, what in got} <= {"opaque", "TypeError"}
        changing = {status for method, status in answered if method != "GET"}
        assert changing
        assert changing <= {401, 403, 405}
    run = house.daemon.run(quiet)
    assert (run["status"], run["stop"]) == ("running", None)
    still_here(page)
    assert page.locator("html").get_attribute("data-theme") is None


def test_a_form_of_a_stranger_is_refused_with_a_reason(house: House, visit: Visit, port: int, quiet: str) -> None:
    somebody = visit()
    page = somebody.come_back(house.token)
    somebody.watch.expect("answer 403: POST")
    somebody.watch.expect("status of 403")
    for name in NAMES:
        for form in ("form", "leave"):
            page.goto(f"http://{name}:{port}/{form}")
            page.get_by_role("button").click()
            expect(page.locator("body")).to_contain_text("ORIGIN_REFUSED")
    assert house.daemon.run(quiet)["stop"] is None
    still_here(page)


def test_a_stranger_cannot_frame_us(house: House, visit: Visit, port: int) -> None:
    somebody = visit()
    page = somebody.come_back(house.token)
    somebody.watch.expect("frame-ancestors")
    somebody.watch.expect("ui/runs: net::ERR_BLOCKED_BY_RESPONSE")
    somebody.watch.expect("403")  # the server refuses already what the browser would
    for name in NAMES:
        page.goto(f"http://{name}:{port}/frame")
        page.wait_for_load_state()
        frame = page.frames[-1]
        assert frame is not page.main_frame
        assert frame.get_by_role("heading", name="Runs").count() == 0
        assert frame.get_by_text("Spot Supervisor").count() == 0


def still_here(page: Page) -> None:
    """Signed in as before."""
    page.goto("/ui/runs")
    expect(page.get_by_role("heading", level=1)).to_have_text("Runs")
