#!/usr/bin/env bash
# fetch_assets.sh - put the third-party scripts of the dashboard, with their licenses, into build/vendor: exact versions,
# by hash. Without npm the pages work as without JavaScript; a message says so, and with CI=true it is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
source=supervisor/dashboard work=build/npm vendor=build/vendor

if ! command -v npm >/dev/null; then
    echo "npm is missing: the dashboard will serve its pages without scripts (on Debian and Ubuntu: apt-get install npm)" >&2
    [ "${CI:-}" != true ]
    exit
fi
mkdir -p "$work"
cp "$source/package.json" "$source/package-lock.json" "$source/.npmrc" "$work/"
npm ci --prefix "$work" --ignore-scripts --no-audit --no-fund --silent
rm -rf "$vendor"
mkdir -p "$vendor"
modules=$work/node_modules
cp "$modules/htmx.org/dist/htmx.min.js" "$modules/htmx-ext-sse/dist/sse.min.js" "$vendor/"
for package in htmx.org htmx-ext-sse; do
    cp "$modules/$package/LICENSE" "$vendor/LICENSE.$package.txt"
done
touch "$vendor/.fetched"
