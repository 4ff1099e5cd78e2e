#!/bin/bash
# lspci and dmesg: what the files of these names say.
cat "$VM_STUB/${0##*/}"
