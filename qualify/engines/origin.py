"""What exactly ran (rule 14): one JSON-ready dict for each launch."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any

import qualify
from qualify.engines.devices import device_facts
from qualify.engines.end_tokens import EndTokens
from qualify.engines.environment import is_secret
from qualify.engines.hashes import checkpoint_hashes
from qualify.engines.host import host_facts
from qualify.engines.instrumentation import instrumentation_of
from qualify.engines.protocol import EngineInfo
from qualify.engines.server import RunningServer

# Inherited variables that change what an engine does; values of others are nobody's business.
RELEVANT = (
    "CUDA_", "NCCL_", "NVIDIA_", "ROCR_", "HIP_", "ONEAPI_", "SYCL_", "ZE_", "CCL_", "UR_",
    "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "TORCH", "PYTORCH_", "TRITON_", "GGML_", "LLAMA_",
    "SGLANG_", "VLLM_", "POCKETLLM_", "DSV4_", "QWEN_", "HF_HUB_OFFLINE", "HF_HOME",
    "LD_LIBRARY_PATH", "LD_PRELOAD", "MALLOC_", "PYTHONHASHSEED", "PYTHONPATH",
    "KINETO_", "NSYS_", "HSA_", "AMD_LOG", "PYTHONPROFILE", "PYTHONTRACEMALLOC",
)  # fmt: skip


def origin_of(
    server: RunningServer, info: EngineInfo | None = None, ends: EndTokens | None = None
) -> dict[str, Any]:
    """Command, environment, instruments, model hashes, end tokens, host, devices, client.

    Reads the whole model once to hash it (remembered afterwards): call it outside of any
    measurement. Blocking; nothing in it raises for something that cannot be read.
    """
    resolved = server.resolved
    drafter = next((v for k, v in resolved.args.items() if k in DRAFT_ARGUMENTS and v), None)
    ours = server.argv is not None
    inherited = relevant_environment() if resolved.kind == "process" else {}
    return {
        "engine": resolved.engine,
        "protocol": resolved.protocol,
        "kind": resolved.kind,
        "mode": resolved.mode,
        "profile": resolved.profile.name,
        "args": resolved.args,
        "argv": list(server.argv) if server.argv is not None else None,
        "cwd": str(resolved.cwd) if resolved.cwd is not None else None,
        "env": resolved.env if ours else None,
        # A container inherits nothing from here: its image's environment stands in `container`.
        "env_inherited": inherited if resolved.kind == "process" else None,
        "instrumentation": instrumentation_of(
            resolved.args if ours else {},
            server.argv or (),
            {**inherited, **resolved.env} if ours else {},
            info.raw.values() if info is not None else (),
        ),
        "added": {"args": resolved.added.args, "env": resolved.added.env},
        "container": server.process.facts() or None if server.process is not None else None,
        "url": server.base_url,
        "pid": server.pid,
        "model": _model(resolved.model),
        "draft_model": _model(str(drafter)) if drafter is not None else None,
        "end_tokens": asdict(ends) if ends is not None else None,
        "package": _package(resolved.module),
        "engine_version": info.version if info is not None else None,
        "host": host_facts(),
        "devices": device_facts(),
        "client": {
            "qualify": qualify.__version__,
            "python": platform.python_version(),
            "implementation": platform.python_implementation(),
        },
    }


DRAFT_ARGUMENTS = (
    "spec-draft-model",
    "speculative-draft-model-path",
    "draft-model",
    "draft",
    "qwen-dspark",
    "qwen-dflash2",
)


def relevant_environment() -> dict[str, str]:
    """Inherited variables that may change what an engine does, secrets left out."""
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(RELEVANT) and not is_secret(name)
    }


def _model(path: str | None) -> dict[str, Any] | None:
    if path is None:
        return None
    try:
        files = checkpoint_hashes(path)
    except OSError as error:
        return {"path": path, "files": None, "error": str(error)}
    return {"path": path, "files": files, "declared": declared(path)}


def declared(path: str) -> dict[str, Any] | None:
    """What a checkpoint's config.json says it is; None where there is none to read."""
    try:
        root = json.loads((Path(path) / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(root, dict):
        return None
    text = root.get("text_config")
    inner = text if isinstance(text, dict) else root
    return {
        "architectures": root.get("architectures"),
        "layers": inner.get("num_hidden_layers"),
    }


def _package(module: str | None) -> dict[str, str] | None:
    if module is None:
        return None
    try:
        return {"name": module, "version": importlib.metadata.version(module)}
    except importlib.metadata.PackageNotFoundError:
        return None
