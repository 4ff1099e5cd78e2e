#!/bin/bash
printf -v record '%s\037' "LD_LIBRARY_PATH=$LD_LIBRARY_PATH" "$@"
printf '%s\036' "$record" >>"$VM_STUB/calls/nvidia-persistenced"
[ ! -e "$VM_STUB/persistenced-fails" ]
