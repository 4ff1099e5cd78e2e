"""A session of a notebook service that really runs a notebook's source, with the platform's paths and variables.

The paths of the platform (/kaggle/working, /kaggle/input, /content) are folders of this machine: the source is written
with them in their place, and TMPDIR is a folder too. It ends as the real ones do: without any signal, all processes at
once, at its cap or when somebody ends it; on Kaggle also when the source has come to its end. Cards are those that a
stand-in of nvidia-smi names. `network` False: not even loopback answers.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.agent.machine_rig import marked
from tests.components import require_component
from tests.waiting import wait_for

SESSION = "352993764"
SMI = """#!{python} -IS
import sys
fields = next(word.split("=", 1)[1].split(",") for word in sys.argv if word.startswith("--query-gpu="))
for number, name in enumerate({cards!r}):
    known = {{"index": str(number), "uuid": "GPU-%d" % number, "name": name, "driver_version": "550.90.07"}}
    print(", ".join(known.get(field, "[N/A]") for field in fields))
"""


def kaggle_variables(session: str = SESSION, batch: bool = True) -> dict[str, str]:
    return {
        "KAGGLE_KERNEL_RUN_TYPE": "Batch" if batch else "Interactive",
        "KAGGLE_CONTAINER_NAME": f"kaggle_QLKaLNVAIohcv9mw-{session}-webtier",
        "KAGGLE_URL_BASE": "https://www.kaggle.com",
        "KAGGLE_DOCKER_IMAGE": "gcr.io/kaggle-private-byod/python@sha256:" + "0" * 64,
        "KAGGLE_USER_SECRETS_TOKEN": "a-token-of-the-platform",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    }


def colab_variables() -> dict[str, str]:
    return {
        "COLAB_RELEASE_TAG": "release-colab_20261101-060000",
        "COLAB_GPU": "1",
        "COLAB_JUPYTER_TOKEN": "a-token-of-the-platform",
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    }


class NotebookMachine:
    """`root`: an empty folder. `platform`: kaggle or colab. `gpus`: names of its cards. `env`: more variables. Close
    it: nothing of it survives its test."""

    def __init__(
        self,
        root: Path,
        platform: str = "kaggle",
        *,
        session: str = SESSION,
        gpus: Sequence[str] = (),
        network: bool = True,
        python: str = sys.executable,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.platform, self.python, self.network = platform, python, network
        self.working, self.input, self.tmp = root / "working", root / "input", root / "tmp"
        self._marker, self._root = f"NOTEBOOK_MACHINE={uuid.uuid4().hex}", root
        for folder in (self.working, self.input, self.tmp, root / "home", root / "bin"):
            folder.mkdir(parents=True, exist_ok=True)
        if gpus:
            smi = root / "bin" / "nvidia-smi"
            smi.write_text(SMI.format(python=sys.executable, cards=list(gpus)))
            smi.chmod(0o755)
        name, _, value = self._marker.partition("=")
        self.env = {
            "PATH": f"{root / 'bin'}:{os.environ['PATH']}",
            "HOME": str(root / "home"),
            "TMPDIR": str(self.tmp),
            "LANG": "C.UTF-8",
            name: value,
            **(kaggle_variables(session) if platform == "kaggle" else colab_variables()),
            **(env or {}),
        }
        self._cell: subprocess.Popen[bytes] | None = None
        self._cells = 0
        self._cap: threading.Timer | None = None

    # --- its life -------------------------------------------------------------------------------------------------

    def start(self, source: str, cap_s: float | None = None) -> None:
        """Run this source, as a script or as a cell; again in the same session too. `cap_s`: the session ends so much
        later, whatever runs."""
        self._cells += 1
        path = self._root / f"cell-{self._cells}.py"
        path.write_text(self.localized(source))
        prefix: list[str] = []
        if not self.network:
            require_component("unshare", shutil.which("unshare") is not None, "apt-get install util-linux")
            prefix = ["unshare", "--map-root-user", "--net"]
        with (self._root / "output.log").open("ab") as output:
            self._cell = subprocess.Popen(
                [*prefix, self.python, str(path)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.working,
                env=self.env,
                start_new_session=True,
            )
        if cap_s is not None:
            self._cap = threading.Timer(cap_s, self.kill)
            self._cap.daemon = True
            self._cap.start()

    def localized(self, source: str) -> str:
        """With this machine's folders in the place of the platform's paths."""
        for path, folder in (("/kaggle/working", self.working), ("/kaggle/input", self.input)):
            source = source.replace(path, str(folder))
        return source.replace('"/content', f'"{self.working}')

    def interrupt(self) -> None:
        """As the stop button of the cell: Jupyter interrupts the whole process group of the kernel."""
        assert self._cell is not None
        os.killpg(self._cell.pid, signal.SIGINT)

    def end_kernel(self) -> None:
        """The kernel is killed; the machine stays."""
        assert self._cell is not None
        self._cell.kill()
        self._cell.wait()

    def kill(self) -> None:
        """The session ends: every process, at once, without a signal that anyone could see."""
        wait_for(lambda: not self._kill_all(), what="the end of the session")
        if self._cell is not None:
            self._cell.wait()

    def _kill_all(self) -> list[int]:
        pids = marked(self._marker)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return pids

    def close(self) -> None:
        if self._cap is not None:
            self._cap.cancel()
        self.kill()

    # --- what can be seen -----------------------------------------------------------------------------------------

    @property
    def exit_code(self) -> int | None:
        """Of the newest source; None while it runs."""
        return None if self._cell is None else self._cell.poll()

    @property
    def alive(self) -> bool:
        """The session goes on. On Kaggle it ends with its source, and everything in it with it."""
        if self.platform == "kaggle" and self.exit_code is not None:
            self.kill()
            return False
        return bool(marked(self._marker))

    def words(self) -> str:
        """Of all its processes: what every user of the machine can read."""
        return "\n".join(Path(f"/proc/{pid}/cmdline").read_bytes().decode() for pid in marked(self._marker))

    def ended(self, deadline_s: float = 60) -> str:
        """The output, once the newest source has come to its end."""
        wait_for(lambda: self.exit_code is not None, deadline_s, f"the end of the cell:\n{self.output}")
        return self.output

    @property
    def output(self) -> str:
        path = self._root / "output.log"
        return path.read_text() if path.exists() else ""

    def folder(self) -> Path:
        """Of the machine that the newest cell has made."""
        folders = [path for path in self.tmp.glob("spot-*") if path.is_dir()]
        return max(folders, key=lambda path: path.stat().st_ctime)
