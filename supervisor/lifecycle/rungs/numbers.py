"""The frozen parameters of the rule of rungs, each with its provenance.

All were chosen on the measured traces of `make policy`, by a coarse grid, and rounded. What is best without one of the
six machine types costs on that type what these cost, to 0.3 %. Half as much more of any number, or a third less,
changes the mean by less than 0.5 %. `make policy ARGS=--held-out` prints both.

Tried and left out, since each cost more or changed nothing: to give on-demand back while the slack is large; to wait
until spot has been up for some ticks; a share of the work to a power other than one; a life that grows with the age of
the stretch.

The guarantee of the rule rests on none of them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Numbers:
    """A run without a machine waits for spot while its slack is above the sum of the first three.

    `reserve_s`: slack that is kept, whatever is left.

    `idle_share`: slack that is kept, as a share of the work that is left.

    `restart_share`: slack that is kept for restarts, as a share of the changeovers that the work which is left would
    have if each spot machine lived as long as measured.

    `slack_price`: what slack is worth when a run on on-demand decides whether it moves to spot: a move and the return
    take two changeovers of the slack, and this share of what the slack can save on the work that is left.

    `spot_life_s`: how long a spot machine lives, before anything was measured; it counts as one loss.

    `same_price`: a zone that costs up to this share more than the cheapest is taken at once.

    The last three are about a run that trains on on-demand, which cannot know whether spot is up before it asks.
    `least_chance`: it leaves its machine only where a spot machine can be had with this chance, by what own requests
    have shown. `refusals_s`: so long it may look for spot in vain, and the deadline must still allow the rest.
    `change_pause_s`: from a change until the next one back to spot. It doubles with each further return in a row that
    brought no spot machine."""

    reserve_s: float
    idle_share: float
    restart_share: float
    slack_price: float
    spot_life_s: float
    same_price: float
    least_chance: float
    refusals_s: float
    change_pause_s: float


FROZEN = Numbers(
    # From 0.4 to 0.9 h the mean cost is flat. It is what keeps the last hours of a training off on-demand.
    reserve_s=0.6 * 3_600.0,
    # Below 0.04 a long time without spot is noticed too late; above 0.10 on-demand is paid too early.
    idle_share=0.06,
    # Where machines die every 45 minutes and a changeover takes 6, restarts alone eat a tenth of the time.
    restart_share=0.8,
    # 0: a run wastes its slack on moves, and then has to stay on on-demand for the whole rest.
    # 0.8: it never moves. 0.2 costs less in all and 1 % more than Uniform Progress in one cell.
    slack_price=0.3,
    # Half of the stretches in which the traces have spot are shorter. Of 1,442 preemptible machines of 2019 less than
    # a fifth ended within it. Until a loss is seen the shorter life is the safe one.
    spot_life_s=3_600.0,
    # Zones differ by up to a third without a reason to wait for hours; four times the price is one.
    same_price=0.5,
    # `make policy` (guessing), 1,080 cases: a run that never returns costs $129.29, with 0.2 it costs 113.41 and in no
    # cell of the grid more. Any chance costs 112.99, with a tenth more returns in vain. 0.3 costs 116.14. On a tenth of
    # the cases it is 113.90 with 0.2, and 121.30 with 0.5. A guess that is often wrong still pays: a refused return
    # costs a start.
    least_chance=0.2,
    # A refused request takes 15 s (H100, October 2025): 13 zones one after the other, and three ticks.
    refusals_s=300.0,
    # P(up in 10 min | down) is 0.13 there, so a zone that was down has come back within two hours with 0.81.
    # It doubles: from 1.5 h one cell costs more than never to return. With an even pause of 2 h two cells do, by up to
    # 1.9 % (a third of the cases).
    change_pause_s=7_200.0,
)
