"""The demo's output: plain lines with a timestamp, in color at a terminal.

Nothing is decided here. Texts of the supervisor (sentences, events) are shown as its API returns them.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import time

WIDTH = 118
STAMP = "%H:%M:%S"
INDENT = " " * 10  # as wide as a timestamp
COLORS = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
STATUS_COLORS = {"running": "green", "finishing": "green", "completed": "green", "failed": "red"}


class Screen:
    """Lines to standard output. Used by one thread."""

    def __init__(self) -> None:
        self.person = sys.stdout.isatty()  # a person watches
        self._colors = self.person and not os.environ.get("NO_COLOR")
        columns = shutil.get_terminal_size((WIDTH, 25)).columns if self.person else WIDTH
        self._width = max(60, min(columns, WIDTH))

    def title(self, text: str) -> None:
        self._line(text, "bold", time.strftime(STAMP))

    def detail(self, text: str) -> None:
        """More of the line above, without a timestamp."""
        self._line(text, "dim", "")

    def disaster(self, text: str) -> None:
        """`1/5 preemption with 3 s notice`, set apart by an empty line."""
        print()
        self._line(text, "yellow", time.strftime(STAMP))

    def event(self, text: str) -> None:
        """One line of the run's history."""
        self._line(text, "dim", time.strftime(STAMP), "  · ")

    def sentence(self, status: str, text: str) -> None:
        """The run's own sentence, when it changed."""
        self._line(text, STATUS_COLORS.get(status, "cyan"), time.strftime(STAMP), f"  {status}: ")

    def figures(self, text: str) -> None:
        self._line(text, "green", time.strftime(STAMP), "  = ")

    def problem(self, text: str) -> None:
        self._line(text, "red", time.strftime(STAMP))

    def plain(self, text: str) -> None:
        print(text, flush=True)

    def _line(self, text: str, color: str, stamp: str, mark: str = "") -> None:
        lines = textwrap.wrap(
            mark + " ".join(text.split()), self._width - len(INDENT), subsequent_indent="    ", break_on_hyphens=False
        )
        for number, line in enumerate(lines or [""]):
            shown = f"\x1b[{COLORS[color]}m{line}\x1b[0m" if self._colors else line
            print((f"{stamp:<{len(INDENT)}}" if number == 0 else INDENT) + shown, flush=True)
