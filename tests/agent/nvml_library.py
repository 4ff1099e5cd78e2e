"""The C compiler's part: fake_nvml.c and fake_cuda.c as the libraries that the agent loads by their names."""

import shutil
import subprocess
from pathlib import Path

from tests.components import require_component

NAME = "libnvidia-ml.so.1"
CUDA = "libcuda.so.1"


def build(folder: Path, name: str = NAME) -> Path:
    """The library in `folder`; with LD_LIBRARY_PATH set to that folder an agent finds it."""
    compiler = shutil.which("cc")
    require_component("a C compiler", compiler is not None, "install gcc or clang")
    assert compiler is not None
    source, target = Path(__file__).with_name("fake_nvml.c" if name == NAME else "fake_cuda.c"), folder / name
    command = [compiler, "-shared", "-fPIC", "-Wall", "-o", str(target), str(source)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return target
