#!/usr/bin/env bash
# Put what drives a browser in tests into the environment at $1: `playwright`, and axe's rules of
# accessibility, at the versions that these tests were last run with. They bring no browser:
# Debian's chromium is used.
#   bash scripts/browser-driver.sh .venv
set -euo pipefail
venv=${1:?the folder of a virtual environment}
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    playwright==1.65.2 axe-playwright-python==0.1.8
if ! command -v chromium >/dev/null; then
    echo "chromium is not installed: apt-get install chromium" >&2
    exit 1
fi
