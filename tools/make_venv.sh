#!/usr/bin/env bash
# make_venv.sh DIR - make a virtual environment on Python >= 3.11 in DIR; a working one is kept.
set -euo pipefail
dir=$1
new_enough='import sys; sys.exit(sys.version_info < (3, 11))'

if "$dir/bin/python" -c "import pip; $new_enough" 2>/dev/null; then
    exit 0
fi
for python in python3 python3.14 python3.13 python3.12 python3.11; do
    if "$python" -c "$new_enough" 2>/dev/null; then
        echo "making $dir with $("$python" --version)"
        "$python" -m venv --clear "$dir" || {
            echo "$python cannot make virtual environments; on Debian and Ubuntu: apt-get install ${python}-venv" >&2
            exit 1
        }
        exit 0
    fi
done
echo "Python 3.11 or newer is needed; python3 is $(python3 --version 2>&1 || true)," \
    "and python3.11 to python3.14 are not on the PATH" >&2
exit 1
