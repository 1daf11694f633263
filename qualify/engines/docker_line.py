"""A `docker run` line that starts the same server by hand, and what qualify does otherwise."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from qualify.engines.docker_nouns import ContainerPlan, ContainerSettings
from qualify.engines.nouns import Additions
from qualify.engines.template import flags_of

HOST_GROUP = "host:"
AVAILABLE = "available"
WIDTH = 96


@dataclass(frozen=True)
class HandLine:
    """words: the command, one flag with its value each; a shell expands the render group's.

    differences: sentences on what qualify adds to it, leaves out or does otherwise.
    """

    words: tuple[tuple[str, ...], ...]
    differences: tuple[str, ...]


def hand_line(
    plan: ContainerPlan,
    argv: tuple[str, ...],
    env: Mapping[str, str],
    added: Additions,
    port: int | None = None,
) -> HandLine:
    """The definition's own command; `added` is taken out of it and told apart."""
    inner = plan.container_port
    outer = port or inner or 30000
    words: list[tuple[str, ...]] = [("docker",), ("run",), ("-d",)]
    if plan.hand_name:
        words.append(("--name", plan.hand_name))
    if plan.hand_restart:
        words.append(("--restart", plan.hand_restart))
    words += setting_flags(plan.settings)
    words += [("-p", f"{outer}:{inner}")] if inner is not None else [("--network", "host")]
    words += [("-e", f"{k}={shlex.quote(v)}") for k, v in env.items() if k not in added.env]
    words += [("-v", shlex.quote(volume)) for volume in plan.volumes]
    pin = f"@{plan.image.digest}" if plan.image.digest else ""
    words.append((shlex.quote(plan.image.name + pin),))
    own = [part.replace("{port}", str(outer)) for part in argv]
    for name, value in added.args.items():
        own = _without(own, flags_of({name: value}, {}))
    words += _pairs(own)
    return HandLine(tuple(words), tuple(_differences(plan, added, outer)))


def run_line(
    plan: ContainerPlan,
    argv: tuple[str, ...],
    env: Mapping[str, str],
    added: Additions,
    port: int | None = None,
) -> str:
    """The line over several rows, and every difference as a comment below it."""
    hand = hand_line(plan, argv, env, added, port)
    rows = [""]
    for word in hand.words:
        text = " ".join(word)
        if rows[-1] and len(rows[-1]) + len(text) > WIDTH:
            rows.append("   ")
        rows[-1] = f"{rows[-1]} {text}" if rows[-1] else text
    line = " \\\n".join(rows)
    return "\n".join([line, *(f"# {said}" for said in hand.differences)])


def setting_flags(settings: ContainerSettings) -> list[tuple[str, ...]]:
    """Flags of `docker run` for everything that is no command, environment, port or mount."""
    flags: list[tuple[str, ...]] = [(f"--device={device}",) for device in settings.devices]
    for group in settings.groups:
        if group.startswith(HOST_GROUP):
            name = group.removeprefix(HOST_GROUP)
            flags.append(("--group-add", f'"$(getent group {name} | cut -d: -f3)"'))
        else:
            flags.append(("--group-add", group))
    if settings.gpus is not None:
        ids = settings.gpus if isinstance(settings.gpus, tuple) else None
        all_ = "all" if settings.gpus == AVAILABLE else str(settings.gpus)
        flags.append(("--gpus", f"'\"device={','.join(ids)}\"'" if ids else all_))
    if settings.ipc:
        flags.append((f"--ipc={settings.ipc}",))
    if settings.shm_bytes is not None:
        flags.append((f"--shm-size={_size(settings.shm_bytes)}",))
    if settings.memory_bytes is not None:
        flags.append((f"--memory={_size(settings.memory_bytes)}",))
    flags += [(f"--cap-add={name}",) for name in settings.cap_add]
    flags += [("--security-opt", option) for option in settings.security]
    flags += [("--ulimit", f"{name}={value}") for name, value in settings.ulimits]
    if settings.init:
        flags.append(("--init",))
    return flags


def _differences(plan: ContainerPlan, added: Additions, port: int) -> list[str]:
    said = []
    flags = " ".join(shlex.quote(w) for w in flags_of(added.args, {}))
    variables = " ".join(f"-e {k}={shlex.quote(v)}" for k, v in added.env.items())
    if variables:
        said.append(f"qualify adds to the container: {variables}")
    if flags:
        said.append(f"qualify adds to the server: {flags}")
    said.append("qualify adds: --no-healthcheck, labels, and a marker in the environment")
    if plan.hand_name or plan.hand_restart:
        what = [f"--name {plan.hand_name}" if plan.hand_name else ""]
        what.append(f"--restart {plan.hand_restart}" if plan.hand_restart else "")
        said.append(
            f"qualify leaves out: {' '.join(w for w in what if w)}"
            " (a name of its own; a container that died stays dead, so that it is seen)"
        )
    if plan.container_port is not None:
        said.append(
            f"qualify publishes on 127.0.0.1 only: -p 127.0.0.1:{port}:{plan.container_port}"
        )
    if plan.settings.gpus == AVAILABLE:
        said.append("qualify asks for GPUs only where the Docker Engine can give NVIDIA's")
    for name in plan.settings.optional_ulimits:
        said.append(f"qualify starts without --ulimit {name} where the host refuses it")
    return said


def _without(argv: list[str], extra: list[str]) -> list[str]:
    """`argv` without `extra`, a flag with its value."""
    for at in range(len(argv) - len(extra) + 1):
        if extra and argv[at : at + len(extra)] == extra:
            return argv[:at] + argv[at + len(extra) :]
    return argv


def _pairs(argv: list[str]) -> list[tuple[str, ...]]:
    """A flag and its value stay on one row."""
    pairs: list[tuple[str, ...]] = []
    for word in argv:
        quoted = shlex.quote(word)
        alone = not pairs or word.startswith("--") or len(pairs[-1]) > 1
        if alone or not pairs[-1][0].startswith("--"):
            pairs.append((quoted,))
        else:
            pairs[-1] = (*pairs[-1], quoted)
    return pairs


def _size(number: int) -> str:
    for unit, letter in ((1 << 30, "g"), (1 << 20, "m"), (1 << 10, "k")):
        if number % unit == 0:
            return f"{number // unit}{letter}"
    return str(number)
