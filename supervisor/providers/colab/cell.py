"""What a notebook of Colab runs: the cell that claims one job, the notebook around it, and the same for the client.

The cell has the address of the supervisor, the hash of the agent's archive, and a ticket that is good for one claim. It
has no key and no secret. When the work is over, or the claim is refused, it gives the runtime back to Colab, because an
idle one uses up the plan.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from string import Template
from typing import Any

from supervisor.providers.colab.client import STARTED
from supervisor.providers.colab.settings import gpus, has_gpu

NEW_NOTEBOOK = "https://colab.research.google.com/#create=true"
LOG = "/content/spot-$name.log"
_CELL = Template(
    """import hashlib, subprocess, sys, urllib.request
url, sha256, ticket = $url, $sha256, $ticket
archive = urllib.request.urlopen(url + "/v1/door/agent.pyz", timeout=60).read()
if hashlib.sha256(archive).hexdigest() != sha256:
    raise SystemExit("the agent is another one than this cell expects: copy the cell again")
with open("agent.pyz", "wb") as target:
    target.write(archive)
subprocess.run([sys.executable, "agent.pyz", "notebook", "--url", url, "--ticket", ticket])
"""
)
_GIVE_BACK = """
try:
    from google.colab import runtime
    runtime.unassign()  # the session ends with its work
except ImportError:
    pass
"""
_BACKGROUND = Template(
    """import subprocess, sys
with open($log, "ab") as log:
    subprocess.Popen(
        [sys.executable, "-c", $code],
        stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
    )
print($started)
"""
)


def with_return(text: str) -> str:
    """The cell, which gives the runtime back at its end."""
    return text.rstrip("\n") + "\n" + _GIVE_BACK


def in_background(text: str, name: str) -> str:
    """For the client, whose call ends at once: the cell as a process of its own, which outlives the call."""
    log = Template(LOG).substitute(name=name)
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


def cell_of(url: str, archive: Path, ticket: str) -> str:
    """The cell of this ticket, for the supervisor at `url`, whose agent is this file."""
    text = _CELL.substitute(url=repr(url), sha256=repr(hashlib.sha256(archive.read_bytes()).hexdigest()), ticket=repr(ticket))
    return with_return(text)
