"""A provider whose server accepts the connection and never responds, with a real socket, real threads and real time."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from supervisor.domain.machines import MachineListing, MachineRef
from supervisor.ports.provider import ProviderUnavailable
from supervisor.reconciler.fleet import Fleet, Listed
from supervisor.reconciler.observing.observe import Observer
from tests.fakes.clock import FakeClock
from tests.fakes.objectstore import MemoryStore
from tests.fakes.provider import FakeProvider
from tests.waiting import wait_for

BOUND_S = 1.5
PATIENCE_S = 120.0  # of the provider's own client


class Mute:
    """Accepts every connection and sends nothing, until it is closed."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                self.connections.append(self._listener.accept()[0])
            except OSError:
                return

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self.connections:
            connection.close()


class Remote(FakeProvider):
    """A provider whose machines are listed by a server."""

    def __init__(self, port: int) -> None:
        super().__init__(FakeClock(), ("far-a",), "far")
        self._port = port

    def machines(self) -> MachineListing:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_S)
        try:
            connection.request("GET", "/machines")
            connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise ProviderUnavailable(str(error)) from error
        finally:
            connection.close()
        return super().machines()

    def find(self, ref: MachineRef) -> None:
        self.machines()


@pytest.fixture
def mute() -> Iterator[Mute]:
    mute = Mute()
    yield mute
    mute.close()


def fleet_before(mute: Mute, bound_s: float) -> Fleet:
    return Fleet({"near": FakeProvider(FakeClock(), name="near"), "far": Remote(mute.port)}, bound_s=bound_s)


def test_it_costs_one_wait_and_holds_one_connection(mute: Mute) -> None:
    fleet = fleet_before(mute, BOUND_S)
    clock = FakeClock()
    observer = Observer(fleet, MemoryStore(now=clock.now), dict, clock, "s", 30.0)
    took = []
    for _ in range(5):
        began = time.monotonic()
        snapshot = observer.observe()
        took.append(time.monotonic() - began)
        assert snapshot.listings["near"].listing == MachineListing(())
        assert "far has not answered" in snapshot.listings["far"].problem
    assert BOUND_S <= took[0] < PATIENCE_S
    assert max(took[1:]) < BOUND_S, "nobody waits for it again"
    wait_for(lambda: len(mute.connections) == 1, what="the one open request")


def test_a_lookup_is_bounded_too(mute: Mute) -> None:
    fleet = fleet_before(mute, BOUND_S)
    near, far = MachineRef("near", "local-a", "m"), MachineRef("far", "far-a", "m")
    took = []
    for _ in range(3):
        began = time.monotonic()
        answers = fleet.lookups([near, far])
        took.append(time.monotonic() - began)
        assert answers[near] is None
        assert isinstance(answers[far], ProviderUnavailable)
    assert BOUND_S <= took[0] < PATIENCE_S
    assert max(took[1:]) < BOUND_S, "nobody waits for it again"


def test_it_is_read_again_once_the_server_is_back(mute: Mute) -> None:
    fleet = fleet_before(mute, BOUND_S)
    fleet.listings()
    for connection in mute.connections:
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
    listed = wait_for(lambda: isinstance(listing := fleet.listings()["far"], Listed) and listing)
    assert listed.requested_at is not None, "the response to the earlier request"


def test_without_the_bound_the_tick_hangs_with_it(mute: Mute) -> None:
    fleet = fleet_before(mute, PATIENCE_S)
    done = threading.Event()
    thread = threading.Thread(target=lambda: (fleet.listings(), done.set()), daemon=True)
    thread.start()
    wait_for(lambda: mute.connections, what="the request")
    assert not done.wait(2 * BOUND_S)
    for connection in mute.connections:
        connection.close()
    assert done.wait(30)
    thread.join()
