"""What a notebook of Colab runs: the cell that claims one job, the notebook around it, and the same for the client.

The cell itself is contract/notebook's: it has the address of the supervisor, the hash of the agent's archive, and a
ticket. Here follows what Colab alone needs. When the work of the session is over, the runtime is given back, because an
idle one uses up the plan; where nothing was claimed, or the training goes on, it stays as it is.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from string import Template

from supervisor.contract import notebook as notebooks
from supervisor.providers.colab.client import STARTED
from supervisor.providers.colab.settings import gpus, has_gpu

NOTEBOOKS = "https://colab.research.google.com/"
NEW_NOTEBOOK = f"{NOTEBOOKS}#create=true"
LOGS = "/content/spot"
_GIVE_BACK = """
# The work of this session is over: the runtime goes back to Colab.
import json
try:
    os.kill(json.load(open(os.path.join(FOLDER, "agent.json")))["pid"], 0)
except ProcessLookupError:
    try:
        from google.colab import runtime
        runtime.unassign()
    except ImportError:
        pass
except OSError:
    pass  # nothing was claimed here
"""
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


def cell_of(url: str, archive: Path, ticket: str, run_id: str) -> str:
    """The cell of this ticket, for the supervisor at `url`, whose agent is this file."""
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    return notebooks.cell(url, ticket, sha256, f"one session of {run_id}") + _GIVE_BACK


def in_background(text: str, name: str) -> str:
    """For the client, whose call ends at once: the cell as a process of its own, which outlives the call. `name`: of
    the file of what it prints."""
    log = json.dumps(f"{LOGS}/{name}.log")
    return _BACKGROUND.substitute(log=log, code=json.dumps(text), started=json.dumps(STARTED))


def wanted(shape: str) -> str:
    """What a person chooses before cell 1; "" = nothing."""
    return f"Runtime > Change runtime type > {gpus(shape)}" if gpus(shape) else ""


def notebook(text: str, run_id: str, shape: str) -> str:
    """An .ipynb with this cell. Colab reads the hardware from its metadata."""
    made = json.loads(
        notebooks.notebook(text, run_id, "Run the cell below: it trains until the work or the session ends.")
    )
    if has_gpu(shape):
        made["metadata"].update(accelerator="GPU", colab={"gpuType": gpus(shape), "provenance": []})
    elif gpus(shape):
        made["metadata"].update(accelerator="TPU", colab={"provenance": []})
    return json.dumps(made, indent=1) + "\n"
