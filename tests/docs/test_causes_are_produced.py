"""Every cause on the page of causes is one that the code gives an end; so is every word with which an agent leaves.

A cause counts as produced where the code writes it as a value: an argument, a field, the value of a mapping. Where it
is compared, is the key of a mapping, or stands in a group of causes that something is compared with, it is only read.
"""

from __future__ import annotations

import ast
from pathlib import Path

from supervisor.contract import heartbeat
from supervisor.domain.causes import CAUSES, Cause

ROOT = Path(__file__).resolve().parents[2] / "supervisor"
TABLE = ROOT / "domain" / "causes.py"
OLD_RUNNERS = ROOT / "services" / "migration" / "oldhistory.py"  # causes of attempts that another program ended


def is_cause(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Cause"


def produced(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Compare):
        return set()
    if isinstance(node, ast.Dict):
        return set().union(*(produced(value) for value in node.values))
    group = node.elts if isinstance(node, ast.Tuple | ast.Set | ast.List) else []
    if group and all(is_cause(item) or isinstance(item, ast.Starred) for item in group):
        return set()
    below = set().union(*(produced(child) for child in ast.iter_child_nodes(node)))
    return below | {node.attr} if isinstance(node, ast.Attribute) and is_cause(node) else below


def sources() -> list[str]:
    """Those that name a cause."""
    files = sorted(set(ROOT.rglob("*.py")) - {TABLE, OLD_RUNNERS})
    return [text for file in files if "Cause." in (text := file.read_text(encoding="utf-8"))]


def test_every_cause_of_the_table_is_produced() -> None:
    found = set().union(*(produced(ast.parse(text)) for text in sources()))
    rows = {cause for rule in CAUSES for cause in rule.causes}
    assert [cause.value for cause in Cause if cause.name not in found] == []
    assert rows == set(Cause)


def test_a_cause_that_is_only_read_would_be_found() -> None:
    text = """
if end.cause == Cause.EXPIRED or end.cause in (Cause.TIME_LIMIT, Cause.KILLED):
    texts = {Cause.DEADLINE: "The deadline has passed", "key": Cause.BUDGET}
    return End(Cause.STALLED, "why")
"""
    assert produced(ast.parse(text)) == {"BUDGET", "STALLED"}


def test_every_word_of_leaving_is_said_by_an_agent_or_a_start_up_script() -> None:
    agent = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "agent").rglob("*.py"))
    scripts = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "providers").rglob("*.sh"))
    names = {value: name for name, value in vars(heartbeat).items() if isinstance(value, str)}
    silent = [
        word
        for word in heartbeat.LEFT
        if f"heartbeat.{names[word]}" not in agent
        and f"({names[word]}," not in agent
        and f"left = {names[word]}" not in agent
        and f"give_up {word} " not in scripts
    ]
    assert silent == []
