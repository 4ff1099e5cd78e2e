"""The page of the experiment tracker, as trackers print it when a run begins: found in the first lines of the log.

Only addresses that trackers themselves print are taken; a link to some documentation is none. Parameters that look like
keys lose their value, whoever's they are.
"""

from __future__ import annotations

import re
from typing import Optional

_REST = r"[^\s\"'<>)\]}]*"
_PAGE = re.compile(
    "|".join(
        (
            r"https?://(?:[\w-]+\.)*wandb\.ai/[\w.%@-]+/[\w.%@-]+/runs/" + _REST,
            r"https?://[^\s/]+(?:/[\w.%-]+)*/#/experiments/\d+/runs/" + _REST,  # MLflow
            r"https?://[^\s/]+/ml/experiments/\d+/runs/" + _REST,  # MLflow on Databricks
            r"https?://(?:www\.)?comet\.(?:com|ml)/[\w.%-]+/[\w.%-]+/[0-9a-f]{32}" + _REST,
            r"https?://(?:app|scale)\.neptune\.ai/[\w.%-]+/[\w.%-]+/(?:e|runs|-/run)/" + _REST,
            r"https?://huggingface\.co/spaces/[\w.%-]+/" + _REST,  # Trackio
            r"https?://[\w-]+\.hf\.space" + _REST,  # the same
        )
    )
)
_OWN_SERVER = re.compile(r"https?://[^\s/]+/[\w.%@-]+/[\w.%@-]+/runs/" + _REST)  # Weights & Biases
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_KEY = re.compile(r"([?&#][^=&#]*(?:key|token|secret|passw|auth|sig)[^=&#]*=)[^&#]*", re.IGNORECASE)
_USER = re.compile(r"^(https?://)[^/@]*@")
_MASK = re.compile(r"\[secret (\w+)\]")
MAX_CHARS = 512


def find_tracker(line: str) -> Optional[str]:
    """The address of the tracker's page of this run; None when this line tells none. The line is masked already:
    what is cut off an address could keep a value in it from being found."""
    plain = _MASK.sub(r"masked-\1", _COLOUR.sub("", line))
    found = _PAGE.search(plain)
    if found is None and "wandb" in plain.lower():
        found = _OWN_SERVER.search(plain)
    if found is None:
        return None
    page = _KEY.sub(r"\1removed", _USER.sub(r"\1", found.group().rstrip(".,;:!")))
    return page[:MAX_CHARS]
