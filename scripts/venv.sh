#!/bin/sh
# Make a virtual environment at $1 with the newest Python this project supports.
# On a bare Debian or Ubuntu two things may be missing: a part of the venv module (ensurepip),
# and libgomp, which llama.cpp's server needs. As root they are installed, otherwise the one
# command to run is printed.
set -eu
venv=$1

if [ -x "$venv/bin/python" ] && "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    exit 0
fi

good() { # does $1 run, and is it a supported Python?
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null
}

whole() { # can $1 make a virtual environment with pip in it?
    "$1" -c 'import ensurepip, venv' 2>/dev/null
}

find_python() {
    first=
    for name in ${PYTHON:-} python3 python3.13 python3.12 python3.11; do
        good "$name" || continue
        [ -n "$first" ] || first=$name
        if whole "$name"; then
            echo "$name"
            return
        fi
    done
    echo "$first"
}

python=$(find_python)
if [ -z "$python" ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        apt-get update -qq && apt-get install -y -qq python3 python3-venv
        python=$(find_python)
    fi
    if [ -z "$python" ]; then
        echo "No Python 3.11, 3.12 or 3.13 was found." >&2
        echo "  Install one (apt-get install python3 python3-venv), or name it: make PYTHON=/path/to/python3.12" >&2
        exit 1
    fi
fi

if ! whole "$python"; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    package=python$version-venv
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "installing $package, which this Python needs to make a virtual environment"
        apt-get update -qq && apt-get install -y -qq "$package"
    else
        echo "$python cannot make a virtual environment: its venv package is not installed." >&2
        echo "  Run: sudo apt-get install $package" >&2
        exit 1
    fi
fi

if ! "$python" -c 'import ctypes; ctypes.CDLL("libgomp.so.1")' 2>/dev/null; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "installing libgomp1, which llama.cpp's server needs"
        apt-get update -qq && apt-get install -y -qq libgomp1
    else
        echo "libgomp.so.1 is not installed, and llama.cpp's server needs it." >&2
        echo "  Run: sudo apt-get install libgomp1" >&2
        exit 1
    fi
fi

rm -rf "$venv"
"$python" -m venv "$venv"
