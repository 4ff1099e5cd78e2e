"""Rate limits: a bucket for each token, and one for each address that sends no valid token.

A bucket holds `burst` requests and refills by `rate_per_s`. A client that empties its own bucket waits; no other client
does. Headers that were valid lately are known from memory alone. So guesses from an address do not lock out a client
there whose token was valid before, and they reach the database at GUESSES_PER_S at most. The tables are bounded: with
too many keys, the bucket that was used longest ago starts full again.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict

GUESSES_PER_S, GUESS_BURST = 10.0, 100
MAX_KEYS = 10_000  # of one table


class Buckets:
    """Not safe to use from several threads. Times are seconds of any clock that does not go back."""

    def __init__(self, rate_per_s: float, burst: float, max_keys: int = MAX_KEYS) -> None:
        self._rate_per_s, self._burst, self._max_keys = rate_per_s, burst, max_keys
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # key -> (left, at)

    def __len__(self) -> int:
        return len(self._left)

    def wait_s(self, key: str, now: float) -> float:
        """Seconds until the next request is allowed; 0.0 = now. Takes nothing."""
        return max(0.0, (1.0 - self._level(key, now)) / self._rate_per_s)

    def take(self, key: str, now: float) -> float:
        """Take one request out; where there is none, as `wait_s`."""
        level = self._level(key, now)
        if level < 1.0:
            return (1.0 - level) / self._rate_per_s
        self._left[key] = level - 1.0, now
        self._left.move_to_end(key)
        if len(self._left) > self._max_keys:
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
        self._valid: OrderedDict[int, None] = OrderedDict()  # hashes of headers that were valid lately

    def before_asking(self, authorization: str, peer: str, now: float) -> float:
        """How long this address must wait before a token that is not in memory is looked up in the database."""
        return 0.0 if hash(authorization) in self._valid else self._guesses.wait_s(network_of(peer), now)

    def refused(self, authorization: str, peer: str, now: float) -> None:
        """The token was not valid."""
        self._valid.pop(hash(authorization), None)
        self._guesses.take(network_of(peer), now)

    def request(self, authorization: str, token_id: str, now: float) -> float:
        """One request with a valid token; how long it must wait instead. `token_id` "": no token was needed."""
        if not token_id:
            return 0.0
        self._valid[hash(authorization)] = None
        self._valid.move_to_end(hash(authorization))
        if len(self._valid) > MAX_KEYS:
            self._valid.popitem(last=False)
        return 0.0 if self._tokens is None else self._tokens.take(token_id, now)


def network_of(peer: str) -> str:
    """Of IPv6 the /64 network: a client with one of its addresses has them all."""
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return peer
    return str(ipaddress.ip_network((address, 64), strict=False)) if address.version == 6 else peer
