"""A stand-in for Apptainer, which cannot be installed where the tests run: it checks its words strictly.

    apptainer --version
    apptainer exec [--nv] [--bind PATH]... IMAGE WORD...

As Apptainer does without a terminal, it runs the command as a child and passes each signal on to it, but SIGCHLD. Every
path among the command's words must be below a bound folder. Its own words are added to IMAGE.words, a line of JSON.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

NOT_PASSED = (signal.SIGCHLD, signal.SIGKILL, signal.SIGSTOP, signal.SIGURG)
HERE = (sys.prefix, sys.base_prefix, "/usr", "/bin")  # what an image would have: Python, wherever the tests' own lies


def write(folder: Path) -> tuple[Path, Path]:
    """(the program, an image file)"""
    program, image = folder / "apptainer", folder / "train.sif"
    program.write_text(f'#!/bin/bash\nexec {sys.executable} -E {__file__} "$@"\n')
    program.chmod(0o700)
    image.write_text("an image\n")
    return program, image


def words_given(image: Path) -> list[list[str]]:
    return [json.loads(line) for line in Path(f"{image}.words").read_text().splitlines()]


def main(words: list[str]) -> int:
    if words == ["--version"]:
        sys.stdout.write("apptainer version 1.3.4\n")
        return 0
    given, binds = list(words), []
    assert words.pop(0) == "exec", given
    while words[0].startswith("-"):
        option = words.pop(0)
        assert option in ("--nv", "--bind"), f"unknown flag: {option}"
        if option == "--bind":
            binds.append(words.pop(0))
            assert not set(":,") & set(binds[-1]), binds
            assert os.path.isabs(binds[-1]), binds
            assert os.path.isdir(binds[-1]), f"mount source {binds[-1]} doesn't exist"
    image, *command = words
    assert os.path.isfile(image), f"could not open image {image}"
    for word in command:
        inside = any(Path(word).is_relative_to(bind) for bind in binds)
        ours = any(Path(word).is_relative_to(folder) for folder in HERE)
        assert inside or ours or not word.startswith("/"), f"{word} is not in the container"
    assert os.environ["PYTHONNOUSERSITE"] == "1"
    assert not {"PYTHONPATH", "PYTHONHOME"} & set(os.environ), "the Python of the image would use the node's packages"
    with open(f"{image}.words", "a") as target:
        target.write(json.dumps(given) + "\n")
    child: list[subprocess.Popen[bytes]] = []
    for number in set(signal.Signals) - set(NOT_PASSED):
        signal.signal(number, lambda number, frame: child[0].send_signal(number) if child else None)
    child.append(subprocess.Popen(command))
    code = child[0].wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
