#!/usr/bin/env bash
# install_system.sh [npm|chromium|sshd|slurm ...] - install what the dashboard and the tests need beside Python, if it is
# missing and we are root on Debian or Ubuntu: npm, a Chromium without a window, an SSH server, Slurm; without arguments
# all of them. Elsewhere do nothing: make and the tests say what is missing.
set -euo pipefail

[ $# -gt 0 ] || set -- npm chromium sshd slurm
wants() {
    [[ " $asked " == *" $1 "* ]]
}
asked="$*"
wanted=()
if wants npm && ! command -v npm >/dev/null; then
    wanted+=(npm)
fi
if wants sshd && ! { [ -x "${SSHD:-/usr/sbin/sshd}" ] || command -v sshd >/dev/null; }; then
    wanted+=(openssh-server)
fi
if wants slurm && ! { [ -x "${SLURMD:-/usr/sbin/slurmd}" ] && command -v sbatch >/dev/null; }; then
    wanted+=(slurmctld slurmd slurm-client)
fi
if wants chromium && ! command -v chromium-headless-shell >/dev/null && ! command -v chromium >/dev/null; then
    wanted+=(chromium-headless-shell)
fi
if [ ${#wanted[@]} -eq 0 ] || [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
install() {
    timeout 120 apt-get install --quiet=2 --yes --no-install-recommends "${wanted[@]}" >/dev/null
}
install || { apt-get update --quiet=2 && install; }
