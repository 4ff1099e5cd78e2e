"""The name of a cell: what one leader sweeps, and where a run stays from its first submit on.

`<provider> <scope> <bucket>`: the scope is the provider's word for "the machines that I see" (an account and project;
for machines on a computer, the data folder they live in), the bucket the object store's URL.
"""

from __future__ import annotations


def cell(provider: str, scope: str, bucket: str) -> str:
    return f"{provider} {scope} {bucket}"


def local_scope(name: str) -> str:
    """The scope in the name of a cell of machines on a computer; "" for any other name."""
    words = name.split(" ", 2)
    return words[1] if len(words) == 3 and words[0] == "local" else ""


def alike(one: str, other: str) -> bool:
    """Same provider and same bucket: what a spec can name, and what a resume may not change."""
    return _fixed(one) == _fixed(other)


def _fixed(name: str) -> tuple[str, str]:
    return name.partition(" ")[0], name.rpartition(" ")[2]
