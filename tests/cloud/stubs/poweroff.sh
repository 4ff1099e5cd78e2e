#!/bin/bash
record=$(printf '%s\037' "$@")
printf '%s\036' "$record" >>"$VM_STUB/calls/poweroff"
