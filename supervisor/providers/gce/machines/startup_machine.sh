# shellcheck shell=bash
# Part two of the start-up script (see startup.sh): the machine's GPUs and its disks.
# shellcheck disable=SC2034 # names that part three uses

executable() { # FOLDER: nothing below /var can be executed, in a container either
    if ! { mkdir -p "$1" && mount --bind "$1" "$1" && mount -o remount,exec "$1"; }; then
        say "$PHASE" "programs in $1 may not be executable"
    fi
}

# --- GPUs: the driver is installed at every boot, because its kernel modules are not kept ------------------------

# An installer that fails quickly, with the same message this often and this long, will not succeed any more.
SAME_FAILURES=5 SAME_FAILURES_S=180 AT_ONCE_S=30

prepare_gpus() {
    local end found=0 words='' same=0 same_since=0
    ((GPUS > 0)) || return 0
    report driver "installing the GPU driver ($DRIVER) for $GPUS GPUs"
    end=$(($(uptime_s) + GPU_TIMEOUT_S))
    while :; do
        [ -n "$DRIVER_READY" ] || install_driver $((end - $(uptime_s)))
        found=$(cards)
        ((found < GPUS)) || break
        (($(uptime_s) < end)) || without_gpus "$found of $GPUS GPUs after $GPU_TIMEOUT_S s"
        ((same < SAME_FAILURES || $(uptime_s) < same_since + SAME_FAILURES_S)) \
            || without_gpus "the driver installer failed $same times with the same message within $(($(uptime_s) - same_since)) s"
        (($(uptime_s) < BEATEN_AT + 60)) || report driver "waiting for GPUs: $found of $GPUS respond"
        sleep 10
    done
    if ! [ -e "$ROOT/dev/nvidia-uvm" ] && ! nvidia-modprobe -u -c 0; then
        say driver "there is no /dev/nvidia-uvm: CUDA will not find the GPUs"
    fi
    start_persistence
    report driver "$found GPUs respond, driver $(ask_cards --query-gpu=driver_version --format=csv,noheader | head -n 1)"
}

count_failure() { # BEGAN_S WORDS: for prepare_gpus; a slow failure, or another message, starts a new count
    local now like=${2//[0-9]/} # without times and process ids
    now=$(uptime_s)
    if [ "$like" != "$words" ] || ((now - $1 > AT_ONCE_S)); then
        words=$like same=0 same_since=$1
    fi
    same=$((same + 1))
}

# Without it the driver unloads the cards when their last process ends, and each program waits for them again. Google's
# own script for preloaded drivers starts it in the same way.
start_persistence() {
    command -v nvidia-persistenced >/dev/null || return 0
    LD_LIBRARY_PATH=$NVIDIA/lib64 timeout 30 nvidia-persistenced \
        || say driver "nvidia-persistenced could not be started: each program waits for the cards again"
}

install_driver() { # WITHIN_S, at least one; a machine without cos-extensions already has its driver, or never gets one
    local began
    if command -v cos-extensions >/dev/null; then
        timeout 120 systemctl start gcr-online.target docker.socket
        began=$(uptime_s)
        if ! timeout -k 10 $(($1 > 0 ? $1 : 1)) cos-extensions install gpu -- "-version=$DRIVER" >>"$BOOT/driver.log" 2>&1; then
            say driver "the driver could not be installed: $(tail -n 1 "$BOOT/driver.log")"
            count_failure "$began" "$(tail -n 1 "$BOOT/driver.log")"
            return
        fi
        say driver "the driver is installed"
        executable "$NVIDIA"
    fi
    DRIVER_READY=1
}

ask_cards() { LD_LIBRARY_PATH=$NVIDIA/lib64 timeout 30 nvidia-smi "$@" 2>&1; }

cards() { ask_cards -L | grep -c '^GPU '; }

without_gpus() { # WORDS: prints all possible reasons, then the end
    {
        lspci | grep -i nvidia || echo "lspci: no NVIDIA device"
        dmesg | grep -iE 'nvrm|nvidia' | tail -n 20
        ls -l "$ROOT"/dev/nvidia*
        ask_cards | tail -n 20
        ! command -v cos-extensions >/dev/null || cos-extensions list | tail -n 20
        tail -n 30 "$BOOT/driver.log" "$NVIDIA/nvidia-installer.log"
    } 2>&1 | sed 's/^/spot: gpu: /'
    give_up no_gpu "$1; $(tail -n 1 "$BOOT/driver.log" 2>/dev/null)"
}

# --- local SSDs: billed with the machine types that include them, so they are used; their content ends with the machine

SCRATCH=/mnt/disks/scratch SCRATCH_FOLDER='' # the second is its path outside the container

mount_scratch() { # a failure does not end the boot, because no local SSD was promised
    local found=() device
    for device in "$ROOT"/dev/disk/by-id/google-local-{nvme-ssd,ssd}-[0-9]*; do
        [[ ! -e $device || $device == *-part* ]] || found+=("$device")
    done
    ((${#found[@]} > 0)) || return 0
    say disk "making scratch space of ${#found[@]} local SSDs"
    if make_scratch "${found[@]}" >"$BOOT/scratch.log" 2>&1; then
        SCRATCH_FOLDER=$ROOT/mnt/disks/scratch
        return
    fi
    say disk "the local SSDs cannot be used: $(tail -n 1 "$BOOT/scratch.log")"
}

make_scratch() { # DEVICE...: several become one striped device
    local device=$1 folder=$ROOT/mnt/disks/scratch
    if (($# > 1)); then
        device=$ROOT/dev/md/spot-scratch
        mkdir -p "${device%/*}"
        mdadm --create "$device" --run --force --level=0 "--raid-devices=$#" "$@" || return 1
    fi
    mkdir -p "$folder" && mkfs.ext4 -q -F -m 0 "$device" && mount "$device" "$folder" && chmod 1777 "$folder"
}

# --- the data disk: formatted only if it is empty, and an unreadable disk is not an empty disk -------------------

mount_disk() {
    local device=$ROOT/dev/disk/by-id/google-$DISK
    [ -n "$DISK" ] || return 0
    DISK_FOLDER=$ROOT/mnt/disks/$DISK
    say disk "mounting the data disk $DISK"
    for _ in {1..30}; do [ -e "$device" ] || sleep 2; done
    mount_device "$device" >"$BOOT/disk.log" 2>&1 || give_up no_start "data disk $DISK: $(tail -n 1 "$BOOT/disk.log")"
}

mount_device() { # DEVICE
    mkdir -p "$DISK_FOLDER" && head -c 512 "$1" >/dev/null || return 1
    if [ -n "$DISK_READ_ONLY" ]; then # shared by many machines: none of them replays its journal or formats it
        local replay=noload
        [ "$DISK_FS" = ext4 ] || replay=norecovery
        mount -o "ro,$replay" "$1" "$DISK_FOLDER"
        return
    fi
    blkid -p "$1"
    case $? in
        0) mount "$1" "$DISK_FOLDER" ;;
        2) "mkfs.$DISK_FS" "$1" && mount "$1" "$DISK_FOLDER" && chmod 1777 "$DISK_FOLDER" ;;
        *) return 1 ;;
    esac
}
