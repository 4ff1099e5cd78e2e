#!/usr/bin/env bash
# install_browser.sh [npm|chromium] - install what the dashboard and its tests need beside Python, if it is missing and
# we are root on Debian or Ubuntu: npm, and a Chromium without a window. Elsewhere do nothing: make and the tests say
# what is missing.
set -euo pipefail

wanted=()
if [ "${1:-npm}" = npm ] && ! command -v npm >/dev/null; then
    wanted+=(npm)
fi
if [ "${1:-chromium}" = chromium ] && ! command -v chromium-headless-shell >/dev/null && ! command -v chromium >/dev/null; then
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
