"""Connections to hosts by SSH: one is kept open for each host, and each command has a limit of time.

The library is asynchronous, so its event loop runs in a thread of its own inside this file; callers block. A command is
words without any character that a shell would interpret; everything else goes through standard input. The host's key
must be known already. A connection that is lost in the middle of a command says nothing about the command.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import asyncssh

from supervisor.domain.texts import clause

CONNECT_S = 15.0
SESSIONS = 8  # at the same time on one connection: sshd allows 10 (MaxSessions)
KEEPALIVE_S, KEEPALIVES = 15.0, 2  # a host without a response for half a minute is disconnected
ENDED = "the supervisor stops"
WORD = re.compile(r"[A-Za-z0-9._/~=-]+")

T = TypeVar("T")
logging.getLogger("asyncssh").setLevel(logging.WARNING)  # else one line for each command


class NotConnected(Exception):
    """There is no connection, so the host was asked nothing. The text says why and what to do."""


class NoResult(Exception):
    """The connection or the time ended in the middle of a command: nothing is known about the command."""


@dataclass(frozen=True, slots=True)
class Completed:
    """`exit_code` None: a signal ended the command."""

    exit_code: int | None
    output: bytes
    errors: bytes


@dataclass(frozen=True, slots=True)
class Access:
    """How the last connection to a host was made. None = not known. `key_known`, `key_accepted`: the host's key, and
    ours. `login_s`: how long it took, `login_at`: when. `ended_at`: epoch seconds; connections of an earlier process
    ended before ours was opened. A process that never connected knows nothing: another one may be connected now."""

    key_known: bool | None = None
    key_accepted: bool | None = None
    login_s: float | None = None
    login_at: float = 0.0
    ended_at: float | None = None


@dataclass(slots=True)
class _Call:
    """`is_sent`: the command may have reached the host."""

    host: str
    command: str
    stdin: bytes
    is_sent: bool = False


class Connections:
    """`config`: the SSH configuration, `known_hosts`: the keys of hosts; None = the user's own files. `waits` False: a
    host whose last connection failed is never waited for; it is connected in the background."""

    def __init__(self, config: Path | None = None, known_hosts: Path | None = None, *, waits: bool = True) -> None:
        self._waits = waits
        self._options: dict[str, Any] = {} if config is None else {"config": [str(config)]}
        if known_hosts is not None:
            self._options["known_hosts"] = str(known_hosts)
        self._open: dict[str, asyncssh.SSHClientConnection] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._sessions: dict[str, asyncio.Semaphore] = {}
        self._commands: Counter[str] = Counter()  # host -> how many are on their way
        self._failed: dict[str, str] = {}  # host -> why its last connection could not be made
        self._reconnecting: dict[str, asyncio.Future[None]] = {}
        self._access: dict[str, Access] = {}
        self._opened_at = time.time()
        self._running: set[asyncio.Task[Any]] = set()
        self._has_ended = False
        self._guard = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, host: str, words: Sequence[str], stdin: bytes, within_s: float) -> Completed:
        """Raises NotConnected, NoResult."""
        return self._wait(self._run(host, words, stdin, within_s))

    def run_all(
        self, commands: Mapping[str, tuple[Sequence[str], bytes]], within_s: float
    ) -> dict[str, Completed | Exception]:
        """`commands`: host -> (words, stdin), all at the same time. A host whose last connection failed is not waited
        for: it is connected in the background, and until then the result is NotConnected."""
        return self._wait(self._run_all(commands, within_s))

    def access(self, host: str) -> Access:
        return self._access.get(host, Access())

    def end_idle(self, host: str) -> None:
        """End the connection on purpose, unless a command uses it now. The next command connects again."""
        self._wait(self._end_idle(host))

    def end(self) -> None:
        """Commands that run get NoResult at once, and no further one begins."""
        self._has_ended = True
        with self._guard:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(lambda: [task.cancel() for task in self._running])

    async def _end_idle(self, host: str) -> None:
        if not self._commands[host]:
            self._drop(host)

    def close(self) -> None:
        with self._guard:
            loop, self._loop = self._loop, None
        if loop is not None:
            with suppress(TimeoutError):
                asyncio.run_coroutine_threadsafe(self._close_all(), loop).result(CONNECT_S)
            loop.call_soon_threadsafe(loop.stop)

    async def _run_all(
        self, commands: Mapping[str, tuple[Sequence[str], bytes]], within_s: float
    ) -> dict[str, Completed | Exception]:
        async def result_of(host: str, words: Sequence[str], stdin: bytes) -> Completed | Exception:
            try:
                self._refuse_failed(host)
                return await self._run(host, words, stdin, within_s)
            except (NotConnected, NoResult) as error:
                return error

        results = await asyncio.gather(*(result_of(host, *command) for host, command in commands.items()))
        return dict(zip(commands, results, strict=True))

    def _refuse_failed(self, host: str) -> None:
        """Raises NotConnected where the last connection failed, and makes a new one in the background."""
        if host in self._failed:
            self._reconnect(host)
            raise NotConnected(self._failed[host])

    def _reconnect(self, host: str) -> None:
        async def connect() -> None:
            with suppress(NotConnected):
                await self._connection(host)

        if host not in self._reconnecting:
            task = self._reconnecting[host] = asyncio.ensure_future(connect())
            task.add_done_callback(lambda _: self._reconnecting.pop(host, None))

    async def _run(self, host: str, words: Sequence[str], stdin: bytes, within_s: float) -> Completed:
        if not all(map(WORD.fullmatch, words)):
            raise ValueError(f"a word of {words} needs quotes")
        if self._has_ended:
            raise NotConnected(ENDED)
        if not self._waits:
            self._refuse_failed(host)
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        call = _Call(host, " ".join(words), stdin)
        self._commands[host] += 1
        try:
            async with asyncio.timeout(within_s), self._sessions.setdefault(host, asyncio.Semaphore(SESSIONS)):
                return await self._in_session(call)
        except TimeoutError:
            self._drop(host)  # the next command must not wait behind this one
            text = f"{host} did not respond within {within_s:g} s"
            if call.is_sent:
                raise NoResult(text) from None
            self._failed[host] = text
            raise NotConnected(text) from None
        except asyncio.CancelledError:
            self._drop(host)
            raise NoResult(ENDED) from None
        finally:
            self._running.discard(task)
            self._commands[host] -= 1

    async def _in_session(self, call: _Call) -> Completed:
        host, process = call.host, await self._started(call)
        try:
            with suppress(OSError):  # it ended before it had read everything: its exit code says why
                process.stdin.write(call.stdin)
                process.stdin.write_eof()
            output, errors = await asyncio.gather(process.stdout.read(), process.stderr.read())
            await process.wait_closed()
        except (OSError, asyncssh.Error) as error:
            self._drop(host)
            raise NoResult(f"the connection to {host} was lost: {_reason(error)}") from None
        if process.exit_status is None and process.exit_signal is None:
            self._drop(host)
            raise NoResult(f"the connection to {host} was lost in the middle of a command")
        code = process.exit_status if process.exit_signal is None else None
        return Completed(code, output, errors)

    async def _started(self, call: _Call) -> asyncssh.SSHClientProcess[bytes]:
        """The command on the kept connection, or on a new one where that one is dead. NotConnected."""
        dead: asyncssh.SSHClientConnection | None = None
        while True:
            connection = await self._connection(call.host, dead)
            try:
                call.is_sent = True
                return await connection.create_process(call.command, encoding=None)
            except asyncssh.ChannelOpenError as error:
                call.is_sent = False  # nothing was started
                if dead is not None:
                    raise NotConnected(f"{call.host} opens no session: {_reason(error)}") from None
                dead = connection
            except (OSError, asyncssh.Error) as error:
                self._drop(call.host)
                raise NoResult(f"the connection to {call.host} was lost: {_reason(error)}") from None

    async def _connection(
        self, host: str, dead: asyncssh.SSHClientConnection | None = None
    ) -> asyncssh.SSHClientConnection:
        """The kept one, unless it is `dead`; else a new one. NotConnected."""
        async with self._locks.setdefault(host, asyncio.Lock()):
            kept = self._open.get(host)
            if kept is not None and kept is not dead and not kept.is_closed():
                return kept
            self._drop(host)
            began = time.monotonic()
            try:
                connection = await asyncssh.connect(
                    host,
                    connect_timeout=CONNECT_S,
                    login_timeout=CONNECT_S,
                    keepalive_interval=KEEPALIVE_S,
                    keepalive_count_max=KEEPALIVES,
                    **self._options,
                )
            except (OSError, asyncssh.Error, ValueError) as error:
                self._failed[host] = _no_connection(host, error)
                self._note(host, **_refused(error))
                raise NotConnected(self._failed[host]) from None
            self._failed.pop(host, None)
            self._open[host] = connection
            took_s = time.monotonic() - began
            before = self.access(host).ended_at
            ended_at = self._opened_at if before is None else before
            self._note(host, key_known=True, key_accepted=True, login_s=took_s, login_at=time.time(), ended_at=ended_at)
            return connection

    def _drop(self, host: str) -> None:
        connection = self._open.pop(host, None)
        if connection is not None:
            connection.abort()
            self._note(host, ended_at=time.time())

    def _note(self, host: str, **changed: Any) -> None:
        self._access[host] = replace(self.access(host), **changed)

    async def _close_all(self) -> None:
        """Nothing of this loop is left open: tasks, connections, sockets."""
        tasks = [*self._reconnecting.values()]
        for task in tasks:
            task.cancel()
        connections = list(self._open.values())
        for host in list(self._open):
            self._drop(host)
        await asyncio.gather(*tasks, *(each.wait_closed() for each in connections), return_exceptions=True)
        for _ in range(3):  # the library aborts a connection in a later turn of the loop, and that closes its socket
            await asyncio.sleep(0)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._running_loop()).result()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        with self._guard:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=_serve, args=(self._loop,), name="ssh", daemon=True).start()
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


def _refused(error: Exception) -> dict[str, bool | None]:
    """What this error says of the keys; a host that does not respond says nothing of them."""
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        return {"key_known": False, "key_accepted": None}
    if isinstance(error, asyncssh.PermissionDenied):
        return {"key_known": True, "key_accepted": False}
    return {"key_known": None, "key_accepted": None}


def _no_connection(host: str, error: Exception) -> str:
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        return (
            f"the key of {host} is not the known one: {_reason(error)}. If the host is new or was installed again, "
            f"compare its key and connect once by hand: ssh {host}"
        )
    if isinstance(error, asyncssh.PermissionDenied):
        return f"{host} refuses the login: {_reason(error)}. Try it by hand: ssh -o BatchMode=yes {host} true"
    return f"{host} cannot be reached: {_reason(error)}"


def _reason(error: Exception) -> str:
    text = clause(" ".join(str(error).split())[:200])
    return text or type(error).__name__
