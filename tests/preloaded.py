"""Imports what a serving supervisor imports, sooner or later, and compiles the agent once for all machines that get it;
tests/forked.py names it to the fork server.

The agent is left out: it is never a part of the server's process.
"""

import gc
import importlib
import pkgutil
from functools import cache
from pathlib import Path

import supervisor
from supervisor.machinefolder import agent_archive
from supervisor.providers.gce.calls import official
from supervisor.providers.gce.machines import instance

# What libraries import late, when a server starts or a database is opened.
LATE = (
    "uvicorn.lifespan.on", "uvicorn.loops.auto", "uvicorn.protocols.http.auto", "uvicorn.protocols.websockets.auto",
    "sqlalchemy.dialects.sqlite.pysqlite", "sqlalchemy.dialects.postgresql.psycopg", "alembic.command",
    "apscheduler.executors.pool", "prometheus_client", "yaml", "google.cloud.storage",
    "lightkube.config.client_adapter",
)  # fmt: skip


def _import_all() -> None:
    for module in pkgutil.walk_packages(supervisor.__path__, "supervisor."):
        if not module.name.startswith("supervisor.agent") and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in LATE:
        importlib.import_module(name)
    official.load()


_import_all()
# Each daemon with local machines builds and compiles the agent at its start: the same sources give the same archive.
agent_archive.build_agent = cache(agent_archive.build_agent)
agent_archive.compiled = cache(agent_archive.compiled)
agent_archive.compiled(agent_archive.build_agent())
_payload_of = instance.payload_of


def _payload_with_bytecode(agent: Path | None) -> tuple[instance.Payload, bytes]:
    """Machines of the tests' cloud run this very Python: from the sources each agent would start 0.2 s of CPU later."""
    return _payload_of(agent and agent_archive.with_bytecode(agent, agent.with_name("agent-of-the-cloud.pyz")))


instance.payload_of = _payload_with_bytecode
gc.collect()
gc.freeze()  # a collection in a fork would copy every page of what is imported here
