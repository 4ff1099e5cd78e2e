"""Bases: implements ports/store.Bases. A row is guarded by its version, and each change has its event.

The name of a deleted base stays as a row: a run that names `torch-v2` must never get another content. Of the deleted
ones of a family only the newest is kept, which is enough to count on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from supervisor.domain.bases import Base, BaseStatus, next_name, number_of
from supervisor.domain.events import Event
from supervisor.storage.engine.codec import dumps, from_plain, to_plain
from supervisor.storage.engine.database import Database
from supervisor.storage.engine.statements import Session, Statement, insert_one
from supervisor.storage.engine.tables import bases
from supervisor.storage.rows.events import add_own
from supervisor.storage.rows.rows import readable

_COLUMNS = (bases.c.id, bases.c.version, bases.c.doc)
_APART = frozenset({"id", "version"})
_THIS = (bases.c.id == bindparam("id_"), bases.c.version == bindparam("version_"))
READ_MAX = 10_000

ALL = Statement(sa.select(*_COLUMNS).order_by(bases.c.id.desc()).limit(bindparam("limit_")))
FIND = Statement(sa.select(*_COLUMNS).where(bases.c.name == bindparam("name_")))
FAMILY = Statement(sa.select(*_COLUMNS).where(bases.c.family == bindparam("family_")))
INSERT = Statement(lambda dialect: insert_one(bases, dialect, "id").on_conflict_do_nothing().returning(bases.c.id))
CHANGE = Statement(sa.update(bases).values(doc=bindparam("doc_"), version=bindparam("next_")).where(*_THIS))
REMOVE = Statement(sa.delete(bases).where(*_THIS))


class SqlBases:
    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> list[Base]:
        return [base for base in self._read(ALL, {"limit_": READ_MAX}) if base.status != BaseStatus.DELETED]

    def find(self, name: str) -> Base | None:
        return next(iter(self._read(FIND, {"name_": name})), None)

    def family(self, family: str) -> list[Base]:
        return [each for each in self._read(FAMILY, {"family_": family}) if each.status != BaseStatus.DELETED]

    def create(self, family: str, base: Base, event: Event, now: float) -> Base:
        with self._database.writing() as session:
            before = _family(session, family)
            named = replace(base, name=next_name(family, (each.name for each in before)))
            values = {"name": named.name, "family": family, "version": named.version, "doc": _doc(named)}
            base_id = session.run(INSERT, values).scalar()
            if base_id is None:  # a row of this family that cannot be read has the name
                raise ValueError(f"the name {named.name} is taken")
            add_own(session, [replace(event, data={**event.data, "base": named.name})], now, owner=base.owner)
            return replace(named, id=base_id)

    def change(self, base: Base, event: Event | None, now: float) -> Base | None:
        after = replace(base, version=base.version + 1)
        with self._database.writing() as session:
            values = {"id_": base.id, "version_": base.version, "next_": after.version, "doc_": _doc(after)}
            if session.run(CHANGE, values).rowcount != 1:
                return None
            if event is not None:
                add_own(session, [event], now, owner=base.owner)
            if after.status == BaseStatus.DELETED:
                _forget_older(session, after)
        return after

    def _read(self, statement: Statement, params: dict[str, Any]) -> list[Base]:
        return readable(self._database.read(Session.run, statement, params), _base, "bases")


def _family(session: Session, family: str) -> list[Base]:
    return readable(session.run(FAMILY, {"family_": family}), _base, "bases")


def _forget_older(session: Session, deleted: Base) -> None:
    gone = [each for each in _family(session, deleted.family) if each.status == BaseStatus.DELETED]
    for each in sorted(gone, key=lambda base: number_of(base.name))[:-1]:
        session.run(REMOVE, {"id_": each.id, "version_": each.version})


def _doc(base: Base) -> str:
    return dumps(to_plain(base, _APART))


def _base(row: Sequence[Any]) -> Base:
    base_id, version, doc = row
    return from_plain(Base, json.loads(doc), id=base_id, version=version)
