"""`python agent.pyz MACHINE_DIR`: the agent of the machine in that folder, until its work or its time is over.

`python agent.pyz notebook …` makes such a folder from a ticket, and starts the agent there (notebook/session.py)."""

from __future__ import annotations

import logging
import os
import sys
from typing import Optional

from supervisor.agent.life.parts import Parts, open_store
from supervisor.agent.life.supervise import Supervision
from supervisor.agent.machine.command import Unfit
from supervisor.agent.machine.folder import MachineFolder
from supervisor.agent.machine.job import JobRefused, read_job
from supervisor.agent.machine.masking import Masker, open_console
from supervisor.agent.machine.processes import own_identity, return_memory, run_below_init, with_platform_id
from supervisor.agent.machine.secrets import SecretRefused, SecretsMissing, fetch_secrets, read_secrets, secrets_in

USAGE, REFUSED = 2, 3
_log = logging.getLogger("agent")


def main() -> int:
    """Exit code: 0 = an orderly end, however the command ended; 2 = usage; 3 = this folder or job is not valid for this
    agent, or its secrets are missing. The archive's own entry exits with 4: this Python is too old."""
    if sys.argv[1:2] == ["notebook"]:
        from supervisor.agent.notebook import session  # late: other agents start without it

        return session.main(sys.argv[2:])
    if os.getpid() == 1:
        run_below_init()
    open_console()
    if len(sys.argv) != 2:
        _log.error("usage: python agent.pyz MACHINE_DIR")
        return USAGE
    folder, identity = MachineFolder(sys.argv[1]), own_identity()
    secrets_dir = os.environ.pop("SPOT_SECRETS_DIR", "")
    if not folder.lock():
        _log.error("another agent uses %s", folder.root)
        return REFUSED
    try:
        job = read_job(folder.job)
        identity = with_platform_id(identity, folder.identity)
        store = open_store(job, folder.authorities, folder.pass_file)
        given = [name for name in job.secrets if name not in job.secret_refs]
        secrets = {} if secrets_dir else read_secrets(given)
    except (JobRefused, ValueError) as error:
        folder.write_agent(identity.pid, identity.start_ticks, identity.boot_id)
        _log.error("%s", error)
        return REFUSED
    except SecretsMissing as error:  # leave no trace, so that the same launch can start it again
        _log.error("%s", error)
        return REFUSED
    folder.write_agent(identity.pid, identity.start_ticks, identity.boot_id)
    unfit: Optional[Unfit] = None
    try:
        fetched = fetch_secrets(job.secret_refs, job.secret_manager_endpoint, folder.authorities)
        files = secrets_in(secrets_dir, given) if secrets_dir else {}
        secrets = {**secrets, **files, **fetched}
    except SecretRefused as error:  # the attempt ends before the command, and its beat says why
        unfit = Unfit(error.left, str(error))
    open_console(Masker(secrets))
    _log.info("agent of %s for run %s, launch %s", job.machine, job.run_id, job.launch_id)
    folder.prepare()
    supervision = Supervision(Parts(folder, job, identity, store=store, secrets=secrets, unfit=unfit))
    return_memory()
    supervision.run()
    _log.info("leaving")
    return 0


if __name__ == "__main__":
    sys.exit(main())
