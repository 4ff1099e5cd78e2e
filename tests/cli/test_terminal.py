"""What a person at a terminal gets: colours, cut lines, questions, the live picture, Ctrl-C; on a pseudo-terminal."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

from supervisor.cli.output import safe, safe_log
from tests.cli.fake_api import a_page, a_run, an_event, serve_run

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
DEADLINE_S = 30.0


class Terminal:
    """A command on a pseudo-terminal of 100 columns; `text` is all that it has written."""

    def __init__(self, process: subprocess.Popen[bytes], screen: int) -> None:
        self.process, self._screen, self.text = process, screen, ""

    def read_until(self, wanted: str | None) -> str:
        """All text up to `wanted`, or (None) to the end of the command."""
        deadline = time.monotonic() + DEADLINE_S
        while wanted is None or wanted not in self.text:
            assert time.monotonic() < deadline, f"{wanted!r} never came: {self.text!r}"
            if select.select([self._screen], [], [], 0.1)[0]:
                try:
                    piece = os.read(self._screen, 65536)
                except OSError:  # Linux: the other side is closed
                    piece = b""
                if not piece and wanted is None:
                    break
                self.text += piece.decode()
        return self.text

    def type(self, text: str) -> None:
        os.write(self._screen, text.encode())

    def code(self) -> int:
        self.read_until(None)
        return self.process.wait(timeout=DEADLINE_S)


@contextmanager
def at_a_terminal(url: str, *words: str, **environ: str) -> Iterator[Terminal]:
    screen, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    kept = {
        n: v for n, v in os.environ.items() if not n.startswith("SPOT_") and n not in ("NO_COLOR", "COLUMNS", "LINES")
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "supervisor", *words],
        stdin=side, stdout=side, stderr=side, env={**kept, "SPOT_URL": url, "TERM": "xterm-256color", **environ},
        start_new_session=True,
    )  # fmt: skip
    os.close(side)
    try:
        yield Terminal(process, screen)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(screen)


def test_colours_and_cut_lines(api) -> None:
    api.respond("GET", "/v1/runs", a_page(a_run(next_action={"what": "x" * 200, "at": None})))
    with at_a_terminal(api.url, "ls") as terminal:
        assert terminal.code() == 0
    assert COLOUR.search(terminal.text)
    lines = [COLOUR.sub("", line) for line in terminal.text.splitlines()]
    assert max(map(len, lines)) == 100
    assert lines[1].endswith("…")


def test_no_color(api) -> None:
    api.respond("GET", "/v1/runs", a_page(a_run()))
    with at_a_terminal(api.url, "ls", NO_COLOR="1") as terminal:
        assert terminal.code() == 0
    assert "\x1b" not in terminal.text
    assert "● running" in terminal.text


def test_a_no_at_the_question(api) -> None:
    api.respond("GET", "/v1/runs", a_page(a_run()))
    with at_a_terminal(api.url, "stop") as terminal:
        terminal.read_until("Stop digits-7? [y/N]")
        terminal.type("n\n")
        assert terminal.code() == 130
    assert api.bodies("/v1/runs/digits-7/stop") == []


def test_a_yes_is_taken_and_the_next_command_is_suggested(api) -> None:
    api.respond("GET", "/v1/runs", a_page(a_run()))
    api.respond("POST", "/v1/runs/digits-7/stop", a_run(status="stopping"), 202)
    with at_a_terminal(api.url, "stop") as terminal:
        terminal.read_until("Stop digits-7? [y/N]")
        terminal.type("y\n")
        assert terminal.code() == 0
    assert "next: spot watch digits-7" in terminal.text


def test_watch_keeps_a_picture_up_to_date_until_ctrl_c(api) -> None:
    serve_run(api, a_run(), an_event(1, "started", "Training in local-b."))
    with at_a_terminal(api.url, "watch", "digits-7") as terminal:
        text = COLOUR.sub("", terminal.read_until("the run continues."))
        for part in (
            "digits-7  ● running",
            "Training at step 12,300",
            "▇▇▇▇▇▇▇▇▇▁",
            "preempted",
            "Training in local-b.",
        ):
            assert part in text
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.code() == 130
    assert "Detached from digits-7; it continues. To return: spot watch digits-7" in terminal.text


def test_watch_ends_with_the_last_picture_and_what_to_do_next(api) -> None:
    serve_run(api, a_run(status="failed", status_text="The command exited with code 1. " + "word " * 30))
    with at_a_terminal(api.url, "watch", "digits-7") as terminal:
        assert terminal.code() == 3
    assert "next: spot resume digits-7" in terminal.text
    # Broken between words, not by the terminal.
    assert "word word\r\n" in COLOUR.sub("", terminal.text)


def test_a_log_keeps_its_colours_and_nothing_else(api) -> None:
    log = "\x1b[32mgreen\x1b[0m\ttab\r\n\x1b]0;title\x07\x1b[2J\x1b[?25lplain\n"
    api.respond(
        "GET", "/v1/runs/digits-7/logs",
        {"run_id": "digits-7", "attempt": 1, "text": log, "offset": 0, "next_offset": 9, "size": 9, "complete": True},
    )  # fmt: skip
    with at_a_terminal(api.url, "logs", "digits-7") as terminal:
        assert terminal.code() == 0
    assert "\x1b[32mgreen\x1b[0m" in terminal.text
    assert COLOUR.sub("", terminal.text).replace("\r", "") == "green\ttab\nplain\n"


def test_safe_text_holds_no_control_character() -> None:
    every = "".join(map(chr, range(0x250))) + "\x1b[1;31m\x1b]8;;x\x1b\\\x1bP"
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", safe(every))
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]", safe_log(every))
