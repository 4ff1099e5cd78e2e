"""The queue in front of the one writer."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from supervisor.storage.engine.group import FifoLock
from tests.waiting import wait_for


@contextmanager
def turn(lock: FifoLock, timeout_s: float = 30) -> Iterator[None]:
    lock.acquire(timeout_s)
    try:
        yield
    finally:
        lock.release()


def test_turns_come_in_the_order_of_asking() -> None:
    lock, order = FifoLock(), []
    threads = []

    def take(n: int) -> None:
        with turn(lock):
            order.append(n)

    with turn(lock):
        for n in range(10):
            thread = threading.Thread(target=take, args=(n,))
            thread.start()
            threads.append(thread)
            wait_for(lambda n=n: len(lock._queue) == n + 1, what="the thread stands in line")
    for thread in threads:
        thread.join()
    assert order == list(range(10))


def test_one_at_a_time() -> None:
    lock, inside, most = FifoLock(), [], []

    def work() -> None:
        for _ in range(200):
            with turn(lock):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (max(most), len(most)) == (1, 1200)


def test_whoever_waits_too_long_leaves_the_line() -> None:
    lock = FifoLock()
    with turn(lock):
        with pytest.raises(TimeoutError):
            lock.acquire(0.01)
        assert not lock.hand_over()
    with turn(lock, 0.01):
        pass


def test_it_is_handed_over_only_to_somebody() -> None:
    lock, got = FifoLock(), threading.Event()

    def take() -> None:
        with turn(lock):
            got.set()

    lock.acquire(1)
    assert not lock.hand_over()
    thread = threading.Thread(target=take)
    thread.start()
    wait_for(lambda: len(lock._queue) == 1, what="the thread stands in line")
    assert lock.hand_over()
    assert got.wait(30)
    thread.join()
    with turn(lock, 0.01):
        pass
