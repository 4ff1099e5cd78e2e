"""Another process that requests one tick and ends.

python -m tests.contracts.notify_setter DATABASE_URL
"""

import sys

from supervisor.reconciler.system_clock import EventWake
from supervisor.storage.engine.database import Database
from supervisor.storage.engine.notify_wake import NotifyWake

if __name__ == "__main__":
    database = Database(sys.argv[1])
    wake = NotifyWake(database, EventWake())
    wake.start()
    wake.set()
    sys.stdin.read()  # the request is sent; the parent ends this process when it has arrived
    wake.close()
    database.close()
