"""What goes into the agent's archive: the standard library, the contract and the agent itself.

The agent runs on the training's Python, where nothing of ours is installed; one import too many and it dies there.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.project_files import ROOT, project_files, report

CONTRACT, AGENT = "supervisor.contract", "supervisor.agent"


def imported_modules(tree: ast.Module) -> Iterator[tuple[int, str]]:
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


def is_allowed(module: str, may_use_agent: bool) -> bool:
    """Whether a file of the archive may import this module."""
    if f"{module}.".startswith(f"{CONTRACT}."):
        return True
    if f"{module}.".startswith(f"{AGENT}."):
        return may_use_agent
    return module.partition(".")[0] in sys.stdlib_module_names


def check(root: Path) -> list[str]:
    """Every import that the agent's archive could not satisfy."""
    agent = [(path, True) for path in project_files(root / "supervisor" / "agent", ".py")]
    contract = [(path, False) for path in project_files(root / "supervisor" / "contract", ".py")]
    return [
        f"{path.relative_to(root)}:{line}: {module} is not in the agent's archive"
        for path, may_use_agent in agent + contract
        for line, module in imported_modules(ast.parse(path.read_text(encoding="utf-8")))
        if not is_allowed(module, may_use_agent)
    ]


if __name__ == "__main__":
    sys.exit(report(check(ROOT)))
