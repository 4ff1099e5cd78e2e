"""The agent's archive holds the standard library, the contract and the agent itself, and imports nothing else.

The agent runs on the training's Python, where nothing of ours is installed: another import would end it there.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.project_files import project_files

CONTRACT, AGENT = "supervisor.contract", "supervisor.agent"


def check(root: Path) -> list[str]:
    """Every import that the archive cannot satisfy."""
    folders = ((root / "supervisor" / "agent", True), (root / "supervisor" / "contract", False))
    return [
        f"{path.relative_to(root)}:{line}: {module} is not in the agent's archive"
        for folder, may_use_agent in folders
        for path in project_files(folder, ".py")
        for line, module in _imported_modules(ast.parse(path.read_text(encoding="utf-8")))
        if not _is_allowed(module, may_use_agent)
    ]


def _imported_modules(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every import, also inside functions; `from supervisor import b` is `supervisor.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            if module == "supervisor":
                yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, module


def _is_allowed(module: str, may_use_agent: bool) -> bool:
    if f"{module}.".startswith(f"{CONTRACT}."):
        return True
    if f"{module}.".startswith(f"{AGENT}."):
        return may_use_agent
    return module.partition(".")[0] in sys.stdlib_module_names
