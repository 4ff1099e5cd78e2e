#!/bin/bash
printf -v record '%s\037' "$@"
printf '%s\036' "$record" >>"$VM_STUB/calls/poweroff"
