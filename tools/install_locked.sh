#!/usr/bin/env bash
# install_locked.sh PYTHON LOCK - install what LOCK pins, with hashes, and show the progress: one line that is
# overwritten at a terminal, a line for every 25 packages elsewhere. The output of pip is shown only when it fails.
set -euo pipefail
python=$1 lock=$2
total=$(grep -c '^[A-Za-z0-9].*==' "$lock")
log=$(mktemp)
trap 'rm -f "$log"' EXIT
person=0
[ -t 1 ] && person=1
echo "installing $total packages for development and the demos: about 1 GB, once"
if ! "$python" -m pip --disable-pip-version-check --no-color install --progress-bar off --require-hashes -r "$lock" 2>&1 |
    tee "$log" | awk -v total="$total" -v person="$person" '
        /^Collecting / { fetched++; report(person || fetched % 25 == 0, "fetched " fetched " of " total) }
        /^Installing collected packages/ { report(1, "fetched " total " of " total ", unpacking them") }
        function report(now, text) {
            if (!now) return
            printf (person ? "\r\033[K  %s" : "  %s\n"), text
            fflush()
        }
        END { if (person) printf "\r\033[K" }'; then
    cat "$log" >&2
    exit 1
fi
