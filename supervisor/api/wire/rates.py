"""How many requests may come: a bucket for each token, and one for each address that sends none that is valid.

A bucket holds `burst` requests and fills again by `rate_per_s`. Who empties his own waits; nobody else does. What has
no valid token is told from those who have one by memory alone, so an address on which somebody guesses shuts out
nobody whose token was good before, and the guesses ask the database no quicker than GUESSES_PER_S. The tables are
bounded: of too many keys the one that was used longest ago begins anew.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict

GUESSES_PER_S, GUESS_BURST = 10.0, 100
MOST = 10_000  # keys of one table


class Buckets:
    """Not safe to use from several threads. Times are seconds of any clock that does not go back."""

    def __init__(self, rate_per_s: float, burst: float, most: int = MOST) -> None:
        self._rate_per_s, self._burst, self._most = rate_per_s, burst, most
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # key -> (left, at)

    def __len__(self) -> int:
        return len(self._left)

    def wait_s(self, key: str, now: float) -> float:
        """In how many seconds the next request may come; 0.0 = now. Takes nothing."""
        return max(0.0, (1.0 - self._level(key, now)) / self._rate_per_s)

    def take(self, key: str, now: float) -> float:
        """Take one, if it is there; else as `wait_s`."""
        level = self._level(key, now)
        if level < 1.0:
            return (1.0 - level) / self._rate_per_s
        self._left[key] = level - 1.0, now
        self._left.move_to_end(key)
        if len(self._left) > self._most:
            self._left.popitem(last=False)
        return 0.0

    def _level(self, key: str, now: float) -> float:
        left, at = self._left.get(key, (self._burst, now))
        return min(self._burst, left + (now - at) * self._rate_per_s)


class Rates:
    """Used from the event loop only. `rate_per_s` 0 = valid tokens have no limit."""

    def __init__(self, rate_per_s: float, burst: float) -> None:
        self.rate_per_s, self.burst = rate_per_s, burst
        self._tokens = Buckets(rate_per_s, burst) if rate_per_s > 0 else None
        self._guesses = Buckets(GUESSES_PER_S, GUESS_BURST)
        self._good: OrderedDict[int, None] = OrderedDict()  # hashes of headers that were good lately

    def before_asking(self, authorization: str, peer: str, now: float) -> float:
        """How long this address must wait before the database is asked about a token that memory does not know."""
        return 0.0 if hash(authorization) in self._good else self._guesses.wait_s(place_of(peer), now)

    def refused(self, authorization: str, peer: str, now: float) -> None:
        """It was no valid token."""
        self._good.pop(hash(authorization), None)
        self._guesses.take(place_of(peer), now)

    def request(self, authorization: str, token_id: str, now: float) -> float:
        """One request with a valid token; how long it must wait instead. Where no token was needed, not at all."""
        if not token_id:
            return 0.0
        self._good[hash(authorization)] = None
        self._good.move_to_end(hash(authorization))
        if len(self._good) > MOST:
            self._good.popitem(last=False)
        return 0.0 if self._tokens is None else self._tokens.take(token_id, now)


def place_of(peer: str) -> str:
    """Of IPv6 the network: whoever has one address there has them all."""
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return peer
    return str(ipaddress.ip_network((address, 64), strict=False)) if address.version == 6 else peer
