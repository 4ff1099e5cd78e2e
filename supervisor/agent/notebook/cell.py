"""What runs inside the notebook's own kernel: it starts `agent.pyz notebook` and shows its lines.

The cell reads this file out of the archive and calls `run`. So it imports nothing of ours, and leaves nothing in the
kernel. The process has a session of its own: the interrupt of the cell reaches the kernel alone, which passes it on.
Where there is a notebook to draw in, a small table is updated; the lines are there anyway.
"""

from __future__ import annotations

import codecs
import html
import importlib
import json
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from typing import Any, Callable, Dict, Optional, Sequence

DRAW_S = 5.0
LAST_WORDS_S = 20.0
_ROWS = ("run", "state", "step", "metrics", "checkpoint", "note")


def run(agent: str, words: Sequence[str], folder: str, ticket: str = "", python: str = sys.executable) -> None:
    """Until the training of this session has ended, or the cell is interrupted. `agent`: the archive. `words`: after
    `notebook`. `folder`: of the machine. `ticket`: in the environment, because every user of the machine may read the
    words of a process. Raises nothing: a committed notebook counts as failed when a cell does."""
    try:
        process = subprocess.Popen(
            [python, agent, "notebook", *words, "--folder", folder],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "SPOT_TICKET": ticket},
            start_new_session=True,
        )
    except OSError as error:
        say("spot: the agent could not be started: %s" % error)
        return
    assert process.stdout is not None
    draw = drawing(os.path.join(folder, "notebook.json"))
    try:
        follow(process.stdout.fileno(), draw)
    except KeyboardInterrupt:
        with suppress(OSError, KeyboardInterrupt):  # a second interrupt ends the cell without more words
            process.send_signal(signal.SIGINT)
            follow(process.stdout.fileno(), draw, LAST_WORDS_S)
    finally:
        process.stdout.close()
        with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            process.wait(1.0)
        process.returncode = process.returncode or 0  # nobody waits for it any more


def follow(descriptor: int, draw: Callable[[], None], longest_s: Optional[float] = None) -> None:
    """Show what comes, until its end, or until nothing has come for `longest_s`."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while True:
        ready, _, _ = select.select([descriptor], [], [], DRAW_S if longest_s is None else longest_s)
        draw()
        if not ready and longest_s is not None:
            return
        piece = os.read(descriptor, 1 << 16) if ready else None
        if piece == b"":
            return
        if piece:
            sys.stdout.write(decoder.decode(piece))
            sys.stdout.flush()


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def drawing(path: str) -> Callable[[], None]:
    """Draws the state in the file at `path`, again in the same place; nothing where there is no notebook."""
    shown: Dict[str, Any] = {"text": "", "handle": None}

    def draw() -> None:
        if "display" not in shown:  # late: the import of IPython takes its time, and may be interrupted
            shown["display"] = _display()
        display = shown["display"]
        if display is None:
            return
        with suppress(Exception):  # a picture is not worth the cell
            with open(path, encoding="utf-8") as source:
                text = table(json.load(source))
            if text == shown["text"]:
                return
            content = display.HTML(text)
            if shown["handle"] is None:
                shown["handle"] = display.display(content, display_id=True)
            else:
                shown["handle"].update(content)
            shown["text"] = text

    return draw


def _display() -> Any:
    """IPython's display in a kernel that can draw; None elsewhere, as in a script or in a terminal."""
    try:
        shell = importlib.import_module("IPython").get_ipython()
        return None if getattr(shell, "kernel", None) is None else importlib.import_module("IPython.display")
    except Exception:  # noqa: BLE001 - any IPython, or none
        return None


def table(state: Dict[str, Any]) -> str:
    """HTML of the state in notebook.json."""
    step, total = state.get("step_number"), state.get("total")
    bar = ""
    if isinstance(step, int) and isinstance(total, int) and total > 0:
        bar = '<progress max="%d" value="%d" style="width:20em"></progress>' % (total, min(step, total))
    rows = "".join(
        '<tr><td style="text-align:left"><b>%s</b></td><td style="text-align:left">%s</td></tr>'
        % (name, html.escape(str(state[name])))
        for name in _ROWS
        if state.get(name)
    )
    return "<table>%s</table>%s" % (rows, bar)
