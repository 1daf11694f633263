"""What number formats and the attention window cost and save in the bundled engine, in one run.

    python benchmarks/specdec_formats.py fixtures/models/tiny-qwen3.5 --contexts 512 4096

The checkpoint's projections are stored in FP8 blocks of 128 x 128 in a temporary copy; that copy
is served with its weights as they are stored and expanded, with FP32 and FP8 keys and values, and
with a window. Each setting decodes target-only and with MTP; `same ids` says whether the two agree.
Bytes are those that the engine states. Greedy, past the end token; the second of two runs counts.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "engines" / "cuda"))
sys.path.insert(0, str(ROOT / "benchmarks"))

from specdec.contract import RunnerOptions  # noqa: E402
from specdec.runner import Runner  # noqa: E402
from specdec_decode import engine_cell, read_prompts  # noqa: E402

BLOCK = 128
LARGEST = 448.0  # of E4M3
KEPT = ("in_proj_a", "in_proj_b", "conv1d", "norm", "embed_tokens", "lm_head", "mtp.")

SETTINGS: dict[str, dict[str, Any]] = {
    "weights expanded": {"fp8_weights": "expanded"},
    "weights stored": {},
    "stored, FP8 KV": {"kv_cache_dtype": "fp8"},
    "stored, window 256 + 4": {"attention_window": 256, "attention_sink_tokens": 4},
}


def in_blocks(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(E4M3 values, BF16 scales): each block's largest magnitude becomes the format's."""
    rows, columns = weight.shape
    padded = torch.nn.functional.pad(weight.float(), (0, -columns % BLOCK, 0, -rows % BLOCK))
    blocks = padded.unflatten(0, (-1, BLOCK)).unflatten(2, (-1, BLOCK))
    scales = (blocks.abs().amax((1, 3)) / LARGEST).clamp_min(1e-12).to(torch.bfloat16)
    spread = scales.float().repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    values = (weight.float() / spread[:rows, :columns]).clamp(-LARGEST, LARGEST)
    return values.to(torch.float8_e4m3fn), scales


def quantised_copy(source: Path, folder: Path) -> Path:
    """The checkpoint with its projections in FP8 blocks."""
    shutil.copytree(source, folder)
    for shard in folder.glob("*.safetensors"):
        tensors = load_file(shard)
        for name in list(tensors):
            if tensors[name].dim() == 2 and not any(part in name for part in KEPT):
                tensors[name], tensors[f"{name}_scale_inv"] = in_blocks(tensors[name])
        save_file(tensors, shard)
    path = folder / "config.json"
    config = json.loads(path.read_text("utf-8"))
    config["quantization_config"] = {
        "quant_method": "fp8",
        "weight_block_size": [BLOCK, BLOCK],
        "modules_to_not_convert": ["lm_head", "in_proj_a", "in_proj_b", "mtp"],
    }
    path.write_text(json.dumps(config), "utf-8")
    return folder


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="See the module's docstring.")
    parser.add_argument("model", type=Path)
    parser.add_argument("--contexts", type=int, nargs="+", default=[512, 4096])
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="auto")
    args = parser.parse_args(words)
    torch.set_num_threads(args.threads)
    prompts = read_prompts(args.model, "code", [], max(args.contexts), 1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = quantised_copy(args.model, Path(scratch) / "fp8")
        for name, changes in SETTINGS.items():
            runners = {}
            for mode in ("target-only", "mtp"):
                options = RunnerOptions(
                    mode=mode, device=args.device, threads=args.threads, max_running_requests=1,
                    max_total_tokens=max(args.contexts) + 128, **changes,
                )  # fmt: skip
                runners[mode] = Runner.load(folder, options)
            info = runners["target-only"].info
            print(
                f"{name}: {info.weight_bytes:,} bytes of weights, {info.weight_scale_bytes:,} of "
                f"scales, KV {info.kv_bytes_per_token:,} a token, rows exact: "
                f"{info.invariance.prefill_exact}, {info.device}",
                flush=True,
            )
            for context in args.contexts:
                cut = [ids[:context] for ids in prompts]
                plain, drafted = (
                    engine_cell(f"{name}, {mode}", runner, cut, args.new_tokens)
                    for mode, runner in runners.items()
                )
                print(
                    f"  context {context:6}: prefill {plain.prefill_tokens_per_s:8.0f}, decode "
                    f"{plain.decode_tokens_per_s:7.1f}, mtp {drafted.decode_tokens_per_s:7.1f} "
                    f"tok/s, same ids: {plain.ids == drafted.ids}",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main())
