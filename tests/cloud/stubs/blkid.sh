#!/bin/bash
# A disk is a file; one with a file system holds its name. `blkid` holds another exit code than 0 and 2, if any.
code=$(cat "$VM_STUB/blkid")
[ -z "$code" ] || exit "$code"
type=$(cat "${*: -1}")
[ -n "$type" ] || exit 2
echo "${*: -1}: TYPE=\"$type\""
