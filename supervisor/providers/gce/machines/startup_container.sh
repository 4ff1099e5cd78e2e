# shellcheck shell=bash
# Part three of the start-up script (see startup.sh): image, agent and container, and the order of all steps.

MACHINE=$ROOT/var/lib/spot/machine # job, agent and training; the same path inside the container
KEPT_IMAGE=spot-base      # the prepared container on the disk of a base
PREPARED_S=3600           # how long a prepared machine waits for the image of its disk
KEPT=$ROOT/var/lib/spot/kept # the same path inside the container too
PULL_S=1800               # the time limit of one pull: docker itself waits forever
NO_PYTHON=90 OLD_PYTHON=4 # exit codes of the launcher and the agent in an image without Python >= 3.8

# Runs in the image's /bin/sh; $1 = the machine folder, $2 and $3 = the driver's libraries and programs, if any. The
# libraries come before those of the image, because they must match the kernel's driver; the programs come after.
# shellcheck disable=SC2016
LAUNCHER='
if [ -n "${2:-}" ]; then
    export LD_LIBRARY_PATH="$2${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" PATH="$PATH:$3"
fi
for python in python3 python python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 python3.8; do
    if "$python" -c "import sys; sys.exit(sys.version_info < (3, 8))" 2>/dev/null; then
        exec "$python" "$1/agent.pyz" "$1"
    fi
done
echo "no Python 3.8 or newer in this image; python3 is: $(python3 --version 2>&1)" >&2
exit '$NO_PYTHON

log_in() { # to Google's registries, with a current token
    case ${IMAGE%%/*} in
        *.pkg.dev | gcr.io | *.gcr.io)
            token | timeout 60 docker login -u oauth2accesstoken --password-stdin "https://${IMAGE%%/*}" || return 1
            ;;
    esac
}

pull() { log_in && timeout -k 10 "$PULL_S" docker pull --quiet "$IMAGE"; }

pull_image() {
    local pause words code began
    began=$(uptime_s)
    if [ -n "$BASE" ]; then # the container of the base is on this disk already, with all that its script has made
        docker image inspect "$KEPT_IMAGE" >/dev/null 2>&1 || give_up no_image "the base has no container on its disk"
        IMAGE=$KEPT_IMAGE
        report image "starting from the base, without a pull"
        return
    fi
    report image "pulling $IMAGE"
    for pause in "${PAUSES[@]}" 0; do
        pull >"$BOOT/pull.log" 2>&1
        code=$?
        case $code in
            0)
                report image "image pulled in $(($(uptime_s) - began)) s, starting the container"
                return
                ;;
            124 | 137) give_up no_start "${IMAGE%%@*} cannot be pulled: the pull took more than $PULL_S s" ;;
        esac
        words=$(grep . "$BOOT/pull.log" | tail -n 1)
        words=${words#Error response from daemon: }
        if is_final "$words"; then
            give_up no_image "${IMAGE%%@*} cannot be pulled: $words"
        fi
        [ "$pause" = 0 ] || report image "retry in $pause s: $words"
        sleep "$pause"
    done
    # "Denied" is final only now: a new role takes minutes to reach every registry.
    ! matches "$words" 'denied|unauthorized' || give_up no_image "${IMAGE%%@*} cannot be pulled: $words"
    give_up no_start "${IMAGE%%@*} cannot be pulled: $words"
}

is_final() { matches "$1" 'not found|(manifest|name) unknown|invalid reference|no matching manifest'; } # WORDS

matches() { # WORDS PATTERN: an error of docker pull about the image, not about a registry with a temporary problem
    grep -qiE "$2" <<<"$1" && ! grep -qiE 'quota|too ?many ?requests|time-?out|docker daemon' <<<"$1"
}

write_machine_folder() { # a folder of an earlier boot is not used: the store has the state that counts
    docker rm --force spot >/dev/null 2>&1
    rm -rf "$MACHINE" 2>/dev/null # the folder itself stays, because it is mounted on itself
    executable "$MACHINE"
    chmod 777 "$MACHINE" # the image may run as any user
    # Many images have no certificates of their own, and the agent uses TLS.
    cp "$ROOT/etc/ssl/certs/ca-certificates.crt" "$MACHINE" || say image "the image's own certificates are used"
    printf '{"machine_id": "%s"}\n' "$MACHINE_ID" >"$MACHINE/identity.json"
    { metadata instance/attributes/spot-job && printf '%s' "$VALUE"; } | base64 -d | gzip -dc >"$MACHINE/job.json" \
        || give_up no_start "the metadata value spot-job cannot be read"
    { metadata instance/attributes/spot-job-command && printf '%s' "$VALUE"; } | base64 -d >"$MACHINE/command" \
        || give_up no_start "the metadata value spot-job-command cannot be read"
    fetch_agent
}

fetch_agent() {
    local url pause response
    url="$STORAGE/storage/v1/b/$BUCKET/o/$(percent "${PREFIX}agents/$AGENT_SHA256.pyz")?alt=media"
    for pause in "${PAUSES[@]}" 0; do
        response=$(curl -sS --connect-timeout 10 --max-time 120 -o "$MACHINE/agent.pyz" -w 'HTTP %{http_code}' \
            -H @<(bearer) "$url" 2>&1)
        if [ "$response" = "HTTP 200" ]; then
            sha256sum "$MACHINE/agent.pyz" | grep -q "^$AGENT_SHA256 " && return
            response="its content has another hash"
        fi
        [ "$pause" = 0 ] || report image "the agent cannot be fetched, retry in $pause s: $response"
        sleep "$pause"
    done
    give_up no_start "the agent cannot be fetched: $response"
}

run_container() { # no --gpus, no --runtime: docker supports neither here
    local arguments=(--name spot --network host --shm-size "$SHM_SIZE" --stop-timeout 30 --log-driver local)
    local device driver=()
    arguments+=(-e "SPOT_MACHINE=$NAME" -e "SPOT_MACHINE_DIR=$MACHINE" -v "$MACHINE:$MACHINE")
    [ -z "${GCE_METADATA_HOST:-}" ] || arguments+=(-e "GCE_METADATA_HOST=$GCE_METADATA_HOST")
    [ -z "$SCRATCH_FOLDER" ] || arguments+=(-v "$SCRATCH_FOLDER:$SCRATCH" -e "SPOT_SCRATCH_DIR=$SCRATCH")
    if [ -n "$KEEP" ]; then # on the boot disk, which stays when the machine is switched off
        mkdir -p "$KEPT" && chmod 1777 "$KEPT"
        arguments+=(-v "$KEPT:$KEPT" -e "SPOT_KEEP_DIR=$KEPT")
    fi
    [ -z "$DISK" ] || arguments+=(-v "$DISK_FOLDER:$DISK_MOUNT${DISK_READ_ONLY:+:ro}")
    if ((GPUS > 0)); then
        for device in "$ROOT"/dev/nvidia[0-9]* "$ROOT"/dev/nvidia{ctl,-uvm,-uvm-tools}; do
            [ ! -e "$device" ] || arguments+=(--device "$device:${device#"$ROOT"}")
        done
        if [ -d "$NVIDIA/lib64" ]; then
            driver=(/usr/local/nvidia/lib64 /usr/local/nvidia/bin)
            arguments+=(-v "$NVIDIA/lib64:${driver[0]}:ro" -v "$NVIDIA/bin:${driver[1]}:ro")
        fi
    fi
    arguments+=(--entrypoint /bin/sh "$IMAGE" -c "$LAUNCHER" spot "$MACHINE" "${driver[@]}")
    mkfifo "$BOOT/output"
    relay <"$BOOT/output" &
    say container "starting"
    docker run "${arguments[@]}" >"$BOOT/output" 2>&1
    CODE=$?
    wait # for the relay's last lines
}

relay() { # the container's output, with limits for each line and their number, because the console keeps 1 MB
    local line count=0
    trap '' TERM
    while IFS= read -r -n 1000 line || [ -n "$line" ]; do
        printf 'spot: container: %s\n' "$line"
        printf '%s\n' "$line" >>"$BOOT/container.log"
        ((++count < 3000)) && continue
        say container "more than 3000 lines: the rest is left out"
        cat >/dev/null
    done
}

explain() { # exit codes of docker run: https://docs.docker.com/engine/containers/run/#exit-status
    local words # a TERM in the middle closes the pipe of `tail`, which would complain
    words=$({ grep -v -e '^$' -e "docker run --help" "$BOOT/container.log" | tail -n 3; } 2>/dev/null)
    say end "the container has ended" "code=$CODE"
    case $CODE in
        125)
            if ((GPUS > 0)) && grep -qiE 'nvidia|cdi|invalid runtime|device|/dev/' <<<"$words"; then
                give_up no_gpu "docker could not give the container its GPUs: $words"
            fi
            give_up no_start "docker could not start the container: $words"
            ;;
        126 | 127) give_up no_image "the image has no /bin/sh that can be started: $words" ;;
        "$NO_PYTHON" | "$OLD_PYTHON") give_up no_image "$words" ;;
    esac
    # Any other end came after the agent's start, and the agent reports it itself, unless it could not even begin.
    ((CODE == 0 || CODE > 128)) || give_up no_start "the agent has ended with exit code $CODE: $words"
}

# --- a machine that becomes a base: its container is kept as an image, and nothing else of the run stays on the disk -----

keep_prepared() {
    local folder
    [ -e "$MACHINE/prepared" ] || return 0 # the run has not succeeded: the machine is of no use
    say prepared "keeping the container for $PREPARES"
    docker commit spot "$KEPT_IMAGE" >"$BOOT/commit.log" 2>&1 \
        || give_up no_start "the container cannot be kept: $(tail -n 1 "$BOOT/commit.log")"
    docker rm --force spot >/dev/null 2>&1
    rm -rf "${MACHINE:?}"/* "${MACHINE:?}"/.[!.]* 2>/dev/null
    for folder in "$ROOT"/home/*; do
        [ -d "$folder" ] && rm -rf "${folder:?}"/* "${folder:?}"/.[!.]*
    done
    rm -rf "$ROOT"/var/log/journal/* "$ROOT"/var/tmp/* "$ROOT"/tmp/spot-* 2>/dev/null
    rm -f "$ROOT"/etc/ssh/ssh_host_* "$ROOT"/mnt/stateful_partition/etc/ssh/ssh_host_* 2>/dev/null
    systemctl stop docker.socket docker.service containerd.service
    sync
    report_prepared || give_up no_start "the store does not take the report that this machine is prepared"
    say prepared "clean: waiting for the image of this disk"
    sleep "$PREPARED_S" # the supervisor deletes this machine as soon as its image is there
}

report_prepared() {
    local pause status object
    object=$(percent "${PREFIX}runs/$RUN_ID/instances/$ATTEMPT.prepared.json")
    for pause in "${PAUSES[@]}" 0; do
        status=$(printf '{"launch_id": "%s"}' "$LAUNCH_ID" | curl -s --connect-timeout 10 --max-time 30 -o /dev/null \
            -w '%{http_code}' -H @<(bearer) -H 'Content-Type: application/json' --data-binary @- \
            "$STORAGE/upload/storage/v1/b/$BUCKET/o?uploadType=media&name=$object")
        [ "$status" = 200 ] && return
        sleep "$pause"
    done
    return 1
}

work() {
    stop_docker_later
    read_metadata
    report boot "machine $NAME ($MACHINE_ID), attempt $ATTEMPT of $RUN_ID"
    prepare_gpus
    mount_scratch
    mount_disk
    pull_image
    write_machine_folder
    run_container
    [ -z "$PREPARES" ] || keep_prepared
    explain
}

mkdir -p "$ROOT/run"
if mkdir "$BOOT" 2>/dev/null || ! [ -d "$BOOT" ]; then
    run_to_the_end work
else
    say boot "this script has already run in this boot: nothing is done"
fi
