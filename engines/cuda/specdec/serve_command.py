"""`specdec serve`: the flags, each with its default and meaning."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from specdec.settings import ServeSettings

_D = ServeSettings(Path())
_POSITIVE = click.IntRange(min=1)


@click.command("serve", context_settings={"show_default": True})
@click.option(
    "--model",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    help="Folder of the checkpoint: config, safetensors, tokenizer, chat template.",
)
@click.option(
    "--mode",
    type=click.Choice(["target-only", "mtp", "dflash2", "dspark"]),
    default=_D.mode,
    help="How it decodes: without drafts, with the checkpoint's MTP head, or a drafter of its own.",
)
@click.option(
    "--draft-model",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of the draft checkpoint, for modes dflash2 and dspark.",
)
@click.option(
    "--draft-kv",
    type=click.Choice(["shared", "ring"]),
    default=_D.draft_kv,
    help="Where a drafter with a window keeps its rows: beside the target's, or in private rings.",
)
@click.option("--device", default=_D.device, help="auto, cpu, cuda or cuda:N.")
@click.option(
    "--tp-size",
    type=_POSITIVE,
    default=_D.tp_size,
    help="Ranks (processes, and GPUs where there are) that share the model.",
)
@click.option(
    "--tp-timeout",
    "tp_timeout_s",
    type=click.FloatRange(min=1),
    default=_D.tp_timeout_s,
    help="Seconds that one rank may keep the others waiting before the server gives up.",
)
@click.option("--host", default=_D.host, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=_D.port,
    help="Port to listen on; 0 picks a free one and logs it.",
)
@click.option("--served-model-name", help="Name that clients see. [default: the folder as given]")
@click.option(
    "--draft-steps",
    type=click.IntRange(1, 7),
    help="Drafts a step, without the anchor; with --draft-adaptive the most a step may propose. "
    "[default: 3 with mtp, else the checkpoint's block]",
)
@click.option(
    "--draft-adaptive",
    is_flag=True,
    help="Follow acceptance: MTP from 1 draft, doubling and backing off; DFlash2 from a whole "
    "block by the average of correct drafts.",
)
@click.option(
    "--prefill-chunk-tokens",
    type=_POSITIVE,
    default=_D.prefill_chunk_tokens,
    help="Prompt tokens computed in one prefill batch.",
)
@click.option(
    "--max-total-tokens",
    type=_POSITIVE,
    help="KV pool in tokens. [default: requests x context, at most 65536]",
)
@click.option(
    "--max-running-requests",
    type=_POSITIVE,
    default=_D.max_running_requests,
    help="Requests that run at once; more wait in order of arrival.",
)
@click.option(
    "--max-queued-requests",
    type=click.IntRange(min=0),
    help="Requests that may wait; more are refused with 503. [default: no limit]",
)
@click.option(
    "--context-length",
    type=click.IntRange(min=2),
    help="Most tokens, input and output, of one request. [default: the checkpoint's own]",
)
@click.option(
    "--page-size",
    type=click.IntRange(min=64),
    default=_D.page_size,
    help="Tokens in a KV page, x 64.",
)
@click.option(
    "--random-seed",
    type=click.IntRange(0, 2**63 - 1),
    default=_D.random_seed,
    help="Where seeds come from for sampled requests that bring none.",
)
@click.option("--threads", type=_POSITIVE, help="CPU threads. [default: torch's own choice]")
@click.option(
    "--no-prefix-cache",
    "prefix_cache",
    is_flag=True,
    flag_value=False,
    default=True,
    show_default=False,
    help="Compute every prompt whole; keep nothing between requests.",
)
@click.option(
    "--snapshot-interval",
    type=click.IntRange(min=0),
    default=_D.snapshot_interval,
    help="Tokens between recurrent snapshots beyond the first 4096 (every 256 there); 0 for none.",
)
@click.option(
    "--max-snapshots",
    type=_POSITIVE,
    default=_D.max_snapshots,
    help="Recurrent snapshots that are kept; the least recently used go first.",
)
@click.option(
    "--max-snapshot-bytes",
    type=_POSITIVE,
    default=_D.max_snapshot_bytes,
    help="Bytes that recurrent snapshots may take.",
)
@click.option(
    "--fp8-weights",
    type=click.Choice(["stored", "expanded"]),
    default=_D.fp8_weights,
    help="Weights in FP8 blocks: as they are stored, or expanded at the start.",
)
@click.option(
    "--kv-cache-dtype",
    type=click.Choice(["float32", "fp8"]),
    default=_D.kv_cache_dtype,
    help="Keys and values of the target; FP8 E4M3 rounds them and takes a quarter of the memory.",
)
@click.option(
    "--attention-window",
    type=click.IntRange(min=0),
    default=_D.attention_window,
    help="Newest positions that full attention sees; 0 for all. Changes what the model says.",
)
@click.option(
    "--attention-sink-tokens",
    type=click.IntRange(min=0),
    default=_D.attention_sink_tokens,
    help="First positions that stay in sight beside the window.",
)
@click.option("--enable-metrics", is_flag=True, help="Serve Prometheus series at /metrics.")
@click.option(
    "--enable-cache-report",
    is_flag=True,
    help="Put prompt_tokens_details.cached_tokens into OpenAI-style usage.",
)
@click.option(
    "--incremental-streaming-output",
    is_flag=True,
    help="Events of /generate carry only what is new instead of everything so far.",
)
@click.option(
    "--stream-response-default-include-usage",
    is_flag=True,
    help="OpenAI-style streams end with usage even when not asked.",
)
@click.option(
    "--decode-log-interval",
    type=_POSITIVE,
    default=_D.decode_log_interval,
    help="Decode steps between two `Decode batch` log lines.",
)
@click.option(
    "--max-body-bytes",
    type=_POSITIVE,
    default=_D.max_body_bytes,
    help="Largest request body; a larger one is answered 413.",
)
@click.option(
    "--drain-timeout",
    "drain_timeout_s",
    type=click.FloatRange(min=0),
    default=_D.drain_timeout_s,
    help="Seconds that running requests get to finish after SIGTERM.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default=_D.log_level,
    help="Least severe lines that are written.",
)
def serve(**options: Any) -> None:
    """Serve a checkpoint over HTTP, in the manner of SGLang and OpenAI.

    Prints `The server is fired up and ready to roll!` when it takes requests. Ends with 0 when it
    was told to stop, 1 when the engine failed, 2 when it could not start.
    """
    from specdec.serve import run

    code = run(ServeSettings(**options))
    # Taking the interpreter and the model library apart can last seconds on a busy machine, which
    # the promised bound of the end does not have. Nothing is left to save.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
