#!/bin/sh
# Make a virtual environment at $1 with a Python that this project supports.
# On a bare Debian or Ubuntu two things may be missing: a part of the venv module (ensurepip),
# and libgomp, which llama.cpp's server needs. As root they are installed, otherwise the one
# command to run is printed.
set -eu
venv=$1

good() { # does $1 run, and is it a supported Python?
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null
}

whole() { # can $1 make a virtual environment with pip in it?
    "$1" -c 'import ensurepip, venv' 2>/dev/null
}

find_python() { # the first whole one, else the first good one
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

install() { # install Debian packages $2..., because $1; or say how, and stop
    why=$1
    shift
    echo "$why"
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@"
    else
        echo "  Run: sudo apt-get install $*" >&2
        exit 1
    fi
}

if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    python=$(find_python)
    if [ -z "$python" ]; then
        install "No Python 3.11, 3.12 or 3.13 was found (make PYTHON=/path/to/one names another)." \
            python3 python3-venv
        python=$(find_python)
        [ -n "$python" ] || exit 1
    fi
    if ! whole "$python"; then
        version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        install "$python cannot make a virtual environment: its venv package is missing." \
            "python$version-venv"
    fi
    rm -rf "$venv"
    "$python" -m venv "$venv"
fi

if ! "$venv/bin/python" -c 'import ctypes; ctypes.CDLL("libgomp.so.1")' 2>/dev/null; then
    install "libgomp.so.1 is missing, and llama.cpp's server needs it." libgomp1
fi
