#!/bin/bash
# docker as Container-Optimized OS has it: no nvidia runtime, no CDI. An image is a folder of programs on this computer
# (tests/cloud/vm.py lays it out), a container is a process started with nothing but its own environment.
printf -v record '%s\037' "$@"
printf '%s\036' "$record" >>"$VM_STUB/calls/docker"
container=$VM_STUB/container # its first process, while it runs
case $1 in
    login)
        password=$(cat)
        case $password in
            ya29.*) echo "Login Succeeded" ;;
            *) echo "Error: Password Required" >&2 && exit 1 ;;
        esac
        ;;
    pull)
        what=$(head -n 1 "$VM_STUB/pulls") # one line for each pull to come; the last one stays
        if [ "$(wc -l <"$VM_STUB/pulls")" -gt 1 ]; then sed -i 1d "$VM_STUB/pulls"; fi
        case $what in
            ok) echo "${*: -1}" ;;
            hang) exec sleep 600 ;;
            *) echo "Error response from daemon: $what" >&2 && exit 1 ;;
        esac
        ;;
    run) exec "$VM_PYTHON" -S -E "$VM_STUBS/docker_run.py" "$@" ;;
    kill)
        case $(cat "$VM_STUB/daemon" 2>/dev/null) in # of docker; its containers outlive it (live-restore)
            hang) exec "$VM_SLEEP" 600 ;;
            gone) echo "Cannot connect to the Docker daemon. Is the docker daemon running?" >&2 && exit 1 ;;
        esac
        if ! kill -s "$3" "$(cat "$container" 2>/dev/null)" 2>/dev/null; then
            echo "Error response from daemon: No such container: $4" >&2 && exit 1
        fi
        ;;
    commit) # a container that has ended is kept as an image; the second word is its name
        mkdir -p "$SPOT_ROOT/var/lib/docker/kept" && touch "$SPOT_ROOT/var/lib/docker/kept/$3"
        ;;
    image) # inspect NAME
        [ -e "$SPOT_ROOT/var/lib/docker/kept/$3" ] || { echo "Error: No such image: $3" >&2 && exit 1; }
        ;;
    rm) # one of an earlier boot has its name still
        [ -e "$container" ] || { echo "Error response from daemon: No such container: $3" >&2 && exit 1; }
        kill -s KILL "$(cat "$container")" 2>/dev/null
        rm -f "$container"
        ;;
    *) echo "docker: '$1' is not a command that the stub knows" >&2 && exit 1 ;;
esac
