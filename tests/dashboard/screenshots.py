"""`make screenshots`: each page of the dashboard over the data set, light and dark, as pictures in docs/images.

The same data at the same moment give the same pictures: the server's clock stands still, and so does the browser's.
A name as an argument makes those pictures alone: `make screenshots ARGS="runs zones"`.
"""

from __future__ import annotations

import base64
import struct
import sys
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from playwright.sync_api import Browser, Page, StorageState, sync_playwright

from supervisor.api import server
from supervisor.api.wire.deps import Services, with_tokens
from supervisor.dashboard.mounting import mount
from tests.browser.chromium import ARGUMENTS, HOW_TO_INSTALL, program
from tests.dashboard.dataset.house import NOW, House
from tests.dashboard.serve_dataset import filled

FOLDER = Path(__file__).parents[2] / "docs" / "images"
LOOKS = ("light", "dark")
WIDE, NARROW = (1280, 900), (360, 740)
SETTLED_MS = 500  # scripts have drawn
# Letters in shades of their own colour: the same on every computer with these letters, and fewer colours.
LETTERS = ("--disable-lcd-text", "--font-render-hinting=none")
PALETTE = (Path(__file__).parent / "palette.js").read_text()
SIGNATURE = b"\x89PNG\r\n\x1a\n"


@dataclass(frozen=True, slots=True)
class Shot:
    """`tall`: so many pixels of the page at most, from its top. `stranger`: for a user who is not signed in. `sweep`:
    with a group beside the thirty runs."""

    name: str
    path: str
    size: tuple[int, int] = WIDE
    tall: int = 1250
    stranger: bool = False
    sweep: bool = False


SHOTS = (
    Shot("runs", "/ui/runs"),
    Shot("run-recovering", "/ui/runs/llm-b"),
    Shot("run-failed", "/ui/runs/vit-l-finetune"),
    Shot("log", "/ui/runs/llm-a/log", tall=900),
    Shot("charts", "/ui/runs/llm-a/charts"),
    Shot("events", "/ui/runs/digits-7/events", tall=900),
    Shot("spec", "/ui/runs/llm-a/spec"),
    Shot("group", "/ui/groups/resnet-lr", tall=900, sweep=True),
    Shot("compare", "/ui/compare?group=resnet-lr&metric=loss&metric=accuracy", tall=1100, sweep=True),
    Shot("cost", "/ui/cost?by=group&days=", tall=1100),
    Shot("cost-narrow", "/ui/cost?by=run&days=", NARROW, tall=1000),
    Shot("zones", "/ui/zones", tall=1000),
    Shot("providers", "/ui/providers", tall=1000),
    Shot("machines", "/ui/machines", tall=1000),
    Shot("alerts", "/ui/alerts", tall=1000),
    Shot("alert", "/ui/alerts/wh-1b0a7db0a7d0", tall=1000),
    Shot("system", "/ui/system", tall=1100),
    Shot("sign-in", "/ui/sign-in", (1280, 480), stranger=True),
    Shot("runs-narrow", "/ui/runs", NARROW, tall=1000),
    Shot("run-narrow", "/ui/runs/llm-b", NARROW, tall=1000),
)


def main(names: Sequence[str]) -> None:
    shots = [shot for shot in SHOTS if not names or shot.name in names]
    path = program()
    if path is None:
        sys.exit(f"Chromium is missing here. To get it: {HOW_TO_INSTALL}")
    FOLDER.mkdir(exist_ok=True)
    for sweep in (False, True):
        _take([shot for shot in shots if shot.sweep is sweep], path, sweep)


def _take(shots: Sequence[Shot], path: str, sweep: bool) -> None:
    if not shots:
        return
    with ExitStack() as stack:
        house = stack.enter_context(filled(NOW, sweep))
        root = stack.enter_context(served(house, with_tokens(house.services)))
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=path, args=[*ARGUMENTS, *LETTERS])
        stack.callback(browser.close)
        known = signed_in(browser, root, house.token)
        for shot in shots:
            for look in LOOKS:
                picture = taken(browser, root, shot, look, None if shot.stranger else known)
                (FOLDER / f"{shot.name}-{look}.png").write_bytes(picture)
                print(f"{len(picture) / 1000:6.0f} kB  {shot.name}-{look}.png", flush=True)  # noqa: T201


@contextmanager
def served(house: House, services: Services) -> Iterator[str]:
    """Where they answer, from a thread."""
    listener, ready = server.bind("127.0.0.1", 0), threading.Event()
    ours = server.make(services, ready.set, add=partial(mount, now=house.clock.now))
    thread = threading.Thread(target=ours.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        assert ready.wait(30), "the server does not begin"
        yield server.url_of(listener)
    finally:
        ours.should_exit = True
        thread.join(30)
        listener.close()


def signed_in(browser: Browser, root: str, token: str) -> StorageState:
    """What a browser keeps of that."""
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(f"{root}/ui/sign-in")
        page.fill("#token", token)
        page.press("#token", "Enter")
        page.wait_for_url("**/ui/runs**")
        return context.storage_state()
    finally:
        context.close()


def taken(browser: Browser, root: str, shot: Shot, look: str, known: StorageState | None) -> bytes:
    """`known`: the state of the user's browser; None = empty."""
    width, height = shot.size
    context = browser.new_context(
        storage_state=known,
        viewport={"width": width, "height": height},
        color_scheme="dark" if look == "dark" else "light",
        reduced_motion="reduce",
        timezone_id="UTC",
        locale="en-GB",
    )
    try:
        page = context.new_page()
        page.clock.set_fixed_time(int(NOW * 1000))
        answer = page.goto(root + shot.path)
        assert answer is not None
        assert answer.status == 200, f"{shot.path}: {answer.status}"
        page.wait_for_timeout(SETTLED_MS)
        picture = page.screenshot(clip=_clip(page, shot), full_page=True, animations="disabled")
        page.goto("about:blank")  # what follows is no business of the page's
        return packed(page, picture)
    finally:
        context.close()


def _clip(page: Page, shot: Shot) -> dict[str, float]:
    tall = page.evaluate("document.documentElement.scrollHeight")
    return {"x": 0, "y": 0, "width": shot.size[0], "height": min(shot.tall, max(tall, 1))}


def packed(page: Page, png: bytes) -> bytes:
    """Much the same picture in 256 colours, a third of the size. `page`: any, whose browser counts the colours."""
    width, height, colours, numbers = page.evaluate(PALETTE, base64.b64encode(png).decode())
    points = base64.b64decode(numbers)
    rows = b"".join(b"\0" + points[at : at + width] for at in range(0, len(points), width))
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", bytes(part for colour in colours for part in colour)),
        (b"IDAT", zlib.compress(rows, 9)),
        (b"IEND", b""),
    )
    return SIGNATURE + b"".join(_chunk(*one) for one in chunks)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


if __name__ == "__main__":
    main(sys.argv[1:])
