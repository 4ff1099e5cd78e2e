"""The agent as one file, with which a machine is started.

An installed package contains it (`supervisor/_agent.pyz`, put there by the wheel build). A source checkout builds it
from its sources at each call. The same sources give the same bytes: order and times are fixed.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_PACKAGED = _ROOT / "supervisor" / "_agent.pyz"
# Every Python since 2.7 can parse it, so that an old one exits with a message. Exit code 4.
_MAIN = b"""\
import sys

if sys.version_info < (3, 8):
    sys.stderr.write(
        "spot: the agent needs Python 3.8 or newer; this one, %s, is %s\\n"
        % (sys.executable, sys.version.split()[0])
    )
    sys.exit(4)

import gc
import os
import zipimport


def filename(importer, name):
    module = name.rpartition(".")[2] + (os.sep + "__init__.py" if importer.is_package(name) else ".py")
    return os.path.join(importer.archive, importer.prefix + module)


zipimport.zipimporter.get_filename = filename  # Python's own loads each module once more, only for its name
gc.disable()  # imports make no garbage worth a pass, and an operation on a host ends before there is any
if sys.argv[1:2] == ["host"]:
    from supervisor.host.operations import main
else:
    from supervisor.agent.__main__ import main

    gc.freeze()
    gc.enable()
code = main()
sys.stdout.flush()
sys.stderr.flush()
os._exit(code)  # nothing is left to do; to take the modules apart is a tenth of the CPU of a short life
"""
_COMPILE = """\
import gc, sys
gc.disable()
sys.path.insert(0, sys.argv[1])
from supervisor.host.bytecode import compiled
sys.stdout.buffer.write(compiled(sys.stdin.buffer.read()))
"""
_COMPILE_MAX_S = 60.0
_TIME = (1980, 1, 1, 0, 0, 0)


def agent_path(cache: Path) -> Path:
    """The archive to start machines with; built in the folder `cache` if the package contains none. OSError."""
    return _PACKAGED if _PACKAGED.exists() else write_agent(cache / "agent.pyz")


def write_agent(target: Path) -> Path:
    """Build the archive from the sources of this package; a file with the same content is not written again."""
    return _write(target, build_agent())


def with_bytecode(archive: Path, target: Path) -> Path:
    """The archive for machines that run this very Python: with bytecode an agent starts in half the CPU time. Another
    Python ignores the bytecode and uses the sources. Returns `archive` itself if it cannot be read or compiled,
    or its copy cannot be written."""
    try:
        return _write(target, compiled(archive.read_bytes()))
    except (OSError, subprocess.SubprocessError):
        return archive


def compiled(content: bytes) -> bytes:
    """The archive with these bytes, with bytecode, from a process of its own: a compiler leaves 3 MB in the process for
    ever. OSError, SubprocessError."""
    command = [sys.executable, "-I", "-S", "-c", _COMPILE, str(_ROOT)]
    return subprocess.run(command, input=content, capture_output=True, check=True, timeout=_COMPILE_MAX_S).stdout


def _write(target: Path, content: bytes) -> Path:
    if not target.exists() or target.read_bytes() != content:
        target.parent.mkdir(parents=True, exist_ok=True)
        descriptor, draft = tempfile.mkstemp(prefix=".agent-", dir=target.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        Path(draft).chmod(0o644)
        Path(draft).replace(target)
    return target


def build_agent() -> bytes:
    """The zipapp's bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in _entries():
            info = zipfile.ZipInfo(name, _TIME)
            info.external_attr = 0o644 << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return buffer.getvalue()


def _entries() -> Iterator[tuple[str, bytes]]:
    """(name in the archive, content): the contract, the host, the agent, and the package above them."""
    package = _ROOT / "supervisor"
    yield "__main__.py", _MAIN
    yield "supervisor/__init__.py", (package / "__init__.py").read_bytes()
    for room in ("contract", "host", "agent"):
        for path in sorted((package / room).rglob("*.py")):
            yield f"supervisor/{path.relative_to(package).as_posix()}", path.read_bytes()
