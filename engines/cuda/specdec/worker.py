"""The persistent worker: a request a line in, a line of key=value words out.

A request is ``<max_new_tokens> id id …`` on standard input; blank lines are skipped. It is decoded
greedily to its full length, past any end token, and answered with one ``qwen_persistent_result=1``
line under PocketLLM's names, which keep ``mtp_`` for every drafter (source: PocketLLM's guide and
result line; the order of the words is no contract). Answers come in the order of the requests and
carry no id. As there, a line that cannot be served ends the worker, and so does the end of input,
which is the clean way. Rates of nothing are left out rather than told as 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TextIO

from specdec.contract import DecodeRunner
from specdec.errors import RequestRefused
from specdec.request import Counters, SamplingParams
from specdec.settings import ServeSettings
from specdec.solo import Answer, answer

WANTED = "Write MAX_NEW_TOKENS ID ID … on one line, all whole numbers."


@dataclass(frozen=True)
class Line:
    """One request: greedy, ``new_tokens`` long."""

    new_tokens: int
    prompt_ids: tuple[int, ...]


def read_line(text: str) -> Line:
    """Raises RequestRefused for what is no request."""
    try:
        new_tokens, *prompt = (int(word) for word in text.split())
    except ValueError:
        raise RequestRefused(f"'{text.strip()[:60]}' is no request.", WANTED) from None
    return Line(new_tokens, tuple(prompt))


def work(
    runner: DecodeRunner, settings: ServeSettings, requests: Iterable[str], out: TextIO
) -> None:
    """Answer every line of ``requests`` until they end. Raises RequestRefused at the first that
    cannot be served."""
    _say(out, startup_words(runner, settings))
    for number, text in enumerate(requests, 1):
        if not text.strip():
            continue
        line = read_line(text)
        params = SamplingParams(line.new_tokens, temperature=0.0, ignore_eos=True)
        done = answer(runner, str(number), line.prompt_ids, params)
        finish = done.sequence.finish
        if finish is not None and finish.kind == "abort":
            raise RequestRefused(f"Request {number} failed: {finish.message}", "Check the weights.")
        _say(out, result_words(runner, settings, done))


def startup_words(runner: DecodeRunner, settings: ServeSettings) -> dict[str, object]:
    """What is said once, when requests are taken."""
    info = runner.info
    return {
        "qwen_startup": 1,
        "persistent_stdin": 1,
        "mode": info.mode,
        "prefill_chunk_tokens": info.prefill_chunk_tokens,
        "prefix_cache": int(info.prefix_cache),
        **_drafter_words(runner),
        "snapshot_interval": settings.snapshot_interval,
        "max_snapshots": settings.max_snapshots,
        "max_context": min(info.context_length, info.max_total_tokens),
    }


def result_words(
    runner: DecodeRunner, settings: ServeSettings, done: Answer
) -> dict[str, object | None]:
    """One finished request. Seconds are the worker's own; None is left out of the line."""
    seq, counts, cache = done.sequence, done.sequence.counters, runner.cache_size
    steps, proposed = counts.verify_steps, counts.proposed_drafts
    return {
        "qwen_persistent_result": 1,
        "mode": runner.info.mode,
        "prompt_tokens": len(seq.prompt_ids),
        "generated_tokens": len(seq.output_ids),
        "tokens": ",".join(map(str, seq.output_ids)),
        "wall": done.wall_s,
        "prefill_seconds": done.prefill_s,
        "decode_seconds": done.decode_s,
        "decode_tokens_per_s": done.decode_tokens_per_s,
        "prefill_tokens_per_s": done.prefill_tokens_per_s,
        "prefill_computed_tokens_per_s": done.computed_tokens_per_s,
        "prefix_reused_tokens": seq.cached_tokens,
        "prefix_computed_tokens": done.computed_tokens,
        "prefix_matched_tokens": seq.matched_tokens,
        "prefix_resume_source": seq.resume_source,
        "prefix_snapshots": cache.snapshots,
        "prefix_snapshot_bytes": cache.snapshot_bytes,
        **_drafter_words(runner),
        **_confidence_words(counts),
        "mtp_accept_rate": counts.correct_drafts / proposed if proposed else None,
        "spec_accept_length": 1 + counts.correct_drafts / steps if steps else None,
        "mtp_verify_count": steps,
        "mtp_proposed_drafts": proposed,
        "mtp_correct_drafts": counts.correct_drafts,
        "mtp_rollback_count": counts.rollbacks,
        "mtp_replay_tokens": counts.replayed_tokens,
        "plain_tokens": counts.plain_tokens,
        "trimmed_tokens": counts.trimmed_tokens,
        "mtp_prefill_seconds": counts.priming_s,
        "mtp_draft_seconds": counts.draft_s,
        "mtp_verify_seconds": counts.verify_s,
        "mtp_replay_seconds": counts.replay_s,
    }


def _drafter_words(runner: DecodeRunner) -> dict[str, object]:
    info = runner.info
    return {
        **{name: int(info.mode == name) for name in ("mtp", "dflash2", "dspark")},
        "mtp_tokens": info.draft_steps,
        "mtp_adaptive": int(info.adaptive),
    }


def _confidence_words(counts: Counters) -> dict[str, object | None]:
    """Of a drafter that has a confidence; nothing is said of others."""
    if not counts.confidence_count:
        return {}
    return {
        f"dspark_confidence_{name}": getattr(counts, f"confidence_{name}")
        for name in ("count", "mean", "min", "max")
    }


def _say(out: TextIO, words: dict[str, object] | dict[str, object | None]) -> None:
    told = (
        f"{key}={value:.6f}" if isinstance(value, float) else f"{key}={value}"
        for key, value in words.items()
        if value is not None
    )
    out.write(" ".join(told) + "\n")
    out.flush()
