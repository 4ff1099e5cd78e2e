"""The first cell of a session, and a whole notebook with it: texts that a platform stores, made from a few values.

Pure, and with no key in it: a ticket is good for one claim. The cell downloads the agent's archive, compares its hash,
and calls `run` of agent/notebook/cell.py in it. The cell of a session without a network has the archive and its job.

The folder of the machine is named by the ticket, so that the same cell finds the same training again. It lies
in the temporary folder of the session, which no platform keeps or publishes: pass and nonce are in it.
"""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any, Dict, List

_CELL = """\
# Spot Supervisor: {title}.
# Run this cell. It starts the training beside the notebook; running it again only shows how it goes.
import hashlib, os, tempfile, time, urllib.request, zipfile

SUPERVISOR = {url}
TICKET = {ticket}  # good for one session
SHA256 = {sha256}  # of the agent, which is downloaded now
FOLDER = os.path.join(tempfile.gettempdir(), {folder})
os.makedirs(FOLDER, mode=0o700, exist_ok=True)
agent, content, problem = os.path.join(FOLDER, "agent.pyz"), b"", ""
if os.path.exists(agent):
    with open(agent, "rb") as source:
        content = source.read()
for pause_s in (0, 1, 5, 15):
    if hashlib.sha256(content).hexdigest() == SHA256:
        break
    time.sleep(pause_s)
    try:
        with urllib.request.urlopen(SUPERVISOR + "/v1/door/agent.pyz", timeout=30) as answer:
            content, problem = answer.read(), "the agent there is another one. Copy a new cell"
    except Exception as error:
        problem = "%s. The session has no network to it; is the internet of the notebook off?" % error
if hashlib.sha256(content).hexdigest() == SHA256:
    with open(agent + ".new", "wb") as target:
        target.write(content)
    os.replace(agent + ".new", agent)
    spot = {{}}
    exec(zipfile.ZipFile(agent).read("supervisor/agent/notebook/cell.py"), spot)
    spot["run"](agent, ["--url", SUPERVISOR], FOLDER, TICKET)
else:
    print("spot: nothing was started: %s: %s" % (SUPERVISOR, problem))
"""

_CELL_APART = """\
# Spot Supervisor: {title}.
# This session has no network. Everything that it needs is here; what it has made is the output of this version.
import base64, os, tempfile, zipfile

FOLDER = os.path.join(tempfile.gettempdir(), {folder})
AGENT = {agent}
PARCEL = {parcel}
os.makedirs(FOLDER, mode=0o700, exist_ok=True)
agent, parcel = os.path.join(FOLDER, "agent.pyz"), os.path.join(FOLDER, "parcel.json")
for path, text in ((agent, AGENT), (parcel, PARCEL)):
    with open(path + ".new", "wb") as target:
        target.write(base64.b64decode(text))
    os.replace(path + ".new", path)
spot = {{}}
exec(zipfile.ZipFile(agent).read("supervisor/agent/notebook/cell.py"), spot)
spot["run"](agent, ["--parcel", parcel, "--inputs", {inputs}, "--output", {output}], FOLDER)
"""


def cell_apart(agent: bytes, parcel: bytes, *, inputs: str, output: str, title: str) -> str:
    """The cell of a session without a network. `agent`: the archive. `parcel`: as contract/parcel.py writes it.
    `inputs`: the folder where the platform shows earlier outputs, `output`: the folder that it keeps."""
    return _CELL_APART.format(
        title=_one_line(title),
        folder=_text("spot-" + hashlib.sha256(parcel).hexdigest()[:16]),
        agent=_text(base64.b64encode(agent).decode()),
        parcel=_text(base64.b64encode(parcel).decode()),
        inputs=_text(inputs),
        output=_text(output),
    )


def cell(url: str, ticket: str, sha256: str, title: str = "one session of a run") -> str:
    """The cell of a session that claims its job. `url`: of the supervisor. `sha256`: of the archive that it serves
    as /v1/door/agent.pyz, in hexadecimal. `title`: for people, one line."""
    return _CELL.format(
        title=_one_line(title),
        url=_text(url.rstrip("/")),
        ticket=_text(ticket),
        sha256=_text(sha256),
        folder=_text("spot-" + hashlib.sha256(ticket.encode()).hexdigest()[:16]),
    )


def notebook(source: str, title: str, text: str = "") -> str:
    """A Jupyter notebook (nbformat 4.5) with this cell. `title` and `text` stand above it, as Markdown."""
    words: List[Dict[str, Any]] = [
        {"cell_type": "markdown", "id": "spot-title", "metadata": {}, "source": _lines("# %s\n\n%s" % (title, text))},
        {
            "cell_type": "code",
            "id": "spot-cell",
            "metadata": {},
            "source": _lines(source),
            "execution_count": None,
            "outputs": [],
        },
    ]
    about = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return json.dumps({"cells": words, "metadata": about, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"


def _lines(text: str) -> List[str]:
    return text.strip().splitlines(keepends=True)


def _text(value: str) -> str:
    """As a string of Python, in ASCII: JSON's is one too."""
    return json.dumps(value)


def _one_line(text: str) -> str:
    return " ".join(text.split())
