"""`python agent.pyz MACHINE_DIR`: be the agent of the machine in that folder, until its work or its time is over."""

from __future__ import annotations

import logging
import os
import sys
from typing import Optional

from supervisor.agent.life.station import Station, open_store
from supervisor.agent.life.supervise import Supervision
from supervisor.agent.machine.command import Unfit
from supervisor.agent.machine.folder import JobRefused, MachineFolder, read_job
from supervisor.agent.machine.masking import Masker
from supervisor.agent.machine.processes import named, own_identity, stand_in
from supervisor.agent.machine.secrets import SecretRefused, SecretsMissing, fetch_secrets, open_console, read_secrets

USAGE, REFUSED = 2, 3
_log = logging.getLogger("agent")


def main() -> int:
    """Exit code: 0 = an orderly life, whatever the command's end; 2 = usage; 3 = not this agent's folder or job, or its
    secrets have not come. 4, of the archive's entry: this Python is too old."""
    if os.getpid() == 1:
        stand_in()
    open_console()
    if len(sys.argv) != 2:
        _log.error("usage: python agent.pyz MACHINE_DIR")
        return USAGE
    folder, identity = MachineFolder(sys.argv[1]), own_identity()
    if not folder.take():
        _log.error("another agent lives in %s", folder.root)
        return REFUSED
    try:
        job = read_job(folder.job)
        identity = named(identity, folder.identity)
        store = open_store(job, folder.authorities)
        secrets = read_secrets(name for name in job.secrets if name not in job.secret_refs)
    except (JobRefused, ValueError) as error:
        folder.introduce(identity)
        _log.error("%s", error)
        return REFUSED
    except SecretsMissing as error:  # without a trace, so that the same launch starts it again
        _log.error("%s", error)
        return REFUSED
    folder.introduce(identity)
    unfit: Optional[Unfit] = None
    try:
        fetched = fetch_secrets(job.secret_refs, job.secret_manager_endpoint, folder.authorities)
        secrets = {**secrets, **fetched}
    except SecretRefused as error:  # told by the beat of a life that ends before the command
        unfit = Unfit(error.left, str(error))
    open_console(Masker(secrets))
    _log.info("agent of %s for run %s, launch %s", job.machine, job.run_id, job.launch_id)
    folder.furnish()
    Supervision(Station(folder, job, identity, store=store, secrets=secrets, unfit=unfit)).run()
    _log.info("leaving")
    return 0


if __name__ == "__main__":
    sys.exit(main())
