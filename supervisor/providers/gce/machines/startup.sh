#!/bin/bash
# The start-up script of a machine: from a booted Container-Optimized OS to the agent in the user's own image.
#
# The text is fixed: every value comes from the metadata server, and none is inserted into it. The script reports its
# steps as beats to beats/<RUN_ID>~boot (sequences 1 to 99, the agent continues at 100) and to the serial console:
#     spot: phase=PHASE t=UPTIME_S [key=value ...] msg="..."
# It uses only what Container-Optimized OS has: no Python, no jq. At its end it always switches the machine off, so that
# the bill stops even if no other program does it; after a TERM the machine is already shutting down.
# SPOT_ROOT is the prefix of every absolute path of the machine: empty on a real machine, a folder in the tests.
#
# Three files make one script, in this order: startup.sh (reports and metadata), startup_machine.sh (GPUs and disks),
# startup_container.sh (image, agent, container, and the order of all steps).
# shellcheck disable=SC2034 # names that the other two files use
set -uo pipefail
umask 022
export LC_ALL=C

ROOT=${SPOT_ROOT:-}
METADATA=http://${GCE_METADATA_HOST:-169.254.169.254}/computeMetadata/v1
BOOT=$ROOT/run/spot # of this boot: the next boot starts without it
NVIDIA=$ROOT/var/lib/nvidia
export DOCKER_CONFIG=$BOOT/docker # the home folder of Container-Optimized OS is read-only
export PATH=$PATH:$NVIDIA/bin

PAUSES=(1 2 4 8 15 30 30 30 60) # seconds between the tries of a step that must succeed
PHASE=boot SEQUENCE=0 BEATEN_AT=0
RUN_ID='' DRIVER_READY='' TERMED='' WORK='' AHEAD=''

# --- reports -----------------------------------------------------------------------------------------------------

quoted() { # TEXT as a JSON string; no control characters in it
    local text=${1//\\/\\\\}
    printf '"%s"' "${text//\"/\\\"}"
}

json() { # TEXT as a JSON string: printable characters only, at most 290
    local text=${1//[^ -~]/ }
    quoted "${text:0:290}"
}

uptime_s() { # not the wall clock, which is corrected at some time during the boot
    local up
    read -r up _ <"$ROOT/proc/uptime"
    echo "${up%.*}"
}

say() { # PHASE MESSAGE [key=value ...]
    local phase=$1 message=$2
    shift 2
    printf 'spot: phase=%s t=%s%s msg=%s\n' "$phase" "$(uptime_s)" "${*:+ $*}" "$(json "$message")"
}

report() { # PHASE MESSAGE: on the serial console and as a beat
    PHASE=$1
    say "$PHASE" "$2"
    beat "$2"
}

beat() { # MESSAGE [LEFT]: best effort, with short timeouts; the last sequences are reserved for the last message
    local PAUSES=() left=${2:+,\"left\":\"$2\"} last=95 text body status
    [ -z "$left" ] || last=99
    [ -n "$RUN_ID" ] && ((SEQUENCE < last)) || return 0
    SEQUENCE=$((SEQUENCE + 1))
    BEATEN_AT=$(uptime_s)
    text="{\"run_id\":\"$RUN_ID\",\"attempt\":$ATTEMPT,\"launch_id\":\"$LAUNCH_ID\",\"machine_id\":\"$MACHINE_ID\""
    text+=",\"boot_id\":\"$BOOT_ID\",\"sequence\":$SEQUENCE,\"phase\":\"$PHASE\",\"nonce\":$NONCE"
    text+=",\"message\":$(json "$1")$left}"
    body="{\"name\":$BEAT_NAME,\"metadata\":{\"beat\":$(quoted "$text")}}"
    body="--spot-beat"$'\r\n'"Content-Type: application/json"$'\r\n\r\n'"$body"$'\r\n'
    body+="--spot-beat"$'\r\n'"Content-Type: application/json"$'\r\n\r\n'"$text"$'\r\n'"--spot-beat--"$'\r\n'
    status=$(printf '%s' "$body" | curl -s --connect-timeout 3 --max-time 5 -o /dev/null -w '%{http_code}' \
        -H @<(bearer) -H 'Content-Type: multipart/related; boundary=spot-beat' \
        --data-binary @- "$STORAGE/upload/storage/v1/b/$BUCKET/o?uploadType=multipart")
    [ "$status" = 200 ] && return
    say "$PHASE" "a beat could not be stored: HTTP $status"
    return 1
}

give_up() { # LEFT MESSAGE: the last message, then the end
    local pause
    say "$PHASE" "$2" "left=$1"
    for pause in 2 4 0; do
        beat "$2" "$1" && break
        sleep "$pause"
    done
    exit 1
}

# --- the end -----------------------------------------------------------------------------------------------------

# There are two shells: one works, and one waits. bash runs a trap only between two commands, and bash 5.2 fails on a
# signal that comes while it reads a $(...); so the shell that gets the TERM does nothing but wait.
run_to_the_end() { # COMMAND
    trap on_term TERM INT
    trap switch_off EXIT
    trap '' PIPE # the reader of our output may end first
    "$1" &
    WORK=$!
    wait "$WORK"
}

on_term() {
    trap '' TERM INT
    TERMED=1
    # Repeated each second: a container that is still starting does not get the signal.
    while stop_container; do sleep 1; done
    kill "$WORK" 2>/dev/null
    exit 143
}

# A container may outlive its daemon (live-restore), and a daemon may hang: then its processes get the signal directly.
# The brackets keep grep from finding its own pattern. $MACHINE: of startup_container.sh.
stop_container() {
    local file sent=1
    timeout -k 1 3 docker kill --signal TERM spot >/dev/null 2>&1 && return 0 # in a trap a bare return has an earlier status
    while read -r file; do
        file=${file%/cmdline}
        kill -TERM "${file##*/}" 2>/dev/null && sent=0
    done < <(grep -slE "$MACHINE/[a]gent[.]pyz" "$ROOT"/proc/[0-9]*/cmdline)
    return "$sent"
}

switch_off() {
    if [ -n "$TERMED" ]; then
        say off "received TERM: the machine is shutting down"
    else
        say off "switching the machine off"
        poweroff || systemctl poweroff --force
    fi
}

# systemd signals only the program that started this script, and stops docker at the same time, so the container may
# never get the signal. Units stop in the reverse order of After=: with this drop-in docker and containerd run until this
# script has ended. It is in /run, so it applies to this boot.
stop_docker_later() {
    local folder=$ROOT/run/systemd/system/google-startup-scripts.service.d
    mkdir -p "$folder" && printf '%s\n' '[Unit]' 'After=docker.service containerd.service' \
        '[Service]' 'KillMode=control-group' >"$folder/spot.conf" && systemctl daemon-reload
}

# --- metadata ----------------------------------------------------------------------------------------------------

metadata() { # PATH [DEFAULT]: the value in $VALUE; fails where it cannot be read, or is missing and has no default
    local response pause
    if [[ -n $AHEAD && -e $AHEAD/${1##*/} ]]; then
        VALUE=$(<"$AHEAD/${1##*/}")
        return
    fi
    for pause in "${PAUSES[@]}" 0; do
        response=$'\n404'
        if ! [[ -n $AHEAD && $1 == instance/attributes/spot-* ]]; then
            response=$(curl -s --max-time 5 -w '\n%{http_code}' -H 'Metadata-Flavor: Google' "$METADATA/$1") || response=''
        fi
        case ${response##*$'\n'} in
            200)
                VALUE=${response%$'\n'*}
                return
                ;;
            404)
                VALUE=${2:-}
                [ $# -eq 2 ]
                return
                ;;
        esac
        [ "$pause" = 0 ] || sleep "$pause"
    done
    return 1
}

# All values by one curl, whose start takes longer than a response. Attributes that are not in the list are not there.
# Where any part of it fails, each value is read by itself.
read_ahead() { # the folder of the values in $AHEAD
    local PAUSES=() folder=$BOOT/metadata name paths=(instance/id instance/name) requests=()
    metadata instance/attributes/ || return
    for name in $VALUE; do [[ $name != spot-* ]] || paths+=("instance/attributes/$name"); done
    for name in "${paths[@]}"; do requests+=(-o "$folder/${name##*/}" "$METADATA/$name"); done
    mkdir "$folder" && curl -sf --fail-early --max-time 5 -H 'Metadata-Flavor: Google' "${requests[@]}" && AHEAD=$folder
}

attribute() { # NAME PATTERN [DEFAULT]: its value in $VALUE; gives up if it is missing, unreadable or of another form
    metadata "instance/attributes/$1" "${@:3}" || give_up no_start "the metadata value $1 cannot be read"
    [[ $VALUE =~ ^($2)$ ]] || give_up no_start "the metadata value $1 is not valid"
}

token() {
    local VALUE pattern='"access_token" *: *"([^"]*)"'
    metadata instance/service-accounts/default/token && [[ $VALUE =~ $pattern ]] && printf '%s' "${BASH_REMATCH[1]}"
}

bearer() { printf 'Authorization: Bearer %s' "$(token)"; } # for curl -H @FILE: all users can see arguments

percent() { # TEXT as one part of a URL
    local index char code
    for ((index = 0; index < ${#1}; index++)); do
        char=${1:index:1}
        case $char in
            [a-zA-Z0-9.~_-]) printf '%s' "$char" ;;
            *) printf -v code '%d' "'$char" && printf '%%%02X' $((code & 255)) ;;
        esac
    done
}

read_metadata() {
    local count='0|[1-9][0-9]{0,8}' text='[^[:cntrl:]]*'
    read_ahead
    metadata instance/id || give_up no_start "the metadata server cannot be read"
    MACHINE_ID=$VALUE
    metadata instance/name || give_up no_start "the metadata server cannot be read"
    NAME=$VALUE
    BOOT_ID=$(<"$ROOT/proc/sys/kernel/random/boot_id")
    attribute spot-storage-endpoint 'https?://[a-zA-Z0-9.:/_-]+' https://storage.googleapis.com && STORAGE=${VALUE%/}
    attribute spot-bucket '[a-z0-9][a-z0-9._-]+' && BUCKET=$VALUE
    attribute spot-prefix "$text" '' && PREFIX=$VALUE
    attribute spot-attempt '[1-9][0-9]{0,8}' && ATTEMPT=$VALUE
    attribute spot-launch-id '[0-9]+[.-][0-9]+[.-][0-9]+' && LAUNCH_ID=${VALUE//-/.}
    attribute spot-nonce "$text" '' && NONCE=$(quoted "$VALUE")
    attribute spot-run-id '[a-z][a-z0-9-]*[a-z0-9]' && BEAT_NAME=$(quoted "${PREFIX}beats/$VALUE~boot")
    RUN_ID=$VALUE # from here on beats can be sent
    attribute spot-gpus "$count" 0 && GPUS=$VALUE
    attribute spot-gpu-timeout-sec "$count" 1200 && GPU_TIMEOUT_S=$VALUE
    attribute spot-gpu-driver-version '[A-Za-z0-9.]+' default && DRIVER=$VALUE
    attribute spot-base '(true)?' '' && BASE=$VALUE
    attribute spot-prepares '[a-z0-9-]*' '' && PREPARES=$VALUE
    attribute spot-image-ref '[a-zA-Z0-9][a-zA-Z0-9._/:@-]*' && IMAGE=$VALUE
    attribute spot-shm-size '[0-9]+[bkmgBKMG]?' 2g && SHM_SIZE=$VALUE
    attribute spot-agent-sha256 '[0-9a-f]{64}' && AGENT_SHA256=$VALUE
    attribute spot-keep 'true|false' false && KEEP=${VALUE/false/}
    attribute spot-data-disk-device-name '[a-zA-Z0-9_-]*' '' && DISK=$VALUE
    attribute spot-data-disk-mount-path '/[^:]*' /mnt/disks/data && DISK_MOUNT=$VALUE
    attribute spot-data-disk-fs-type '[a-z0-9]+' ext4 && DISK_FS=$VALUE
    attribute spot-data-disk-read-only 'true|false' false && DISK_READ_ONLY=${VALUE/false/}
}
