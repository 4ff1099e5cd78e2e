"""Machines that fetch their job themselves: sessions of a notebook, where no provider can place a file.

What the notebook shows is a ticket, good for one claim. The claim gives the job, its secrets, and a pass that opens the
objects of this run for a while. A provider writes the ticket where its platform starts the notebook, and learns from
the claims which session has come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from supervisor.ports.provider import LaunchRequest

ClaimKey = tuple[str, str]  # (run id, launch id): launch ids repeat in every run


@dataclass(frozen=True, slots=True)
class Claim:
    """`claimant`: the random name that the notebook gave itself. `session`: what the platform calls it, such as
    {"platform": "…", "id": "…"}; texts from the notebook, never trusted. `at`: of the claim, epoch seconds.
    `seen_at`: the last request of this session at the door, or its last pushed beat, as far as this process knows it;
    never before `at`."""

    run_id: str
    launch_id: str
    claimant: str
    session: Mapping[str, str]
    at: float
    seen_at: float


class Claims(Protocol):
    def ticket(self, request: LaunchRequest, expires_at: float) -> str:
        """A ticket for this launch; sends no request, and stores nothing."""

    def all(self) -> Mapping[ClaimKey, Claim]:
        """Every claim of this supervisor, by run and launch; one listing. Raises ProviderUnavailable."""

    def drop(self, run_id: str, launch_id: str) -> None:
        """Forget the claim of a launch that is released. Safe to repeat. Raises ProviderUnavailable."""


@dataclass(frozen=True, slots=True)
class Handover:
    """`job`: docs/training-contract.md, without store_url and server_url, which the door adds. `secrets`: name ->
    value; they are in the answer to the claim and nowhere else."""

    job: Mapping[str, object]
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


@runtime_checkable
class HandsOver(Protocol):
    """A provider whose machines claim their job."""

    def hand_over(self, request: LaunchRequest) -> Handover:
        """What this launch is made from; called at the claim. Raises LaunchFailed, ProviderUnavailable."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What a person pastes to start one machine. `text`: Python for one cell of a notebook. `expires_at`: of the ticket
    in it, epoch seconds. `notebook`: an .ipynb with that cell, as JSON. `url`: where the person opens a new notebook;
    "" = not known. `wanted`: what to choose there, in words; "" = nothing."""

    text: str = field(repr=False)
    expires_at: float
    notebook: str = field(repr=False)
    url: str = ""
    wanted: str = ""


@runtime_checkable
class PastedCell(Protocol):
    """A provider of machines that a person starts with a cell in a notebook."""

    def cell(self, request: LaunchRequest) -> Cell:
        """For a launch that waits for its person; with a new ticket where the last one is about to expire. Only the
        names, the ids and the placement of `request` count. Raises NotSupported for a placement that needs no person;
        LaunchFailed; ProviderUnavailable."""
