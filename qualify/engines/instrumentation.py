"""What watches the engine from inside while it is measured: timers, profilers, extra metrics.

A timer changes what it times, so launches that differ in this never pair (rule 3). What an
answer carries about itself (cached tokens, drafts of a request) is no instrument: without it
there would be nothing to judge, and each mode has its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

# Names as servers spell them, with dashes and without `enable-`. Sources: the argument lists
# of SGLang 0.5.17 to 0.5.23, vLLM 0.32 and 0.33, llama.cpp's server and the bundled engine.
_ARGUMENTS = re.compile(
    r"""(?:enable-|collect-)?(?:
      metrics(?:-for-all-schedulers)? | (?:mfu|kv-cache|cudagraph)-metrics
    | (?:tokens|iteration)-(?:histogram|stats) | request-time-stats-logging | log-requests
    | detailed-traces | trace | otlp-traces-endpoint | perf | verbose
    | (?:\w+-)*timers? | (?:layerwise-)?nvtx(?:-\w+)* | (?:torch-)?profile[rd]?(?:-\w+)*
    | debug-tensor-dump-output-folder
    )""",
    re.VERBOSE,
)
_VARIABLES = re.compile(
    r"""\w*(?:PROFILER|PROFILING|NVTX|KINETO|TRACING|TRACE_FUNCTION)\w*
    | (?:\w*_)?(?:TIMERS?|TRACE|PROFILE)(?:_DIR)? | PYTHONPROFILE\w+ | NSYS_\w+
    | CUDA_LAUNCH_BLOCKING | TORCH_LOGS | (?:NCCL|CCL)_(?:DEBUG|LOG_LEVEL) | HSA_TOOLS_LIB""",
    re.VERBOSE,
)
_OFF = ("", "0", "false", "off", "no", "none", "warn", "version", "error")  # also log levels
_WRAPPERS = ("nsys", "ncu", "rocprof", "rocprofv3", "vtune", "unitrace", "perf", "py-spy", "strace")


def instrumentation_of(
    args: Mapping[str, object],
    argv: Sequence[str],
    env: Mapping[str, object],
    said: Iterable[object],
) -> list[str]:
    """Everything that is switched on, sorted, as `--argument`, `VARIABLE` or a tool's name.

    args, argv, env: of the launch, inherited variables included; empty for a server that
    somebody else started. said: what the server tells of itself, each a JSON object or not;
    its own arguments are among it in some engines. An empty list: nothing is known to be on.
    """
    found = {*_arguments(args), *_variables(env), *_written(argv, args), *_wrapper(argv)}
    for part in said:
        if isinstance(part, Mapping):
            found |= set(_arguments(part))
    return sorted(found)


def _arguments(args: Mapping[str, object]) -> Iterator[str]:
    for name, value in args.items():
        if (flag := _flag(str(name))) is not None and _is_on(value):
            yield flag


def _written(argv: Sequence[str], args: Mapping[str, object]) -> Iterator[str]:
    """Flags that stand in the command itself and are none of the arguments laid over it."""
    judged = {_flag(str(name)) for name in args}
    for position, part in enumerate(argv):
        name, equals, value = part.partition("=")
        flag = _flag(name.removeprefix("--")) if name.startswith("--") else None
        if flag is None or flag in judged:
            continue
        following = argv[position + 1] if position + 1 < len(argv) else "--"
        given = value if equals else following
        if given.startswith("--") or _is_on(given):
            yield flag


def _flag(name: str) -> str | None:
    written = name.replace("_", "-")
    return f"--{written}" if _ARGUMENTS.fullmatch(written) else None


def _variables(env: Mapping[str, object]) -> Iterator[str]:
    return (name for name, value in env.items() if _VARIABLES.fullmatch(name) and _is_on(value))


def _wrapper(argv: Sequence[str]) -> list[str]:
    """A profiler that the engine runs under is the first word of the command."""
    first = argv[0].rsplit("/", 1)[-1] if argv else ""
    return [first] if first in _WRAPPERS else []


def _is_on(value: object) -> bool:
    if isinstance(value, Mapping):  # a nested configuration says itself whether it is used
        return _is_on(value.get("profiler")) or _is_on(value.get("enabled"))
    if isinstance(value, list | tuple):
        return any(_is_on(item) for item in value)
    return value is not None and str(value).strip().lower() not in _OFF
