"""What a notebook of Colab runs: the cell that claims one job, the notebook around it, and the same for the client.

The cell has the address of the supervisor, the hash of the agent's archive, and a ticket that is good for one claim. It
has no key and no secret. When its work is over, it gives the runtime back to Colab, because an idle one uses up the
plan; where nothing was claimed, the runtime stays as it was.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from string import Template
from typing import Any

from supervisor.providers.colab.client import STARTED
from supervisor.providers.colab.settings import gpus, has_gpu

NOTEBOOKS = "https://colab.research.google.com/"
NEW_NOTEBOOK = f"{NOTEBOOKS}#create=true"
ROOT = "/content/spot"
_CELL = Template(
    """# Cell 1: claims the job of $run from the supervisor, and trains until the work or the session ends.
import hashlib, json, os, urllib.request, zipfile
url, sha256, ticket, folder = $url, $sha256, $ticket, $folder
archive = urllib.request.urlopen(url + "/v1/door/agent.pyz", timeout=60).read()
assert hashlib.sha256(archive).hexdigest() == sha256, "the supervisor has another version now: copy the cell again"
os.makedirs(folder, exist_ok=True)
with open(folder + "/agent.pyz", "wb") as target:
    target.write(archive)
view = {}
exec(zipfile.ZipFile(folder + "/agent.pyz").read("supervisor/agent/notebook/cell.py"), view)
view["run"](folder + "/agent.pyz", ["--url", url, "--ticket", ticket], folder)
try:
    os.kill(json.load(open(folder + "/agent.json"))["pid"], 0)  # an interrupted cell leaves the training alone
except ProcessLookupError:
    try:
        from google.colab import runtime
        runtime.unassign()  # the work of this session is over, and an idle runtime uses up the plan
    except ImportError:
        pass
except OSError:
    pass  # nothing was claimed: the runtime stays as it was
"""
)
_BACKGROUND = Template(
    """import os, subprocess, sys
os.makedirs(os.path.dirname($log), exist_ok=True)
with open($log, "ab") as log:
    subprocess.Popen(
        [sys.executable, "-c", $code],
        stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
    )
print($started)
"""
)


def in_background(text: str, log: str) -> str:
    """For the client, whose call ends at once: the cell as a process of its own, which outlives the call. `log`: the
    file of what it prints."""
    return _BACKGROUND.substitute(log=repr(log), code=repr(text), started=repr(STARTED))


def wanted(shape: str) -> str:
    """What a person chooses before cell 1; "" = nothing."""
    return f"Runtime > Change runtime type > {gpus(shape)}" if gpus(shape) else ""


def notebook(text: str, run_id: str, shape: str) -> str:
    """An .ipynb (nbformat 4.5) with this one cell. Colab reads the hardware from its metadata."""
    accelerator = "GPU" if has_gpu(shape) else "TPU" if gpus(shape) else ""
    colab = {"provenance": [], **({"gpuType": gpus(shape)} if has_gpu(shape) else {})}
    metadata: dict[str, Any] = {
        "kernelspec": {"name": "python3", "display_name": "Python 3"},
        "language_info": {"name": "python"},
        "colab": colab,
        **({"accelerator": accelerator} if accelerator else {}),
    }
    code = {
        "cell_type": "code",
        "id": "cell-1",
        "metadata": {},
        "execution_count": None,
        "outputs": [],
        "source": text.splitlines(keepends=True),
    }
    words = {"cell_type": "markdown", "id": "words", "metadata": {}, "source": [f"Run cell 1: it works for `{run_id}`."]}
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": [words, code]}, indent=1)


def cell_of(url: str, archive: Path, root: str, ticket: str, name: str, run_id: str) -> str:
    """The cell of this ticket, for the supervisor at `url`, whose agent is this file. `root`: the folder of the
    machines' folders in the session. `name`: of the machine."""
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    words = {"url": url, "sha256": sha256, "ticket": ticket, "folder": f"{root}/{name}"}
    return _CELL.substitute(run=run_id, **{key: repr(word) for key, word in words.items()})
