#!/bin/bash
printf -v record '%s\037' "${0##*/}" "$@"
printf '%s\036' "$record" >>"$VM_STUB/calls/mkfs"
printf '%s' "${0##*mkfs.}" >"${*: -1}"
