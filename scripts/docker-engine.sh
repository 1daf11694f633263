#!/usr/bin/env bash
# A Docker Engine for the tests, on a bare Debian or Ubuntu as root, without any registry.
#   bash scripts/docker-engine.sh start    install docker.io, start dockerd by hand if none
#                                          answers, import the base image; prints DOCKER_HOST=…
#   bash scripts/docker-engine.sh stop     end the dockerd that `start` started, with its data
# Containers use the host's network or none: no bridge is made and no address but 127.0.0.1 is
# ever sent to, so that nothing of the machine's own network is touched.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
home=${QUALIFY_DOCKER_DIR:-/var/tmp/qualify-docker}
socket=$home/docker.sock
base=${QUALIFY_BASE_IMAGE:-qualify-base:local}

say() { echo "docker-engine: $*" >&2; }

answers() { docker --host "$1" version --format '{{.Server.Version}}' >/dev/null 2>&1; }

need_root() {
    if [ "$(id -u)" != 0 ]; then
        say "only root can install and start a Docker Engine; start one yourself and set DOCKER_HOST"
        exit 1
    fi
}

install() { # Debian packages $@, without letting any of them start a service
    say "installing $*"
    export DEBIAN_FRONTEND=noninteractive
    local policy=/usr/sbin/policy-rc.d
    if [ ! -e $policy ]; then
        printf '#!/bin/sh\nexit 101\n' >$policy
        chmod +x $policy
        trap "rm -f $policy" EXIT
    fi
    apt-get update -qq >&2
    apt-get install -y -qq --no-install-recommends "$@" >&2
}

tools() { # what the tests run by hand, on ports of their own: a registry and an sshd
    local missing=()
    command -v docker-registry >/dev/null || missing+=(docker-registry)
    [ -x /usr/sbin/sshd ] || missing+=(openssh-server openssh-client)
    if ((${#missing[@]})); then
        need_root
        install "${missing[@]}"
    fi
}

start_daemon() {
    mkdir -p "$home"
    say "starting dockerd in $home"
    # --bridge none: no bridge, no rules; --exec-root apart from any other daemon's.
    setsid nohup dockerd \
        --data-root "$home/data" --exec-root "$home/exec" --pidfile "$home/dockerd.pid" \
        -H "unix://$socket" --bridge none --iptables=false --ip-forward=false \
        >"$home/dockerd.log" 2>&1 </dev/null &
    for _ in $(seq 300); do
        answers "unix://$socket" && return
        sleep 0.2
    done
    say "dockerd does not answer after 60 s; its last lines:"
    tail -n 20 "$home/dockerd.log" >&2
    exit 1
}

start() {
    local host=${DOCKER_HOST:-unix:///var/run/docker.sock}
    if command -v docker >/dev/null && answers "$host"; then
        say "using the Docker Engine at $host"
    elif command -v docker >/dev/null && answers "unix://$socket"; then
        host=unix://$socket
        say "using the Docker Engine that was started before"
    else
        need_root
        command -v dockerd >/dev/null || install docker.io iptables
        host=unix://$socket
        start_daemon
    fi
    if ! docker --host "$host" image inspect "$base" >/dev/null 2>&1; then
        need_root
        [ -x /usr/bin/python3 ] || install python3
        say "importing $base from this machine's own packages"
        /usr/bin/python3 "$here/base_image.py" | docker --host "$host" import - "$base" >&2
    fi
    tools
    echo "DOCKER_HOST=$host"
}

stop() {
    if [ -s "$home/dockerd.pid" ]; then
        local pid
        pid=$(cat "$home/dockerd.pid")
        if [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = dockerd ]; then
            kill "$pid"
            for _ in $(seq 150); do
                [ -d "/proc/$pid" ] || break
                sleep 0.2
            done
        fi
    fi
    umount "$home/exec/netns/default" 2>/dev/null || true
    rm -rf "$home"
}

case ${1:-} in
    start) start ;;
    stop) stop ;;
    *) sed -n '2,7p' "${BASH_SOURCE[0]}"; exit 2 ;;
esac
