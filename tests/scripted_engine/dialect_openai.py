"""OpenAI-shaped endpoints as vLLM serves them (engine-protocols §1.6, §1.7, §2.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.scripted_engine.generation import Ask, Generation
from tests.scripted_engine.server import Answer, Seen
from tests.scripted_engine.wire import json_play, text_play

if TYPE_CHECKING:
    from tests.scripted_engine.engine import ScriptedEngine


def route(engine: ScriptedEngine, seen: Seen, body: dict[str, Any]) -> Answer | None:
    if seen.path == "/health":
        return text_play("", 200 if engine.ready else 503)
    if seen.path == "/version":
        return json_play({"version": "0.33.0"})
    if seen.path == "/reset_prefix_cache":
        return json_play({"success": engine.flush() == 200})
    if seen.path == "/tokenize":
        ids = engine.encode(body.get("prompt", ""))
        return json_play({"count": len(ids), "tokens": ids, "max_model_len": engine.context})
    if seen.path == "/metrics":
        return text_play(_metrics(engine))
    return route_v1(engine, seen, body)


def route_v1(engine: ScriptedEngine, seen: Seen, body: dict[str, Any]) -> Answer | None:
    if seen.path == "/v1/models":
        model = {"id": engine.model, "object": "model", "max_model_len": engine.context}
        return json_play({"object": "list", "data": [model]})
    if seen.path in ("/v1/completions", "/v1/chat/completions"):
        return _generate(engine, seen, body, chat="chat" in seen.path)
    return None


def _metrics(engine: ScriptedEngine) -> str:
    c = engine.counters
    label = f'{{model_name="{engine.model}"}}'
    lines = [
        f"vllm:prompt_tokens_total{label} {c['prompt']}",
        f"vllm:prompt_tokens_cached_total{label} {c['cached']}",
        f"vllm:generation_tokens_total{label} {c['generated']}",
        f"vllm:num_preemptions_total{label} 0.0",
        f"vllm:num_requests_running{label} {engine.running}",
        f"vllm:spec_decode_num_drafts_total{label} {c['V']}",
        f"vllm:spec_decode_num_draft_tokens_total{label} {c['P']}",
        f"vllm:spec_decode_num_accepted_tokens_total{label} {c['C']}",
    ]
    return "\n".join(lines) + "\n"


def prompt_of(engine: ScriptedEngine, body: dict[str, Any], chat: bool) -> tuple[int, ...]:
    if chat:
        turns = body.get("messages") or []
        text = "".join(f"<|{m.get('role')}|>{m.get('content')}" for m in turns)
        return tuple(engine.encode(text + "<|assistant|>"))
    prompt = body.get("prompt", "")
    return tuple(engine.encode(prompt)) if isinstance(prompt, str) else tuple(prompt)


def _generate(engine: ScriptedEngine, seen: Seen, body: dict[str, Any], chat: bool) -> Answer:
    limit = body.get("max_completion_tokens") or body.get("max_tokens") or 16
    ask = Ask(
        prompt=prompt_of(engine, body, chat),
        max_tokens=int(limit),
        ignore_eos=bool(body.get("ignore_eos", False)),
        stream=bool(body.get("stream", False)),
        salt=str(body.get("cache_salt") or ""),
        body={**body, "chat": chat},
    )
    message = (
        f"This model's maximum context length is {engine.context} tokens. However, you requested "
        f"{ask.max_tokens} output tokens and your prompt has {len(ask.prompt)} input tokens."
    )
    error = {"message": message, "type": "BadRequestError", "param": None, "code": 400}
    return engine.generate(seen, ask, OpenAIShape, json_play({"error": error}, 400))


class OpenAIShape:
    def __init__(self, engine: ScriptedEngine, made: Generation, ask: Ask, reason: str) -> None:
        self._engine, self._made, self._ask, self._reason = engine, made, ask, reason
        self._chat = bool(ask.body.get("chat"))
        options = ask.body.get("stream_options") or {}
        self._usage_wanted = bool(options.get("include_usage"))
        self._running = bool(options.get("continuous_usage_stats"))
        self._ids_wanted = bool(ask.body.get("return_token_ids"))

    def opening(self) -> list[Any]:
        if not self._chat:
            return []
        return [self._chunk({"role": "assistant", "content": ""}, None, 0, None)]

    def tokens(self, so_far: int, size: int, last: bool) -> list[Any]:
        ids = list(self._made.output[so_far : so_far + size])
        text = self._engine.text(ids)
        body = {"content": text} if self._chat else text
        return [self._chunk(body, self._reason if last else None, so_far + size, ids)]

    def closing(self) -> list[Any]:
        if not self._usage_wanted:
            return ["[DONE]"]
        final = {**self._base(), "choices": [], "usage": self._usage(len(self._made.output))}
        spec = self._made.speculation
        if spec.V:
            final["metrics"] = {
                "speculative_decoding": {
                    "mean_acceptance_length": 1 + spec.C / spec.V,
                    "draft_acceptance_rate": spec.C / spec.P,
                    "acceptance_histogram": list(spec.histogram),
                    "num_spec_steps": spec.V,
                    "num_accepted_draft_tokens": spec.C,
                    "num_draft_tokens": spec.P,
                    "num_spec_tokens": self._engine.width,
                }
            }
        return [final, "[DONE]"]

    def document(self) -> Any:
        ids = list(self._made.output)
        text = self._engine.text(ids)
        choice: dict[str, Any] = {"index": 0, "finish_reason": self._reason}
        if self._chat:
            choice["message"] = {"role": "assistant", "content": text}
        else:
            choice["text"] = text
        if self._ids_wanted:
            choice["token_ids"] = ids
        return {**self._base(), "choices": [choice], "usage": self._usage(len(ids))}

    def _base(self) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self._chat else "text_completion"
        return {
            "id": f"cmpl-{self._made.ordinal}",
            "object": kind,
            "created": 1,
            "model": self._engine.model,
        }

    def _chunk(
        self, body: Any, reason: str | None, upto: int, ids: list[int] | None
    ) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": reason}
        choice["delta" if self._chat else "text"] = body
        if self._ids_wanted:
            choice["token_ids"] = ids
        made: dict[str, Any] = {**self._base(), "choices": [choice]}
        if self._running:
            made["usage"] = self._usage(upto)
        return made

    def _usage(self, upto: int) -> dict[str, Any]:
        prompt = len(self._made.prompt)
        usage: dict[str, Any] = {
            "prompt_tokens": prompt,
            "total_tokens": prompt + upto,
            "completion_tokens": upto,
        }
        if self._engine.report_cached:
            usage["prompt_tokens_details"] = {"cached_tokens": self._made.cached_tokens}
        return usage
