#!/bin/bash
# The job of one machine: FOLDER PYTHON [MODULE ...] [-- WORD ...]. Its text is fixed; what a user wrote is in files of
# the folder. The words are those of a container, before the agent's own.
#
# The agent takes the place of this shell, so that the signals of --signal=B: and scancel --batch reach it. Until it
# listens, the warning is ignored. Each start of the job adds a line to `starts`: the first one is the machine, and a
# later one finds the baton held under another id and ends. Apptainer takes this shell's place in the same way, and
# passes each signal on to the agent, because a job has no terminal.
folder=$1
python=$2
shift 2
trap '' USR1
unset SLURM_EXPORT_ENV SLURM_TIME_FORMAT
if [ -n "${SLURM_CPUS_PER_TASK:-}" ]; then
    export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK # since 22.05 an srun in the job needs it
fi
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    module load "$1" || exit 6
    shift
done
if [ $# -gt 0 ]; then
    shift
    unset PYTHONHOME PYTHONPATH # of the node: the image has its own Python
    export PYTHONNOUSERSITE=1   # and the home of the node, with packages for another one
fi
cd "$folder" || exit 5
id=$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}
echo "$id" >>starts || exit 5
read -r first <starts || exit 5
[ "${first%%.*}" = "$SLURM_JOB_ID" ] || exit 0 # of an answer of sbatch that came too late: another job is the machine
printf '{"machine_id": "%s"}\n' "$id" >".identity.$id" && mv ".identity.$id" identity.json || exit 5
export SPOT_MACHINE=${folder##*/} SPOT_MACHINE_DIR=$folder
exec "$@" "$python" agent.pyz "$folder" <secrets.json
