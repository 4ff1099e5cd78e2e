"""The supervisor as it must not be: a key is looked up first and stored afterwards, in two transactions.

python -m tests.acceptance.check_then_insert serve --data-dir DIR --port 0
"""

from __future__ import annotations

from typing import Any

from supervisor.cli.main import main
from supervisor.services.runs import keys, submit
from supervisor.services.runs.keys import Reply


def check_then_insert(parts: Any, request: Any, asked: Any, caller: Any, seen: Any, now: float) -> Any:
    kept = parts.store.kept_answer(asked.scope, asked.key)
    if kept is not None:
        return keys.replay(kept, asked.fingerprint), None
    with parts.store.begin(now) as tx:
        run, resumed = submit._write(tx, parts, request, None, caller, seen, now)
        reply: Reply = submit._reply(parts, request, run, resumed, now)
        tx.take_key(asked.scope, asked.key, asked.fingerprint, now)
        keys.keep(tx, asked, reply)
    return reply, resumed


if __name__ == "__main__":
    submit._once_per_key = check_then_insert
    main()
