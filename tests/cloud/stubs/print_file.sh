#!/bin/bash
# lspci and dmesg: prints the file of that name.
cat "$VM_STUB/${0##*/}"
