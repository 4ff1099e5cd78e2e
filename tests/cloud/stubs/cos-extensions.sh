#!/bin/bash
# The tool that brings the GPU driver to Container-Optimized OS. `driver` tells how it ends: ok, or its words as it fails.
printf -v record '%s\037' "$@"
printf '%s\036' "$record" >>"$VM_STUB/calls/cos-extensions"
if [ "$1" = list ]; then
    echo "Available extensions for COS version 117-18613.0.0: [gpu] default 535.288.01"
    exit
fi
driver=$(head -n 1 "$VM_STUB/driver")
if [ "$(wc -l <"$VM_STUB/driver")" -gt 1 ]; then sed -i 1d "$VM_STUB/driver"; fi
if [ "$driver" != ok ]; then
    echo "$driver"
    exit 1
fi
mkdir -p "$SPOT_ROOT/var/lib/nvidia/bin" "$SPOT_ROOT/var/lib/nvidia/lib64"
ln -sf "$VM_STUBS/nvidia-smi.sh" "$SPOT_ROOT/var/lib/nvidia/bin/nvidia-smi"
ln -sf "$VM_STUBS/nvidia-persistenced.sh" "$SPOT_ROOT/var/lib/nvidia/bin/nvidia-persistenced"
echo "Finished installing the drivers."
