#!/bin/bash
# The script's pauses, so many times as short as the scene says: a test with a flaky registry takes no minutes.
hurry=$(cat "$VM_STUB/hurry")
exec "$VM_SLEEP" "$(($1 / hurry)).$(printf '%03d' $(($1 % hurry * 1000 / hurry)))"
