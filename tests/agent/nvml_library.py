"""The C compiler's part: fake_nvml.c as the library that the agent loads by its name."""

import shutil
import subprocess
from pathlib import Path

from tests.components import require_component

NAME = "libnvidia-ml.so.1"


def build(folder: Path) -> Path:
    """The library in `folder`; with LD_LIBRARY_PATH set to that folder an agent finds it."""
    compiler = shutil.which("cc")
    require_component("a C compiler", compiler is not None, "install gcc or clang")
    assert compiler is not None
    source, target = Path(__file__).with_name("fake_nvml.c"), folder / NAME
    command = [compiler, "-shared", "-fPIC", "-Wall", "-o", str(target), str(source)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return target
