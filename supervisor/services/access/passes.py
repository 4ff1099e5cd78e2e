"""Tickets and passes: texts that this supervisor signs for one launch of one run, valid until a time.

A ticket is good for one claim of the launch's job, a pass for the objects of its run. Both say in plain words what they
open, and end with an HMAC of it: nothing is stored, and nothing is looked up before the signature is known to be ours.
The key is made from the secret of the database with a label for each kind, so that no ticket is a pass and no token is
either of them; a supervisor with another database refuses all. The signature covers the supervisor's id too.

A pass opens what an agent reads and writes, and no more: the objects of its run, the beat of its run, and the code
bundle that the spec names. What only the supervisor writes there can be read.
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass
from enum import StrEnum

from supervisor.contract import runfiles
from supervisor.contract.identifiers import is_run_id, parse_launch_id
from supervisor.domain.errors import PassExpired, PassRefused, TicketExpired, TicketRefused

PASS_S = 3600.0
TEXT_MAX = 256
_FORM = re.compile(r"(ticket|pass)_([a-z0-9-]{2,63})_([0-9.]{5,29})_([0-9]{1,12})_([0-9a-f]{64})\Z")
READ_WHOLE_BYTES = 64 << 20  # far more than the longest baton, manifest or record that an agent writes
# Below the folder of a run (contract/runfiles.py).
_READ_WHOLE = re.compile(r"baton\.json|instances/[^/]*\.json|results/saved/.*manifest\.json", re.DOTALL)
_OURS = re.compile(
    r"(\.stop|orders\.json|run_manifest\.json|evidence|sync/[^/]*\.tar\.gz|instances/\d+\.(json|console\.log))(/.*)?"
    # In a folder store a file where we need a folder, or a folder where we need a file, would keep us from writing.
    r"|sync|instances|commands|(baton\.json|commands/[^/]*)/.*",
    re.DOTALL,
)


class Kind(StrEnum):
    TICKET = "ticket"
    PASS = "pass"  # noqa: S105 - a word


class Verb(StrEnum):
    READ = "read"
    WRITE = "write"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Grant:
    """What a text with our signature opens. `expires_at`: epoch seconds."""

    run_id: str
    launch_id: str
    expires_at: float


@dataclass(frozen=True)
class Signer:
    """`secret`: of the database, in hex."""

    secret: str
    supervisor_id: str

    def write(self, kind: Kind, run_id: str, launch_id: str, expires_at: float) -> str:
        expires_s = int(expires_at)
        return f"{kind}_{run_id}_{launch_id}_{expires_s}_{self._signature(kind, run_id, launch_id, expires_s)}"

    def read(self, kind: Kind, text: str) -> Grant | None:
        """None: not a text of this kind with our signature. The caller checks the time."""
        match = _FORM.match(text) if len(text) <= TEXT_MAX else None
        if match is None or match[1] != kind:
            return None
        run_id, launch_id, expires_s = match[2], match[3], int(match[4])
        if not hmac.compare_digest(self._signature(kind, run_id, launch_id, expires_s), match[5]):
            return None
        return Grant(run_id, launch_id, float(expires_s))

    def _signature(self, kind: Kind, run_id: str, launch_id: str, expires_s: int) -> str:
        key = hmac.digest(bytes.fromhex(self.secret), f"door:{kind}".encode(), "sha256")
        signed = f"{self.supervisor_id}\n{run_id}\n{launch_id}\n{expires_s}"
        return hmac.digest(key, signed.encode(), "sha256").hex()


def write_ticket(signer: Signer, run_id: str, launch_id: str, expires_at: float) -> str:
    """ValueError for names that no launch can have."""
    parse_launch_id(launch_id)
    if not is_run_id(run_id):
        raise ValueError("not a run id")
    return signer.write(Kind.TICKET, run_id, launch_id, expires_at)


def read_ticket(signer: Signer, text: str, now: float) -> Grant:
    """Raises TicketRefused, TicketExpired."""
    grant = signer.read(Kind.TICKET, text)
    if grant is None:
        raise TicketRefused("This is no ticket of this supervisor. Take the newest cell or notebook of the run.")
    if now >= grant.expires_at:
        text = f"The ticket of {grant.run_id} has expired. Take the newest cell or notebook of the run."
        raise TicketExpired(text, {"run_id": grant.run_id})
    return grant


def write_pass(signer: Signer, run_id: str, launch_id: str, now: float) -> tuple[str, float]:
    """(the pass, until when it is valid)."""
    expires_at = float(int(now + PASS_S))
    return signer.write(Kind.PASS, run_id, launch_id, expires_at), expires_at


def read_pass(signer: Signer, authorization: str, run_id: str, now: float) -> Grant:
    """The pass in a header Authorization, for the door of this run. Raises PassRefused, PassExpired."""
    scheme, _, text = authorization.partition(" ")
    grant = signer.read(Kind.PASS, text) if scheme.lower() == "bearer" else None
    if grant is None or grant.run_id != run_id:
        raise PassRefused("This is no pass for the objects of this run.")
    if now >= grant.expires_at:
        raise PassExpired("The pass has expired. A beat with ?pass=1 brings a new one.")
    return grant


def opens(run_id: str, verb: Verb, key: str, code: str | None = None) -> bool:
    """Whether a pass of this run is good for the object. `code`: the bundle that the run's spec names. The key need not
    be one that a store accepts."""
    if key == runfiles.beat(run_id):
        return verb is not Verb.DELETE
    if key == runfiles.boot_beat(run_id):
        return verb is not Verb.WRITE  # its agent removes it
    if code is not None and key == runfiles.code(code):
        return verb is Verb.READ
    if not key.startswith(runfiles.folder(run_id)):
        return False
    return verb is Verb.READ or not _is_ours(run_id, key)


def opens_prefix(run_id: str, prefix: str) -> bool:
    """Whether a pass of this run is good for a listing."""
    return prefix.startswith(runfiles.folder(run_id))


def most_bytes(run_id: str, key: str) -> int | None:
    """Of an object that the supervisor holds in its memory as a whole: a run must not take that of all others. None: of
    any size, because it is read in pieces."""
    read_whole = key == runfiles.beat(run_id) or _READ_WHOLE.fullmatch(key, len(runfiles.folder(run_id)))
    return READ_WHOLE_BYTES if read_whole else None


def is_code(key: str) -> bool:
    """Only for such a key the spec must be read."""
    return key.startswith(runfiles.CODE)


def _is_ours(run_id: str, key: str) -> bool:
    """Only the supervisor writes it: the stop, people's orders with their deltas, and what it keeps of each attempt."""
    return _OURS.fullmatch(key, len(runfiles.folder(run_id))) is not None
