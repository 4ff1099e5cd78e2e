"""Who calls, and which request is a repeat: the tokens of callers and their Idempotency-Keys.

A token's row has its record and its HMAC. An allowance is what a token with a cap lets one generation of a run spend;
it is open until that run is settled, or until its next generation begins.

The first transaction that inserts an Idempotency-Key owns it; the response is stored in the same transaction as the
action.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import and_, bindparam, exc, func, or_

from supervisor.domain.attempt import Attempt
from supervisor.domain.callers import Caps, Scope, Token
from supervisor.domain.events import Event
from supervisor.domain.run import Run, attempt_cost_usd, run_cost_usd
from supervisor.ports.store import KeptResponse, KeyHeld
from supervisor.storage.engine.codec import dumps
from supervisor.storage.engine.database import Database
from supervisor.storage.engine.statements import Session, Statement, insert_one, owner_lock
from supervisor.storage.engine.tables import allowances, idempotency, runs, tokens
from supervisor.storage.rows import events
from supervisor.storage.rows.rows import MICRO, readable
from supervisor.storage.rows.runs import attempts_of_runs, load

LOCK_NOT_AVAILABLE = "55P03"  # SQLSTATE of Postgres: lock_timeout is over
_RESPONSE = (idempotency.c.fingerprint, idempotency.c.status, idempotency.c.body, idempotency.c.location)
_THIS_KEY = and_(idempotency.c.scope == bindparam("scope_"), idempotency.c.key == bindparam("key_"))
TAKE = Statement(lambda dialect: insert_one(idempotency, dialect).on_conflict_do_nothing())
READ = Statement(sa.select(*_RESPONSE).where(_THIS_KEY))
KEEP = Statement(
    sa.update(idempotency).values({column.key: bindparam(column.key) for column in _RESPONSE}).where(_THIS_KEY)
)

_RECORD = (
    tokens.c.id, tokens.c.name, tokens.c.owner, tokens.c.scopes, tokens.c.created_at, tokens.c.created_by,
    tokens.c.expires_at, tokens.c.max_active_runs, tokens.c.last_used_at, tokens.c.revoked_at,
    tokens.c.usd_per_day_micro, tokens.c.usd_per_run_micro, tokens.c.plans_only,
)  # fmt: skip
_CONVERTED = ("id", "scopes", "usd_per_day_micro", "usd_per_run_micro", "plans_only")
INSERT = Statement(lambda dialect: insert_one(tokens, dialect).on_conflict_do_nothing(index_elements=["hash"]))
FIND = Statement(sa.select(*_RECORD).where(tokens.c.hash == bindparam("hash")))
GET = Statement(sa.select(*_RECORD).where(tokens.c.id == bindparam("id")))
NEWEST = Statement(
    sa.select(*_RECORD)
    .order_by(tokens.c.revoked_at.is_not(None), tokens.c.created_at.desc(), tokens.c.id)
    .limit(bindparam("limit_"))
)
REVOKE = Statement(
    sa.update(tokens)
    .values(revoked_at=bindparam("now"))
    .where(tokens.c.id == bindparam("id_"), tokens.c.revoked_at.is_(None))
)
USED = Statement(
    sa.update(tokens)
    .values(last_used_at=bindparam("at"))
    .where(tokens.c.id == bindparam("id_"), func.coalesce(tokens.c.last_used_at, 0) < bindparam("at"))
)
DAY_S = 86_400.0
LOCK_TOKEN = owner_lock(0x43415053)  # whose allowances are counted
_THIS = and_(allowances.c.run == bindparam("run_"), allowances.c.generation == bindparam("generation_"))


def _allow(dialect: str) -> Any:
    statement = insert_one(allowances, dialect)
    new = {"most_micro": statement.excluded.most_micro}  # a change of the budget
    return statement.on_conflict_do_update(index_elements=["run", "generation"], set_=new)


ALLOW = Statement(_allow)
COUNTED = Statement(
    sa.select(
        allowances.c.run, allowances.c.generation, allowances.c.created_at, allowances.c.most_micro,
        allowances.c.spent_micro, runs.c.settled,
    )
    .join(runs, runs.c.key == allowances.c.run)
    .where(
        allowances.c.token == bindparam("token_"),
        or_(allowances.c.closed_at.is_(None), allowances.c.closed_at > bindparam("since")),
    )
)  # fmt: skip
MOST = Statement(sa.select(allowances.c.most_micro).where(_THIS))
PAYER = Statement(sa.select(allowances.c.token).where(_THIS))
CLOSE = Statement(
    sa.update(allowances)
    .values(spent_micro=bindparam("spent_micro"), closed_at=bindparam("closed_at"))
    .where(_THIS, allowances.c.closed_at.is_(None))
)


def take_key(session: Session, scope: str, key: str, fingerprint: str, now: float) -> KeptResponse | None:
    """None: the key is ours. On Postgres this waits for another transaction that takes the same key. Raises KeyHeld."""
    row = {
        "scope": scope, "key": key, "fingerprint": fingerprint, "status": 0, "body": "", "location": "",
        "created_at": now,
    }  # fmt: skip
    try:
        if session.run(TAKE, row).rowcount == 1:
            return None
    except exc.DBAPIError as error:
        if getattr(error.orig, "sqlstate", "") == LOCK_NOT_AVAILABLE:
            raise KeyHeld from error
        raise
    kept = kept_response(session, scope, key)
    if kept is None:  # retention has deleted it in this moment
        raise KeyHeld
    return kept


def kept_response(session: Session, scope: str, key: str) -> KeptResponse | None:
    row = session.run(READ, {"scope_": scope, "key_": key}).first()
    return None if row is None else KeptResponse(*row)


def keep_response(session: Session, scope: str, key: str, response: KeptResponse) -> None:
    values = {column.key: getattr(response, column.key) for column in _RESPONSE}
    session.run(KEEP, {"scope_": scope, "key_": key, **values})


class SqlTokens:
    """Implements ports/store.Tokens."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, token: Token, digest: str, event: Event) -> bool:
        fields = {column.key: getattr(token, column.key) for column in _RECORD if column.key not in _CONVERTED}
        row = {"id": token.token_id, "hash": digest, "scopes": dumps(sorted(token.scopes)), **fields}
        row |= {
            "usd_per_day_micro": _micro(token.caps.usd_per_day),
            "usd_per_run_micro": _micro(token.caps.usd_per_run),
        }
        row["plans_only"] = int(token.caps.plans_only)
        with self._database.writing() as session:
            if session.run(INSERT, row).rowcount == 0:
                return False
            events.add_own(session, [event], token.created_at)
            return True

    def find(self, digest: str) -> Token | None:
        return self._read_token(FIND, {"hash": digest})

    def get(self, token_id: str) -> Token | None:
        return self._read_token(GET, {"id": token_id})

    def newest(self, limit: int) -> list[Token]:
        return readable(self._database.read(Session.run, NEWEST, {"limit_": limit}), _token, "tokens")

    def revoke(self, token_id: str, event: Event, now: float) -> bool:
        with self._database.writing() as session:
            if session.run(REVOKE, {"id_": token_id, "now": now}).rowcount == 0:
                return False
            events.add_own(session, [event], now)
            return True

    def note_used(self, used: Mapping[str, float]) -> None:
        with self._database.writing() as session:
            for token_id, at in sorted(used.items()):  # in one order, so two replicas cannot deadlock
                session.run(USED, {"id_": token_id, "at": at})

    def _read_token(self, statement: Statement, params: dict[str, Any]) -> Token | None:
        row = self._database.read_one(Session.run, statement, params).first()
        return None if row is None else _token(row)


def _token(row: Any) -> Token:
    fields = dict(zip((column.key for column in _RECORD), row, strict=True))
    scopes = frozenset(Scope(word) for word in json.loads(fields.pop("scopes")))
    caps = Caps(
        usd_per_day=_usd(fields.pop("usd_per_day_micro")),
        usd_per_run=_usd(fields.pop("usd_per_run_micro")),
        plans_only=bool(fields.pop("plans_only")),
    )
    return Token(token_id=fields.pop("id"), scopes=scopes, caps=caps, **fields)


def _micro(usd: float | None) -> int | None:
    return None if usd is None else round(usd * MICRO)


def _usd(micro: int | None) -> float | None:
    return None if micro is None else micro / MICRO


# --- allowances -------------------------------------------------------------------------------------------------------


class _Allowance(NamedTuple):
    run: int
    generation: int
    created_at: float
    most_micro: int
    spent_micro: int | None
    is_over: int  # its run is settled


def counted(session: Session, token_id: str, now: float) -> int:
    """Micro-USD: what the runs of this token have spent in the last DAY_S, and what they may still spend. What was
    spent before that counts no more. `hold_tokens` comes before."""
    rows = _allowances(session, token_id, now)
    for row, run in _read(session, [row for row in rows if row.spent_micro is None and row.is_over]):
        _close(session, run, row.most_micro, _over_at(run), now)
    return _sum(session, _allowances(session, token_id, now), now)


def hold_tokens(session: Session, token_ids: Collection[str]) -> None:
    """Transactions that count for one token, or close its allowances, run one after the other: on Postgres each waits
    for the commit of the one before. Called before a run is written: else two of them would wait for each other."""
    if session.dialect != "sqlite":
        for token_id in sorted(token_ids):
            session.run(LOCK_TOKEN, {"owner": token_id})


def counted_now(session: Session, token_id: str, now: float) -> int:
    """The same for a reader, who waits for nobody."""
    return _sum(session, _allowances(session, token_id, now), now)


def allow(session: Session, run: Run, token_id: str, most_micro: int, now: float) -> None:
    """The present generation of this run may spend so much."""
    row = {
        "run": run.key, "generation": run.generation, "token": token_id, "created_at": now, "most_micro": most_micro,
        "spent_micro": None, "closed_at": None,
    }  # fmt: skip
    session.run(ALLOW, row)


def close_allowance(session: Session, run: Run, now: float) -> None:
    """The present generation of this run spends no more; nothing where no token with a cap has started it."""
    most_micro = allowance_micro(session, run)
    if most_micro is not None:
        _close(session, run, most_micro, now, now)


def allowance_micro(session: Session, run: Run) -> int | None:
    most_micro: int | None = session.run(MOST, {"run_": run.key, "generation_": run.generation}).scalar()
    return most_micro


def payer(session: Session, run: Run) -> str:
    """The token whose cap the present generation of this run counts for; "" = none."""
    return str(session.run(PAYER, {"run_": run.key, "generation_": run.generation}).scalar() or "")


def _allowances(session: Session, token_id: str, now: float) -> list[_Allowance]:
    return [_Allowance(*row) for row in session.run(COUNTED, {"token_": token_id, "since": now - DAY_S})]


def _read(session: Session, rows: list[_Allowance]) -> list[tuple[_Allowance, Run]]:
    """With their runs, which are still in that generation. An unreadable run keeps its allowance open."""
    loaded = {run.key: run for run in load(session, [row.run for row in rows])}
    pairs = [(row, loaded[row.run]) for row in rows if row.run in loaded]
    return [(row, run) for row, run in pairs if run.generation == row.generation]


def _sum(session: Session, rows: list[_Allowance], now: float) -> int:
    total = sum(row.most_micro if row.spent_micro is None else row.spent_micro for row in rows)
    old = [row for row in rows if row.created_at < now - DAY_S]
    live = {row.run: run for row, run in _read(session, [row for row in old if row.spent_micro is None])}
    attempts = attempts_of_runs(session, {row.run for row in old}) if old else {}
    for row in old:
        paid = [attempt for attempt in attempts.get(row.run, ()) if attempt.generation == row.generation]
        before_micro = int(sum(_spent_before(attempt, now) for attempt in paid) * MICRO)
        counts_micro = row.most_micro if row.spent_micro is None else row.spent_micro
        if row.run in live:  # it may have spent more than it may: a machine takes time to leave
            spent_micro = math.ceil(_generation_usd(live[row.run], now) * MICRO)
            total += max(0, spent_micro - counts_micro)
            counts_micro = max(counts_micro, spent_micro)
        total -= min(before_micro, counts_micro)
    return total


def _spent_before(attempt: Attempt, now: float) -> float:
    """Dollars that its machine cost before the last DAY_S."""
    end = next((at for at in (attempt.stopped_at, attempt.gone_at) if at is not None), now)
    lasted_s = end - attempt.started_at
    share = min(1.0, max(0.0, now - DAY_S - attempt.started_at) / lasted_s) if lasted_s > 0 else 0.0
    return (attempt_cost_usd(attempt, now) or 0.0) * share


def _generation_usd(run: Run, now: float) -> float:
    return max(0.0, run_cost_usd(run, now) - run.money.budget_from_usd)


def _over_at(run: Run) -> float:
    """When the last machine of a settled run was billed last, as far as its row shows it."""
    attempt = run.attempt
    ends = () if attempt is None else (attempt.ended_at, attempt.stopped_at, attempt.gone_at)
    return max([run.status_since, *(at for at in ends if at is not None)])


def _close(session: Session, run: Run, most_micro: int, closed_at: float, now: float) -> None:
    """What is not known counts as spent: a machine without a price, and a machine that is still on its way out."""
    spent_micro = math.ceil(_generation_usd(run, now) * MICRO)
    if run.retiring or not run.money.all_known:
        spent_micro = max(spent_micro, most_micro)
    row = {"run_": run.key, "generation_": run.generation, "spent_micro": spent_micro, "closed_at": closed_at}
    session.run(CLOSE, row)
