"""The line in front of the one writer."""

import threading

import pytest

from supervisor.storage.fifo import FifoLock
from tests.waiting import wait_for


def test_turns_come_in_the_order_of_asking() -> None:
    lock, order = FifoLock(), []
    threads = []

    def take(n: int) -> None:
        with lock.held(30):
            order.append(n)

    with lock.held(1):
        for n in range(10):
            thread = threading.Thread(target=take, args=(n,))
            thread.start()
            threads.append(thread)
            wait_for(lambda n=n: len(lock._line) == n + 1, what="the thread stands in line")
    for thread in threads:
        thread.join()
    assert order == list(range(10))


def test_one_at_a_time() -> None:
    lock, inside, most = FifoLock(), [], []

    def work() -> None:
        for _ in range(200):
            with lock.held(30):
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
    with lock.held(1), pytest.raises(TimeoutError), lock.held(0.01):
        raise AssertionError("two at a time")
    with lock.held(0.01):
        assert lock.longest_hold_s > 0


def test_a_block_that_raises_gives_it_back() -> None:
    lock = FifoLock()

    def fail() -> None:
        with lock.held(1):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with lock.held(0.01):
        pass
