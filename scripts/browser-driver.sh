#!/usr/bin/env bash
# Put what drives a browser in tests into the environment at $1: the `playwright` package, at the
# version that these tests were last run with. It brings no browser: Debian's chromium is used.
#   bash scripts/browser-driver.sh .venv
set -euo pipefail
venv=${1:?the folder of a virtual environment}
version=1.65.2

if ! "$venv/bin/python" -c "import importlib.metadata as m; assert m.version('playwright') == '$version'" 2>/dev/null; then
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "playwright==$version"
fi
if ! command -v chromium >/dev/null; then
    echo "chromium is not installed: apt-get install chromium" >&2
    exit 1
fi
