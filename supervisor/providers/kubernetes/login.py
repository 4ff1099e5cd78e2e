"""The login program of a kubeconfig, such as kubelogin: one at a time, and never without a limit of time.

lightkube starts it in each request, waits without a limit, and shows everything that it prints. Here a program that
hangs is ended with all its children, so no request leaves a process behind. It gets no terminal, and no setting of the
supervisor. Its contract: "client-go credential plugins" in the documentation of Kubernetes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Generator
from typing import TYPE_CHECKING

import httpx2

if TYPE_CHECKING:
    from lightkube.config.models import UserExec

LOGIN_S = 15.0  # within the deadline of a request
TEXT_CHARS = 300


class LoginFailed(Exception):
    """There is no token. The text says why."""


class Login(httpx2.Auth):
    """Signs requests with a token of the program, and with another one after the cluster refused it. Safe to use from
    every thread."""

    def __init__(self, program: UserExec) -> None:
        self._program = program
        self._lock = threading.Lock()
        self._token = ""

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        token = self._token or self._renewed("")
        request.headers["Authorization"] = f"Bearer {token}"
        response = yield request
        if response.status_code == httpx2.codes.UNAUTHORIZED:
            request.headers["Authorization"] = f"Bearer {self._renewed(token)}"
            yield request

    def _renewed(self, refused: str) -> str:
        """One that is not `refused`; other threads wait for the same run of the program. Raises LoginFailed."""
        if not self._lock.acquire(timeout=LOGIN_S):
            raise LoginFailed(f"{self._program.command} runs for another request")
        try:
            if self._token in ("", refused):
                self._token = _token_of(self._output(), self._program.command)
            return self._token
        finally:
            self._lock.release()

    def _output(self) -> bytes:
        """Raises LoginFailed."""
        name, info = self._program.command, {"apiVersion": self._program.apiVersion, "kind": "ExecCredential"}
        environment = {key: text for key, text in os.environ.items() if not key.startswith("SPOT_")}
        environment |= {variable.name: variable.value for variable in self._program.env or ()}
        environment["KUBERNETES_EXEC_INFO"] = json.dumps({**info, "spec": {"interactive": False}})
        try:
            process = subprocess.Popen(
                [name, *(self._program.args or ())],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise LoginFailed(f"{name} cannot be started: {error.strerror or error}") from None
        with process:
            try:
                output, errors = process.communicate(timeout=LOGIN_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # it has a session of its own
                raise LoginFailed(f"{name} did not end within {LOGIN_S:g} s") from None
        if process.returncode != 0:
            words = " ".join(errors.decode(errors="replace").split())[-TEXT_CHARS:]
            raise LoginFailed(f"{name} ended with {process.returncode}: {words or 'it printed nothing'}")
        return output


def _token_of(output: bytes, name: str) -> str:
    """Raises LoginFailed, without a word of what may be a credential."""
    try:
        token = json.loads(output)["status"]["token"]
    except (ValueError, KeyError, TypeError):
        token = None
    if not isinstance(token, str) or not token:
        raise LoginFailed(f"{name} has printed no token; certificates in place of one are not supported")
    return token
