"""What of ours is in a Kaggle notebook: its slug, a first line that says whose machine it is, and one cell. Pure.

Each launch has a private notebook of its own, and each push makes one version of it: the first line says which. So a
notebook that was edited by hand has more versions than that, and our session is still asked for by its number.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

MARK = "spot-"
MOST_CHARS = 50  # of a title, which the slug is made of
HEADER = "# spot-supervisor: "
TRACE = "supervisor/agent/notebook/cell.py"  # of contract/notebook.py, which puts it into every cell
NOTHING = "spot: nothing was started: "  # of contract/notebook.py


@dataclass(frozen=True, slots=True)
class Label:
    """Whose machine it is. `pushed_at`: epoch seconds by the clock of the supervisor. `push`: the version. `apart`: its
    session has no internet, and its work is the output of its version."""

    name: str
    zone: str
    shape: str
    supervisor_id: str
    run_id: str
    launch_id: str
    pushed_at: float
    push: int = 1
    apart: bool = False

    def is_launch(self, supervisor_id: str, run_id: str, launch_id: str) -> bool:
        return (self.supervisor_id, self.run_id, self.launch_id) == (supervisor_id, run_id, launch_id)


_NAMES = tuple(field.name for field in fields(Label))


def slug_of(name: str) -> str:
    """Of the machine with this name. It is its own title, so that Kaggle derives the same slug from it."""
    slug = name if name.startswith(MARK) else MARK + name
    if len(slug) <= MOST_CHARS:
        return slug
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    return f"{slug[: MOST_CHARS - 13].rstrip('-')}-{digest}"


def version_label(number: int) -> str:
    """As the API expects it: a plain number is 404 (kaggle-cli, `_kernel_version_label`)."""
    return f"v{number}"


def notebook(label: Label, cell: str) -> str:
    """The source of a notebook with this one cell."""
    first = HEADER + json.dumps(asdict(label), sort_keys=True, ensure_ascii=True)
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    text = f"{first}\n{cell}"
    code: dict[str, Any] = {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": [], "source": text}
    return json.dumps({"cells": [code], "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 4})


def reason_in(log: str) -> str:
    """Why the cell has started nothing; "" = it does not say so."""
    match = re.search(re.escape(NOTHING) + ".*", log)
    return match[0].removeprefix(NOTHING) if match else ""


def code_of(source: str) -> str:
    """All code of a notebook. "" = it is none."""
    try:
        cells = json.loads(source)["cells"]
        parts = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
        return "\n".join(part if isinstance(part, str) else "".join(part) for part in parts)
    except (ValueError, KeyError, TypeError):
        return ""


def is_from_us(source: str) -> bool:
    """The cell of a supervisor is in it, whatever its first line says."""
    code = code_of(source)
    return HEADER.strip() in code or TRACE in code


def label_in(source: str) -> Label | None:
    """None = it is no notebook of a supervisor, or somebody has edited its first line."""
    first = code_of(source).partition("\n")[0]
    if not first.startswith(HEADER):
        return None
    try:
        values: Mapping[str, Any] = json.loads(first.removeprefix(HEADER))
        label = Label(**{name: values[name] for name in _NAMES if name in values})
    except (ValueError, KeyError, TypeError):
        return None
    texts = (label.name, label.zone, label.shape, label.supervisor_id, label.run_id, label.launch_id)
    is_sound = all(isinstance(text, str) for text in texts) and isinstance(label.push, int)
    is_sound = is_sound and isinstance(label.pushed_at, int | float)
    return label if is_sound and label.apart in (True, False) else None
