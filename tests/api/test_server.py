"""The listening socket and its connections."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from supervisor.api import server
from supervisor.domain.errors import SettingsRefused
from tests.services.bed import Bed


def test_responses_do_not_wait_for_each_other() -> None:
    """With Nagle's delay on, the body of every answer on a kept connection came 40 ms after its head."""

    async def accepted() -> int:
        seen: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def connected(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            seen.set_result(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listener = server.bind("127.0.0.1", 0)
        async with await asyncio.start_server(connected, sock=listener):
            with socket.create_connection(listener.getsockname()[:2]):
                return await seen

    assert asyncio.run(accepted()) == 1


def test_a_port_in_use_is_refused_with_advice() -> None:
    with server.bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingsRefused, match=f"127.0.0.1:{port}.*--port"):
            server.bind("127.0.0.1", port)


def test_slow_work_sees_that_the_server_ends(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[server._Server] = []

    class Known(server._Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            made.append(self)
            await super().startup(sockets)

    monkeypatch.setattr(server, "_Server", Known)
    started = threading.Event()
    with server.bind("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, args=(bed.services, listener, started.set))
        thread.start()
        assert started.wait(30)
        assert not bed.parts.closing.is_set()
        made[0].should_exit = True
        thread.join(30)
    assert not thread.is_alive()
    assert bed.parts.closing.is_set()
