"""The named exceptions to the rules of the house, each with its reason: the one list of them.

A pattern is matched against the path from the project's root; `**` stands for any folders, also none.
"""

import re
from functools import cache
from pathlib import PurePosixPath

Table = tuple[tuple[str, str], ...]

SHORT_FILES: Table = (
    ("**/__main__.py", "a door: it starts what lies beside it"),
    ("supervisor/ports/**", "ports"),
    ("supervisor/api/routes/**", "routes"),
    ("supervisor/dashboard/pages/**", "routes of the dashboard"),
    ("supervisor/domain/**", "nouns: a table or a value each"),
    ("supervisor/**/shapes/**", "tables: the shape of one answer each"),
    ("supervisor/notifiers/**", "an implementation of one small port each"),
    ("tools/**", "a program each"),
)

# Where a vendor may be named. The folder of a provider itself needs no line here.
VENDOR_HOMES: Table = (
    ("supervisor/objectstores/gcs/**", "Google's object store behind the port"),
    ("supervisor/agent/**/gcs*", "the agent's side of that store"),
    ("supervisor/agent/**/google*", "calls of the agent to Google, which the store is made of"),
    ("supervisor/services/migration/**", "the older runner ran on Google alone"),
    ("supervisor/**/examples.json", "recorded answers of a made-up house, not code"),
)


def reason_for(path: PurePosixPath, table: Table) -> str | None:
    """Why a file need not keep a rule; None = it must."""
    return next((reason for pattern, reason in table if _compiled(pattern).fullmatch(str(path))), None)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*/|\*\*|\*)", pattern)
    wild = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*"}
    return re.compile("".join(wild.get(part) or re.escape(part) for part in parts))
