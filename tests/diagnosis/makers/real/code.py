"""The user's own code and environment: real errors of real programs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.diagnosis.cases import Expected
from tests.diagnosis.makers.answers import KNOWN_ERROR, NOT_STARTED, USER_ERROR, code, not_
from tests.diagnosis.makers.lives import Life, Live
from tests.diagnosis.makers.real.memory import REPORT

MISSING = code("U5", "certain", "install_module")
CRLF = code("U26", "certain", "fix_line_ends")
SOON = code("GEN5", "likely", "run_smoke")
TEXTS: dict[str, tuple[str, Expected, str]] = {
    "module-missing": ("import timm\n", MISSING, "a module is not installed"),
    "submodule-missing": ("import json.encoders\n", MISSING, "a part of a module does not exist"),
    "name-missing": ("from json import loader\n", SOON, "a module has no such name"),
    "syntax": ("def train(:\n    pass\n", SOON, "a syntax error"),
    "indentation": ("def train():\npass\n", SOON, "an indentation error"),
    "name": ("print(learning_rate)\n", SOON, "an undefined name"),
    "file-missing": ("open('data/train.csv')\n", SOON, "a data file is missing"),
    "permission": ("open('/proc/1/mem_does_not_exist/x', 'w')\n", SOON, "a folder does not exist"),
    "arguments": (
        "import argparse\nargparse.ArgumentParser().parse_args(['--lr'])\n",
        KNOWN_ERROR,
        "argparse exits with 2",
    ),
    "shapes": ("import numpy\nnumpy.ones((3, 4)) @ numpy.ones((5, 6))\n", SOON, "shapes that do not fit"),
    "type": ("len(None)\n", SOON, "a type error"),
    "chinese": ("raise ValueError('标签数量与样本数量不一致')\n", SOON, "an error text in Chinese"),
    "exit-without-text": ("import sys\nsys.exit(3)\n", SOON, "an exit code without a word"),
}
LATER = {
    "key-error": ("raise KeyError('optimizer')\n", "a key error after steps"),
    "assertion": ("assert 0.3 < 0.1, 'loss did not fall'\n", "an assertion after steps"),
    "torn-pickle": (
        ("import pickle\nwhole = pickle.dumps({'w': [1.0] * 1000})\nopen('step-2.pkl', 'wb').write(whole[: len(whole) // 2])\n"
        "pickle.load(open('step-2.pkl', 'rb'))\n"), "a half-written pickle is loaded"),
    "empty-pickle": (
        "import pickle\nopen('step-2.pkl', 'wb').close()\npickle.load(open('step-2.pkl', 'rb'))\n", "an empty pickle is loaded"),
    "torn-npz": (
        ("import numpy\nnumpy.savez('step-2.npz', w=numpy.ones(1000))\nwhole = open('step-2.npz', 'rb').read()\n"
        "open('step-2.npz', 'wb').write(whole[:900])\nnumpy.load('step-2.npz')\n"), "a half-written npz is loaded"),
    "torn-json": ("import json\njson.loads('{\"step\": 12, \"lo')\n", "a half-written JSON file is loaded"),
    "recursion": ("def f(n):\n    return f(n + 1)\nf(0)\n", "endless recursion"),
    "connection-refused": ("import socket\nsocket.create_connection(('127.0.0.1', 9))\n", "a server of the user's is not there"),
    "timeout": ("raise TimeoutError('the data server did not respond within 30 s')\n", "a timeout raised by the code"),
    "chained": ("try:\n    {}['a']\nexcept KeyError as error:\n    raise RuntimeError('the config is incomplete') from error\n",
                "one error raised from another"),
    "thread": (("import threading\ndef work():\n    raise ValueError('worker failed')\n"
               "thread = threading.Thread(target=work)\nthread.start()\nthread.join()\nsys.exit(1)\n"), "an error in a thread"),
    "child": ("import subprocess\nsubprocess.run([sys.executable, '-c', 'raise ValueError(\"bad fold\")'], check=True)\n",
              "an error in a child process"),
    "caught-import": (
        ("try:\n    import apex\nexcept ImportError as error:\n    print('warning:', error, '- using torch instead', flush=True)\n"
        "for step in range(4, 8):\n    spot_progress.report(step)\n    time.sleep(0.1)\nraise KeyError('lr')\n"),
        "a missing module is caught; another error ends the command"),
    "driver-warning": (
        ("print('UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11040).', flush=True)\n"
        "for step in range(4, 8):\n    spot_progress.report(step)\n    time.sleep(0.1)\nraise KeyError('lr')\n"),
        "a warning about the driver; the training goes on on the CPU and ends with another error"),
    "quoted-xid": (
        ("print('see the manual: \"NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\"', flush=True)\n"
        "raise ValueError('unknown optimizer adamx')\n"), "a log that quotes Xid 79"),
    "quoted-oom": (
        ("print('tip: on \"CUDA out of memory\" lower --batch-size', flush=True)\n"
        "raise ValueError('unknown scheduler cosin')\n"), "a help text that quotes the words of a full GPU"),
    "caught-oom": (
        ("for size in (64, 32):\n    try:\n        if size == 64:\n"
        "            raise RuntimeError('CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 15.78 GiB total capacity)')\n"
        "    except RuntimeError as error:\n        print(error, '- retrying with a smaller batch', flush=True)\n"
        "for step in range(4, 8):\n    spot_progress.report(step)\n    time.sleep(0.1)\nraise KeyError('lr')\n"),
        "an out-of-memory error is caught and survived; another error ends the command"),
}  # fmt: skip
TORN = ("torn-pickle", "empty-pickle", "torn-npz")
LOOK_ALIKES = {
    "caught-import": "U5",
    "driver-warning": "U28",
    "quoted-xid": "U22",
    "quoted-oom": "U10",
    "caught-oom": "U10",
}


def shell_script(text: str, *, run: bool = False) -> object:
    """A shell script with Windows line ends, given to bash or started by itself."""

    def command(life: Life) -> list[str]:
        path = Path(life.script("", "train.sh"))
        path.write_bytes(text.replace("\n", "\r\n").encode())
        path.chmod(0o700)
        return [str(path)] if run else ["bash", str(path)]

    return command


def in_venv(life: Life) -> list[str]:
    """A virtual environment of its own without the module."""
    folder = Path(life.script("", "empty")).with_name("venv")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return [str(folder / "bin" / "python"), life.script("import numpy\n")]


def not_executable(life: Life) -> list[str]:
    path = life.script("print('hello')\n")
    os.chmod(path, 0o644)
    return [path]


def no_interpreter(life: Life) -> list[str]:
    path = life.script("#!/usr/bin/python3.99\nprint('hello')\n")
    os.chmod(path, 0o700)
    return [path]


_LATER = tuple(
    Live(name, not_(USER_ERROR, LOOK_ALIKES[name]) if name in LOOK_ALIKES else KNOWN_ERROR if name in TORN else USER_ERROR,
         lambda life, text=text: life.python(REPORT + text), how=how)
    for name, (text, how) in LATER.items()
)  # fmt: skip
_SOON = tuple(
    Live(name, answer, lambda life, text=text: life.python(text), how=how)
    for name, (text, answer, how) in TEXTS.items()
)
CASES = (
    *_SOON,
    *_LATER,
    Live("module-missing-in-venv", MISSING, in_venv, how="the virtual environment has no such module"),
    Live("crlf-bash", CRLF, shell_script("set -e\nif true; then\n  python train.py\nfi\n"), how="bash reads a script with CRLF"),
    Live("crlf-option", CRLF, shell_script("set -euo pipefail\npython train.py\n"), how="an option of set with CRLF"),
    Live("crlf-command", CRLF, shell_script("cd /tmp\npython3 train.py\nexit 1\n"), how="a path with CRLF"),
    Live("crlf-shebang", NOT_STARTED, shell_script("#!/bin/bash\necho hello\n", run=True), how="the interpreter's name ends with CR, which no text shows: the agent reports a missing file"),
    Live("crlf-env", CRLF, shell_script("#!/usr/bin/env bash\necho hello\n", run=True), how="env looks for `bash\\r`"),
    Live("command-missing", NOT_STARTED, lambda life: ["accelerate-launch-x", "train.py"], how="a program that does not exist"),
    Live("command-missing-shell", NOT_STARTED, lambda life: "accelerate-launch-x train.py", how="the same through a shell"),
    Live("interpreter-missing", NOT_STARTED, no_interpreter, how="the script names an interpreter that does not exist"),
    Live("not-executable", NOT_STARTED, not_executable, how="the file may not be executed"),
    Live("workdir-missing", NOT_STARTED, lambda life: life.python("print(1)\n"), how="the working directory does not exist",
         job={"workdir": "/home/user/experiments-7"}),
    Live("conda-missing", NOT_STARTED, lambda life: ["python", "train.py"], how="the conda environment does not exist",
         job={"conda_env": "vision"}),
    Live("exit-127-later", not_(USER_ERROR, "U5"),
         lambda life: life.python(REPORT + "time.sleep(0.5)\nprint('evaluate.sh: not found', flush=True)\nsys.exit(127)\n"),
         how="exit 127 after steps: the command's own exit"),
)  # fmt: skip
