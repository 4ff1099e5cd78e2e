#!/usr/bin/env bash
# make_lock.sh [--upgrade] - pin what pyproject.toml asks for, with hashes, for every platform and Python >= 3.11.
# Pins that still fit are kept. uv's own lock file is not used: it names the registry it was made from.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/make_venv.sh .venv
uv=$(command -v uv || true)
if [ -z "$uv" ]; then
    uv=build/uv/bin/uv
    if [ ! -x "$uv" ]; then
        .venv/bin/python -m venv build/uv
        build/uv/bin/pip --disable-pip-version-check --quiet install uv
    fi
fi

lock=requirements-dev.lock
"$uv" pip compile pyproject.toml --group dev --extra postgres --extra google --universal --python-version 3.11 \
    --generate-hashes --no-header --no-annotate --quiet --output-file "$lock" "$@"
body=$(grep -v '^#' "$lock")
{
    echo "# Every package of the environment, pinned and hashed, for all platforms. Made by \`make lock\`; never edited by hand."
    echo "$body"
} > "$lock"
