"""Serve one GGUF model with llama.cpp's own server, from the `xllamacpp` wheel.

Flag names follow llama.cpp's own server where it has one. Everything that the engine would
otherwise decide from the machine (threads, fitted context, host prompt cache) is set here,
so that the same command line gives the same server. Ends with 0 on SIGTERM or SIGINT.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

SPEC_TYPES = ("none", "ngram-simple", "ngram-map-k", "ngram-mod", "draft-simple", "draft-mtp")


def parse(argv: list[str]) -> argparse.Namespace:
    """Read the command line; every default is stated here and nowhere else."""
    p = argparse.ArgumentParser(prog="serve.py", description=__doc__, allow_abbrev=False)
    p.add_argument("--model", type=Path, required=True, help="GGUF file")
    p.add_argument("--alias", help="model name that the server answers")
    p.add_argument("--host", default="127.0.0.1")
    p.add_argument("--port", type=int, required=True)
    p.add_argument("--ctx-size", type=int, default=4096, help="tokens over all slots together")
    p.add_argument("--parallel", type=int, default=1, help="slots; each has ctx-size / parallel")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--threads-batch", type=int, help="threads for prefill (default: --threads)")
    p.add_argument("--batch-size", type=int, default=2048)
    p.add_argument("--ubatch-size", type=int, default=512)
    p.add_argument("--n-gpu-layers", type=int, default=0)
    p.add_argument("--seed", type=int, default=0, help="sampler seed when a request has none")
    p.add_argument("--spec-type", choices=SPEC_TYPES, default="none")
    p.add_argument("--spec-ngram-size-n", type=int, default=12, help="tokens that must repeat")
    p.add_argument("--spec-ngram-size-m", type=int, default=48, help="drafts per proposal")
    p.add_argument("--spec-ngram-min-hits", type=int, default=1)
    p.add_argument("--spec-draft-model", type=Path, help="GGUF file of the drafter")
    p.add_argument("--spec-draft-n-max", type=int, default=3)
    p.add_argument("--spec-draft-n-min", type=int, default=0)
    p.add_argument("--spec-draft-p-min", type=float, default=0.0)
    p.add_argument(
        "--spec-synth-len",
        type=float,
        help="accept drafts at random so that this is the mean length; the text is then wrong",
    )
    args = p.parse_args(argv)
    if not args.model.is_file():
        p.error(f"--model {args.model} is not a file")
    if args.spec_type.startswith("draft-simple") and args.spec_draft_model is None:
        p.error(f"--spec-type {args.spec_type} needs --spec-draft-model FILE.gguf")
    if args.spec_draft_model is not None and not args.spec_draft_model.is_file():
        p.error(f"--spec-draft-model {args.spec_draft_model} is not a file")
    return args


def parameters(args: argparse.Namespace) -> Any:
    """The wheel's CommonParams for `args`."""
    import xllamacpp

    p = xllamacpp.CommonParams()
    p.model.path = str(args.model)
    p.model_alias = {args.alias or args.model.stem}
    p.hostnames = [args.host]
    p.port = args.port
    p.n_ctx = args.ctx_size
    p.n_parallel = args.parallel
    p.n_batch = args.batch_size
    p.n_ubatch = args.ubatch_size
    p.n_gpu_layers = args.n_gpu_layers
    p.cpuparams.n_threads = args.threads
    p.cpuparams_batch.n_threads = args.threads_batch or args.threads
    p.sampling.seed = args.seed
    p.fit_params = False  # never shrink the context to the memory at hand
    p.cache_ram_mib = 0  # no second prompt cache in host memory: reuse is the slot's alone
    p.ctx_shift = False
    p.ui = False
    p.offline = True
    p.endpoint_metrics = True
    p.endpoint_props = True
    p.endpoint_slots = True
    spec = p.speculative
    kinds = xllamacpp.common_speculative_type
    name = "COMMON_SPECULATIVE_TYPE_" + args.spec_type.upper().replace("-", "_")
    spec.types = [kinds[name]]
    for ngram in (spec.ngram_simple, spec.ngram_map_k):
        ngram.size_n = args.spec_ngram_size_n
        ngram.size_m = args.spec_ngram_size_m
        ngram.min_hits = args.spec_ngram_min_hits
    spec.draft.n_max = args.spec_draft_n_max
    spec.draft.n_min = args.spec_draft_n_min
    spec.draft.p_min = args.spec_draft_p_min
    spec.draft.n_gpu_layers = args.n_gpu_layers
    spec.draft.cpuparams.n_threads = args.threads
    spec.draft.cpuparams_batch.n_threads = args.threads_batch or args.threads
    if args.spec_draft_model is not None:
        spec.draft.mparams.path = str(args.spec_draft_model)
    if args.spec_synth_len is not None:
        spec.synth_len = args.spec_synth_len
    return p


def main(argv: list[str]) -> int:
    args = parse(argv)
    try:
        import xllamacpp
    except ModuleNotFoundError:
        print("serve.py: xllamacpp is not installed; pip install 'qualify[llama-cpp]'", flush=True)
        return 2
    wanted = (signal.SIGTERM, signal.SIGINT)
    read_fd, write_fd = os.pipe()

    def stop(number: int, _frame: FrameType | None) -> None:
        os.write(write_fd, bytes([number]))

    # Until the model is loaded a signal ends the process at once; there is nothing to close.
    for number in wanted:
        signal.signal(number, signal.SIG_DFL)
    server = xllamacpp.Server(parameters(args))
    for number in wanted:
        signal.signal(number, stop)
    print(f"serve.py: listening on {server.listening_address}", flush=True)
    os.read(read_fd, 1)
    print("serve.py: stopping", flush=True)
    del server
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
