"""The supervisor as it must not be: a key is looked up first and stored afterwards, in two transactions.

python -m tests.acceptance.check_then_insert serve --data-dir DIR --port 0
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from supervisor.cli.main import main
from supervisor.services.runs import changing, keys
from supervisor.services.runs.changing import Update
from supervisor.services.runs.keys import Reply

COMMIT = changing.commit


def check_then_insert(parts: Any, prepare: Any, key: Any = None, respond: Any = None) -> Any:
    if key is None:
        return COMMIT(parts, prepare)
    kept = parts.store.kept_response(key.scope, key.key)
    if kept is not None:
        return Update(kept, 0.0, reply=keys.replay(kept, key.fingerprint))
    now = parts.clock.now()
    update = prepare(now)
    with parts.store.begin(now) as tx:
        stored = tx.insert(update.run, update.spec, update.labels, (update.event,))
        reply: Reply = respond(replace(update, run=stored))
        tx.take_key(key.scope, key.key, key.fingerprint, now)
        key.keep(tx, reply)
    return replace(update, run=stored, reply=reply)


if __name__ == "__main__":
    changing.commit = check_then_insert
    main()
