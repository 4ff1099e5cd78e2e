"""The supervisor as it must not be: a key is looked up first and stored afterwards, in two transactions.

python -m tests.acceptance.check_then_insert serve --data-dir DIR --port 0
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from supervisor.cli.main import main
from supervisor.services.runs import changing, keys, submit
from supervisor.services.runs.keys import Reply


def check_then_insert(parts: Any, judge: Any, shape: Any, key: Any = None) -> Any:
    if key is None:
        return changing.carried_out(parts, judge, shape)
    kept = parts.store.kept_response(key.scope, key.key)
    if kept is not None:
        return keys.replay(kept, key.fingerprint)
    now = parts.clock.now()
    judged = judge(now)
    with parts.store.begin(now) as tx:
        stored = tx.insert(judged.run, judged.spec, judged.labels, (judged.event,))
        reply: Reply = shape(replace(judged, run=stored))
        tx.take_key(key.scope, key.key, key.fingerprint, now)
        key.keep(tx, reply)
    return reply


if __name__ == "__main__":
    submit.carried_out = check_then_insert  # type: ignore[assignment]
    main()
