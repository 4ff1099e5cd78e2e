#!/bin/sh
# The first process of the pod. Its text is fixed; what a user wrote is in files of a Secret.
#
# It fills the machine's folder, finds a Python of the image, and becomes the agent, so that TERM reaches it. The machine
# of the agent is the Job and this very pod: a second pod of the Job finds the baton held under another id and ends.
of_image=$(umask)
umask 077
folder=$SPOT_MACHINE_DIR
mkdir -p "$folder" || exit 5
cp "$SPOT_AGENT_DIR/agent.pyz" "$folder/agent.pyz" || exit 5
cp "$SPOT_JOB_DIR/job.json" "$folder/job.json" || exit 5
printf '{"machine_id": "%s.%s"}\n' "$SPOT_JOB_UID" "$SPOT_POD_UID" >"$folder/identity.json" || exit 5
umask "$of_image" # the supervisor, as another user, reads what the agent writes into a store on a claim
for python in python3 python python3.14 python3.13 python3.12 python3.11 python3.10 python3.9 python3.8; do
    if "$python" -c "import sys; sys.exit(sys.version_info < (3, 8))" 2>/dev/null; then
        exec "$python" "$folder/agent.pyz" "$folder"
    fi
done
echo "no Python 3.8 or newer in this image; python3 is: $(python3 --version 2>&1)" >&2
exit 6
