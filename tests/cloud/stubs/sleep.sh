#!/bin/bash
# The script's pauses, so many times as short as the scene says: a test with a flaky registry takes no minutes.
read -r hurry <"$VM_STUB/hurry"
printf -v rest '%03d' $(($1 % hurry * 1000 / hurry))
exec "$VM_SLEEP" "$(($1 / hurry)).$rest"
