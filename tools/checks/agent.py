"""The agent's archive holds the standard library, the contract, the host and the agent, and imports nothing else.

The agent runs on the training's Python, where nothing of ours is installed: another import would end it there.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.project_files import project_files

ROOMS = ("contract", "host", "agent")  # each may import itself and those before it


def check(root: Path) -> list[str]:
    """Every import that the archive cannot satisfy."""
    return [
        f"{path.relative_to(root)}:{line}: {module} is not in the agent's archive"
        for number, room in enumerate(ROOMS, start=1)
        for path in project_files(root / "supervisor" / room, ".py")
        for line, module in _imported_modules(ast.parse(path.read_text(encoding="utf-8")))
        if not _is_allowed(module, ROOMS[:number])
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


def _is_allowed(module: str, rooms: tuple[str, ...]) -> bool:
    if any(f"{module}.".startswith(f"supervisor.{room}.") for room in rooms):
        return True
    return module.partition(".")[0] in sys.stdlib_module_names
