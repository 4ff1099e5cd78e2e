#!/bin/bash
# The script's pauses, twenty times as short; so a test with a flaky registry takes no minutes.
exec "$VM_SLEEP" "$(($1 / 20)).$(printf '%03d' $(($1 % 20 * 50)))"
