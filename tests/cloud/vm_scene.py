"""What a sandboxed machine is like: the files that the stubs read, the image, and the tools on its PATH."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.cloud.web import Response

STUBS = Path(__file__).with_name("stubs")
# What the start-up script may use of Container-Optimized OS. Neither Python nor jq is there.
TOOLS = (
    "bash", "base64", "cat", "chmod", "cp", "curl", "grep", "gzip", "head", "ln", "ls", "mkdir", "mkfifo", "readlink",
    "rm", "rmdir", "sed", "sh", "sha256sum", "tail", "timeout", "touch", "wc",
)  # fmt: skip
PRETENDED = ("docker", "mount", "mdadm", "blkid", "poweroff", "systemctl", "sleep")
IMAGE_TOOLS = ("cat", "env", "ls", "sh", "sleep")
_OLD_PYTHON = '#!/bin/sh\n[ "$1" = --version ] || exit 1\necho Python {version}\n'


@dataclass(frozen=True)
class Scene:
    """`cards`: how many GPUs respond; None = as many as its metadata promises. `driver`, `pulls`: how installing the
    driver and pulling end, one time after the other, the last for ever: ok, or words. `refusal`: `CODE words` with
    which docker run ends. `python`: of the image: "" = none, a version = that old one, None = that of the tests.
    `workdir`: the files of the image's WORKDIR, path -> text; None = the image names none, so it is /.
    `disks`: device name -> the file that is the disk. `cos`: False = no cos-extensions, and an installed driver.
    `stumbles`: part of a path, and what the metadata server does at the next request for it (MetadataFake.fail).
    `hurry`: by how much the script's pauses are divided."""

    cards: int | None = None
    driver: tuple[str, ...] = ("ok",)
    pulls: tuple[str, ...] = ("ok",)
    refusal: str = ""
    python: str | None = None
    image_env: Mapping[str, str] = field(default_factory=dict)
    workdir: Mapping[str, str] | None = field(default_factory=dict)
    disks: Mapping[str, Path] = field(default_factory=dict)
    blkid: str = ""
    lspci: str = "00:04.0 3D controller: NVIDIA Corporation TU104GL [Tesla T4] (rev a1)"
    dmesg: str = ""
    cos: bool = True
    stumbles: tuple[tuple[str, Response | Exception], ...] = ()
    hurry: int = 20

    def lay_out(self, folder: Path, promised: int) -> None:
        """`folder`: of the machine. Files of an earlier boot are written again, its disks are kept."""
        stub, tools = folder / "stub", folder / "bin"
        for path in (stub / "calls", stub / "home", tools, folder / "image", folder / "root" / "dev"):
            path.mkdir(parents=True, exist_ok=True)
        told = {
            "cards": str(promised if self.cards is None else self.cards),
            "driver": "\n".join(self.driver),
            "pulls": "\n".join(self.pulls),
            "refusal": self.refusal,
            "blkid": self.blkid,
            "lspci": self.lspci,
            "dmesg": self.dmesg,
            "hurry": str(self.hurry),
        }
        for name, text in told.items():
            (stub / name).write_text(text + "\n" * bool(text))
        self._lay_out_tools(tools)
        self._lay_out_image(folder / "image", stub)
        certificates = folder / "root" / "etc" / "ssl" / "certs" / "ca-certificates.crt"
        certificates.parent.mkdir(parents=True, exist_ok=True)
        certificates.write_text("of the host\n")
        by_id = folder / "root" / "dev" / "disk" / "by-id"
        by_id.mkdir(parents=True, exist_ok=True)
        for name, disk in self.disks.items():
            disk.touch()
            _link(by_id / f"google-{name}", disk)

    def _lay_out_tools(self, tools: Path) -> None:
        for name in TOOLS:
            _link(tools / name, _real(name))
        for name in PRETENDED:
            _link(tools / name, STUBS / f"{name}.sh")
        _link(tools / "sync", _real("true"))  # the disk of this computer has other work
        for name in ("lspci", "dmesg"):
            _link(tools / name, STUBS / "print_file.sh")
        for name in ("mkfs.ext4", "mkfs.xfs"):
            _link(tools / name, STUBS / "mkfs.sh")
        driver = "cos-extensions" if self.cos else "nvidia-smi"
        _link(tools / driver, STUBS / f"{driver}.sh")

    def _lay_out_image(self, image: Path, stub: Path) -> None:
        for name in IMAGE_TOOLS:
            _link(image / name, _real(name))
        path = str(image)
        if self.python is None:
            path += ":/usr/bin:/bin"
            _program(image / "python3", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        elif self.python:
            _program(image / "python3", _OLD_PYTHON.format(version=self.python))
        variables = {"PATH": path, **self.image_env}
        (stub / "image_env").write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
        workspace = image / "workspace"
        workspace.mkdir(exist_ok=True)
        for name, text in (self.workdir or {}).items():
            path_in_image = workspace / name
            path_in_image.parent.mkdir(parents=True, exist_ok=True)
            path_in_image.write_text(text)
        (stub / "workdir").write_text("/" if self.workdir is None else str(workspace))


def _link(path: Path, target: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def _program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _real(name: str) -> Path:
    found = shutil.which(name)
    assert found is not None, f"{name} is not on this computer"
    return Path(found)
