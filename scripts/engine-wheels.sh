#!/usr/bin/env bash
# Wheels for engines/cuda/Dockerfile, so that the image is built without a network.
#   bash scripts/engine-wheels.sh FOLDER [PYTHON_VERSION]     such as 3.11, this machine's if left out
# pip decides where they come from, by its own settings (PIP_FIND_LINKS, PIP_INDEX_URL).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=$1
version=${2:-$(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')}
python=${PYTHON:-.venv/bin/python}

packages=(pip torch safetensors tokenizers jinja2 numpy starlette anyio uvicorn
    prometheus-client pydantic psutil)
mkdir -p "$folder"
"$python" -m pip download --quiet --disable-pip-version-check --only-binary :all: \
    --python-version "$version" --constraint constraints.txt --dest "$folder" "${packages[@]}"
