"""People who ask for something in tests, beside `LOCAL`."""

from supervisor.domain.callers import Caller, Scope

OPS = Caller(actor="ops")
MEMBER = Caller(scopes=frozenset({Scope.READ, Scope.WRITE}))  # may do everything with his own runs
