"""One exact request of 1,000,000 tokens with five codes, with every proof, in each mode.

    python benchmarks/million.py --out OUT [--tokens 1000000] [--modes target-only,mtp]
        [--device cuda] [--budget-s 540] [--work FOLDER]

Starts the bundled engine in one mode after another with a pool that holds the whole request,
and lets `qualify eval needles` ask it: exact size as the server counts it, zero cached tokens,
zero retractions, a natural end, then flush and a fresh short request. Prints one JSON line a
mode and writes OUT/million.json and OUT/million-runs.tar.gz (the run folders, reports included)
after each. The same command again passes over the modes that are done and asks the others
whole. Exit code 0: every mode asked for has all proofs; 1: one has not; 3: an engine failed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
import urllib.request
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "fixtures" / "models" / "tiny-qwen3.5"
LONGEST = 1_048_576
MODES = ("target-only", "mtp", "dflash2", "dspark")
ANSWER = 96  # the evaluation's default budget


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("/tmp/million"))
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--chunk", type=int, default=4096, help="prompt tokens of one prefill")
    parser.add_argument("--budget-s", type=float, default=540.0)
    parser.add_argument("--engine-args", default="", help="more flags of `specdec serve`")
    parser.add_argument("--model", type=Path, default=MODEL)
    options = parser.parse_args()
    deadline = time.monotonic() + options.budget_s
    options.out.mkdir(parents=True, exist_ok=True)
    options.work.mkdir(parents=True, exist_ok=True)
    told: dict[str, Any] = _known(options.work / "million.json")
    for mode in options.modes.split(","):
        key = f"{mode}@{options.tokens}/s{options.seed}"
        if told.get(key, {}).get("finished"):
            continue
        left = deadline - time.monotonic()
        if left < 30:
            told[key] = {"skipped": f"{left:.0f} s of the budget are left"}
        else:
            told[key] = _one(mode, key, options, deadline)
        print(json.dumps({key: told[key]}), flush=True)
        print(_in_words(key, told[key]), file=sys.stderr, flush=True)
        _save(told, options)
    states = [told[f"{m}@{options.tokens}/s{options.seed}"] for m in options.modes.split(",")]
    if any("engine_failed" in s for s in states):
        return 3
    return 0 if all(s.get("proven") for s in states) else 1


def _in_words(key: str, told: dict[str, Any]) -> str:
    """`mtp@1000000/s0: 1000000/s0/t0: prefill 80.1 s, found 3 of 5; ...; 6 of 6 proofs`"""
    if "requests" not in told:
        return f"{key}: {told.get('skipped') or 'the engine failed'}"
    words = [
        f"{problem}: prefill {r['ttft_s'] or float('nan'):.1f} s, found {r['found']} of {r['of']}"
        for problem, r in told["requests"].items()
    ]
    held = [outcome for outcome, _ in told["proofs"].values()]
    return f"{key}: {'; '.join(words)}; {held.count('pass')} of {len(held)} proofs"


def _known(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.exists() else {}
    return found


def _save(told: dict[str, Any], options: argparse.Namespace) -> None:
    text = json.dumps(told, indent=1) + "\n"
    for folder in (options.work, options.out):
        (folder / "million.json").write_text(text, "utf-8")
    with tarfile.open(options.out / "million-runs.tar.gz", "w:gz") as packed:
        for folder in sorted(p for p in options.work.iterdir() if p.is_dir()):
            packed.add(folder, folder.name)


def _one(mode: str, key: str, options: argparse.Namespace, deadline: float) -> dict[str, Any]:
    drafter = options.model.parent / f"{options.model.name}-{mode}"
    needs_drafter = mode in ("dflash2", "dspark")
    if needs_drafter and not drafter.is_dir():
        return {"skipped": f"there is no {drafter.name}"}
    folder = options.work / key.replace("/", "-").replace("@", "-")
    folder.mkdir(exist_ok=True)
    # The proofs are those of one launch: what was left half-way is asked again whole.
    shutil.rmtree(folder / "run", ignore_errors=True)
    port = _free_port()
    command = _engine(mode, options, port) + (
        ["--draft-model", str(drafter)] if needs_drafter else []
    )
    began = time.monotonic()
    with (folder / "engine.log").open("ab") as log:
        engine = subprocess.Popen(command, stdout=log, stderr=log, env=_environment())
    try:
        if not _ready(engine, port, deadline):
            tail = (folder / "engine.log").read_text("utf-8", "replace")[-2000:]
            return {"engine_failed": tail, "command": command}
        started_s = time.monotonic() - began
        print(f"{key}: the engine is ready after {started_s:.1f} s", file=sys.stderr, flush=True)
        judged = _ask(mode, folder, port, options, deadline)
        memory = _gpu_memory()
    finally:
        _end(engine)
    found = _read(folder / "run", options.tokens)
    return {**found, "eval_exit_code": judged, "start_s": round(started_s, 2), "gpu_memory": memory}


def _engine(mode: str, options: argparse.Namespace, port: int) -> list[str]:
    """A pool of whole pages for the request, and as much context as the answer needs."""
    context = min(LONGEST, options.tokens + 4096)
    pool = LONGEST if options.tokens > LONGEST // 2 else -(-context // 64) * 64
    flags = {
        "--model": str(options.model),
        "--mode": mode,
        "--device": options.device,
        "--port": str(port),
        "--served-model-name": "specdec",
        "--context-length": str(context),
        "--max-total-tokens": str(pool),
        "--max-running-requests": "1",
        "--prefill-chunk-tokens": str(options.chunk),
        "--max-body-bytes": str(64 << 20),
    }
    words = [word for pair in flags.items() for word in pair]
    more = options.engine_args.split()
    return [sys.executable, "-m", "specdec", "serve", *words, "--enable-metrics", *more]


def _environment() -> dict[str, str]:
    paths = [str(ROOT), str(ROOT / "engines" / "cuda"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p)}


def _free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        return port


def _ready(engine: subprocess.Popen[bytes], port: int, deadline: float) -> bool:
    while time.monotonic() < deadline and engine.poll() is None:
        with contextlib.suppress(OSError):
            if urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).status == 200:
                return True
        time.sleep(0.5)
    return False


def _ask(
    mode: str, folder: Path, port: int, options: argparse.Namespace, deadline: float
) -> int | None:
    """The harness's own evaluation; None where the budget ended it."""
    run = folder / "run"
    command = [sys.executable, "-m", "qualify", "eval", "needles"]
    command += ["--attach", f"{mode}=http://127.0.0.1:{port}", "--protocol", "sglang"]
    command += ["--tokenizer", str(options.model), "--tokens", str(options.tokens)]
    command += ["--seed", str(options.seed), "--out", str(run)]
    with (folder / "eval.log").open("ab") as log:
        try:
            return subprocess.run(
                command,
                stdout=log,
                stderr=log,
                env=_environment(),
                timeout=max(1.0, deadline - time.monotonic()),
            ).returncode
        except subprocess.TimeoutExpired:
            return None


def _end(engine: subprocess.Popen[bytes]) -> None:
    engine.send_signal(signal.SIGTERM)
    try:
        engine.wait(20)
    except subprocess.TimeoutExpired:
        engine.kill()
        engine.wait()


def _read(run: Path, tokens: int) -> dict[str, Any]:
    """What the run folder says, from its own files."""
    answers = _lines(run / "evals.jsonl")
    scores = {s["problem"]: s for s in _lines(run / "scores.jsonl")}
    file = run / "verdicts.json"
    verdicts = json.loads(file.read_text("utf-8")) if file.exists() else []
    proofs = {
        v["subject"]: [v["outcome"], v["sentence"]] for v in verdicts if v["check"] == "retrieval"
    }
    told: dict[str, Any] = {}
    for answer in answers:
        record, problem = answer["record"], answer["problem"]
        needles = (scores.get(problem) or {}).get("values", {}).get("needles", [])
        seconds = record["timing"]["ttft_s"]
        told[problem] = {
            "ok": record["ok"],
            "prompt_tokens": record["usage"]["prompt_tokens"],
            "cached_tokens": record["usage"]["cached_tokens"],
            "completion_tokens": record["usage"]["completion_tokens"],
            "finish_reason": record["finish_reason"],
            "ttft_s": seconds,
            "prefill_tokens_per_s": seconds and round(record["tokens"] / seconds),
            "tpot_ms": record["timing"]["tpot_ms"],
            "answer": record["output_text"],
            "found": sum(n["found"] for n in needles),
            "of": len(needles),
            "depths_found": [n["asked_depth"] for n in needles if n["found"]],
            "failure": record["failure"],
        }
    asked = [p for p in told if p.startswith(f"{tokens}/")]
    return {
        "finished": bool(proofs) and bool(asked),
        "proven": bool(proofs) and all(outcome == "pass" for outcome, _ in proofs.values()),
        "requests": told,
        "proofs": proofs,
    }


def _lines(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def _gpu_memory() -> str | None:
    if shutil.which("nvidia-smi") is None:
        return None
    query = ["nvidia-smi", "--query-gpu=name,memory.used,memory.total", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
