#!/bin/bash
# Binds and remounts change nothing here. A disk is a folder that outlives the machine's: mounted, it takes the folder's
# place as a link.
printf -v record '%s\037' "$@"
printf '%s\036' "$record" >>"$VM_STUB/calls/mount"
[ "${2#ro,}" = "${2:-}" ] || shift 2 # -o ro,...: of a disk that many have
case $1 in
    -*) exit 0 ;;
esac
if ! grep -q ext4 "$1"; then
    echo "mount: $2: wrong fs type, bad option, bad superblock on $1." >&2
    exit 32
fi
content=$(readlink -f "$1").content
mkdir -p "$content" && rmdir "$2" && ln -s "$content" "$2"
