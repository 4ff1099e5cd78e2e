#!/usr/bin/env bash
# make_lock.sh [--upgrade] - pin the requirements of pyproject.toml, with hashes, for every platform and Python >= 3.11:
# all of them for development, and those of the server's image in the same versions. Pins that still fit are kept. uv's
# own lock file is not used, because it names the registry.
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

# pin LOCK WHAT OPTION... - write LOCK; its first line says what it is.
pin() {
    local lock=$1 what=$2 body
    shift 2
    "$uv" pip compile pyproject.toml --extra postgres --extra google --extra ssh --extra kubernetes --extra kaggle \
        --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --quiet --output-file "$lock" "$@"
    body=$(grep -v '^#' "$lock")
    {
        echo "# $what, pinned and hashed, for all platforms. Made by \`make lock\`; never edited by hand."
        echo "$body"
    } > "$lock"
}

pin requirements-dev.lock "Every package of the environment" --group dev --extra mcp "$@"
pin deploy/server/requirements.lock "Every package of the server's image" --group image \
    --constraint requirements-dev.lock "$@"
