"""SGLang-shaped endpoints (engine-protocols §1.1, §1.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.scripted_engine import dialect_openai
from tests.scripted_engine.generation import Ask, Generation
from tests.scripted_engine.model import next_two
from tests.scripted_engine.server import Answer, Seen
from tests.scripted_engine.wire import json_play, text_play

if TYPE_CHECKING:
    from tests.scripted_engine.engine import ScriptedEngine

_FLUSHED = "Cache flushed.\nPlease check backend logs for more details.\n"


def route(engine: ScriptedEngine, seen: Seen, body: dict[str, Any]) -> Answer | None:
    path = seen.path
    if path in ("/health", "/health_generate", "/ready"):
        return text_play("", 200 if engine.ready else 503)
    if path == "/ping":
        return text_play("", 200)
    if path == "/flush_cache":
        status = engine.flush()
        return text_play(_FLUSHED if status == 200 else "Flush cache failed.\n", status)
    if path in ("/server_info", "/get_server_info"):
        return json_play(_server_info(engine))
    if path in ("/model_info", "/get_model_info"):
        return json_play(
            {
                "model_path": engine.model,
                "served_model_name": engine.model,
                "is_generation": True,
                "model_type": "scripted",
                "architectures": ["ScriptedForCausalLM"],
            }
        )
    if path == "/abort_request":
        engine.aborted.append(str(body.get("rid", "")))
        return text_play("", 200)
    if path == "/tokenize":
        ids = engine.encode(body.get("prompt", ""))
        return json_play({"tokens": ids, "count": len(ids), "max_model_len": engine.context})
    if path == "/metrics":
        return text_play(_metrics(engine))
    if path == "/generate":
        return _generate(engine, seen, body)
    return dialect_openai.route_v1(engine, seen, body)


def _server_info(engine: ScriptedEngine) -> dict[str, Any]:
    c = engine.counters
    return {
        "model_path": engine.model,
        "served_model_name": engine.model,
        "context_length": engine.context,
        "max_total_num_tokens": engine.pool,
        "max_req_input_len": engine.context - 1,
        "max_running_requests": engine.slots or 48,
        "speculative_algorithm": "NGRAM" if engine.accept else None,
        "speculative_num_draft_tokens": engine.width + 1 if engine.accept else None,
        "incremental_streaming_output": engine.incremental,
        "version": "0.5.23",
        "internal_states": [
            {"avg_spec_accept_length": 1 + c["C"] / c["V"] if c["V"] else None},
        ],
    }


def _metrics(engine: ScriptedEngine) -> str:
    c = engine.counters
    label = f'{{model_name="{engine.model}"}}'
    lines = [
        f"sglang:prompt_tokens_total{label} {c['prompt']}",
        f"sglang:generation_tokens_total{label} {c['generated']}",
        f"sglang:cached_tokens_total{label} {c['cached']}",
        f"sglang:num_requests_total{label} {c['requests']}",
        f"sglang:spec_verify_calls_total{label} {c['V']}",
        f"sglang:num_retracted_requests_total{label} 0.0",
        f"sglang:num_running_reqs{label} {engine.running}",
    ]
    return "\n".join(lines) + "\n"


def _generate(engine: ScriptedEngine, seen: Seen, body: dict[str, Any]) -> Answer:
    if ("text" in body) == ("input_ids" in body):
        return json_play({"error": {"message": "give either text or input_ids"}}, 400)
    ids = body["input_ids"] if "input_ids" in body else engine.encode(body["text"])
    sampling = body.get("sampling_params") or {}
    ask = Ask(
        prompt=tuple(ids),
        max_tokens=int(sampling.get("max_new_tokens", 128)),
        ignore_eos=bool(sampling.get("ignore_eos", False)),
        stream=bool(body.get("stream", False)),
        salt=str(body.get("extra_key") or body.get("cache_salt") or ""),
        body=body,
    )
    message = (
        f"Requested token count exceeds the model's maximum context length of {engine.context} "
        f"tokens. You requested a total of {len(ask.prompt) + ask.max_tokens} tokens."
    )
    too_long = json_play({"error": {"message": message}}, 400)
    return engine.generate(seen, ask, _Shape, too_long)


class _Shape:
    def __init__(self, engine: ScriptedEngine, made: Generation, ask: Ask, reason: str) -> None:
        self._engine, self._made, self._ask = engine, made, ask
        self._reason: dict[str, Any] = {"type": reason}
        if reason == "length":
            self._reason["length"] = len(made.output)
        else:
            self._reason["matched"] = 2

    def opening(self) -> list[Any]:
        return []

    def tokens(self, so_far: int, size: int, last: bool) -> list[Any]:
        upto = so_far + size
        start = so_far if self._engine.incremental else 0
        ids = list(self._made.output[start:upto])
        return [
            {
                "text": self._engine.text(ids),
                "output_ids": ids,
                "meta_info": self._meta(upto, last),
            }
        ]

    def closing(self) -> list[Any]:
        return ["[DONE]"]

    def document(self) -> Any:
        ids = list(self._made.output)
        return {
            "text": self._engine.text(ids),
            "output_ids": ids,
            "meta_info": self._meta(len(ids), True),
        }

    def _meta(self, upto: int, last: bool) -> dict[str, Any]:
        made, spec = self._made, self._made.speculation
        meta: dict[str, Any] = {
            "id": self._ask.body.get("rid", f"r{made.ordinal}"),
            "finish_reason": self._reason if last else None,
            "prompt_tokens": len(made.prompt),
            "weight_version": "default",
            "num_retractions": self._engine.retracted.get(made.ordinal, 0),
            "reasoning_tokens": 0,
            "completion_tokens": upto,
            "dp_rank": None,
        }
        if self._engine.rank_parity:
            meta["rank_token_parity"] = made.ordinal not in self._engine.ranks_apart
        margin = self._engine.score_margin
        if self._ask.body.get("return_logprob") and margin is not None:
            honest, other = next_two(made.prompt)
            meta["output_top_logprobs"] = [
                [[-0.5, honest, None], [-0.5 - margin, other, None], [-9.0, 1, None]]
            ]
        if self._engine.report_cached:
            meta["cached_tokens"] = made.cached_tokens
        if last and spec.V:
            meta |= {
                "spec_verify_ct": spec.V,
                "spec_num_correct_drafts": spec.C,
                "spec_num_proposed_drafts": spec.P,
                "spec_accept_rate": spec.C / spec.P,
                "spec_accept_length": len(made.output) / spec.V,
                "spec_correct_drafts_histogram": list(spec.histogram),
            }
        return meta
