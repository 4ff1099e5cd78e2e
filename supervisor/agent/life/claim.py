"""Taking the baton, or standing down: the only door to writing anything of a run (RULES section 1).

A newcomer waits while the old holder has neither left nor is known gone; `standing` says when the wait is over. The
store not answering says nothing: the agent waits with its beats going out by push.
"""

from __future__ import annotations

from functools import partial
from typing import Callable, Optional

from supervisor.agent.store.batonio import BatonKeeper
from supervisor.agent.store.patience import Patience
from supervisor.contract import baton as rules
from supervisor.contract import heartbeat
from supervisor.contract.baton import Baton, BatonRefused
from supervisor.contract.identifiers import parse_launch_id
from supervisor.contract.stores.errors import StoreUnavailable

LOOK_S = 1.0


class StandDown(Exception):
    """This agent is not wanted: `left` is the beat's word for it. It stops and writes nothing."""

    def __init__(self, left: str) -> None:
        super().__init__(left)
        self.left = left


def claim(
    keeper: BatonKeeper,
    launch_id: str,
    machine_id: str,
    patience: Patience,
    monotonic: Callable[[], float],
    tell: Callable[[str], None],
) -> Baton:
    """The baton with us as its holder. Raises StandDown, GaveUp."""
    waits_since: Optional[float] = None
    while True:
        seen = patience.insist("reading the baton", keeper.read)
        waited_s = 0.0 if waits_since is None else monotonic() - waits_since
        verdict = rules.standing(seen, launch_id, machine_id, waited_s)
        if verdict in (rules.OVER, rules.OUTDATED):
            raise StandDown(left_word(verdict))
        if verdict == rules.WAIT:
            waits_since = monotonic() if waits_since is None else waits_since
            tell("waiting for the previous machine to leave")
            patience.pause("waiting for the baton", LOOK_S)
            continue
        tell("")
        try:
            return patience.insist(
                "claiming the baton",
                partial(keeper.change, partial(_claimed, launch_id, machine_id, waited_s)),
            )
        except BatonRefused:
            continue  # it changed between our looks: judge the new one


def _claimed(launch_id: str, machine_id: str, waited_s: float, baton: Baton) -> Baton:
    return rules.claim(baton, launch_id, machine_id, waited_s)


def left_word(verdict: str) -> str:
    """The beat's word for a verdict that ends writing."""
    return heartbeat.CLOSED if verdict == rules.OVER else heartbeat.SUPERSEDED


def why_lost(keeper: BatonKeeper, launch_id: str, machine_id: str) -> str:
    """The beat's word for a change that was refused."""
    try:
        return left_word(rules.standing(keeper.read(), launch_id, machine_id, 0.0))
    except StoreUnavailable:
        return heartbeat.SUPERSEDED


def superseded(baton: Baton, launch_id: str) -> bool:
    """A newer try is next: the holder finishes its save in flight and leaves."""
    if baton.next is None:
        return False
    return superseding(baton.next.launch_id, launch_id)


def superseding(one: str, other: str) -> bool:
    """One launch is newer than the other."""
    return parse_launch_id(one) > parse_launch_id(other)
