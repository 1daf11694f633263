"""llama.cpp-shaped endpoints (engine-protocols §2.2): one event a token, bursts in a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.scripted_engine import dialect_openai
from tests.scripted_engine.generation import Ask, Generation
from tests.scripted_engine.server import Answer, Seen
from tests.scripted_engine.wire import json_play, text_play

if TYPE_CHECKING:
    from tests.scripted_engine.engine import ScriptedEngine

_LOADING = {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}


def route(engine: ScriptedEngine, seen: Seen, body: dict[str, Any]) -> Answer | None:
    if seen.path in ("/health", "/v1/health"):
        return json_play({"status": "ok"}) if engine.ready else json_play(_LOADING, 503)
    if seen.path == "/props":
        return json_play(
            {
                "default_generation_settings": {"n_ctx": engine.context},
                "total_slots": engine.slots or 4,
                "model_path": engine.model,
                "build_info": "b1-scripted",
            }
        )
    if seen.path == "/slots":
        return json_play([{"id": 0, "n_ctx": engine.context, "is_processing": engine.running > 0}])
    if seen.path.startswith("/slots/") and seen.query.get("action") == "erase":
        return json_play({"id_slot": 0, "n_erased": engine.cache.clear()})
    if seen.path == "/tokenize":
        return json_play({"tokens": engine.encode(body.get("content", ""))})
    if seen.path == "/detokenize":
        return json_play({"content": engine.text(body.get("tokens", []))})
    if seen.path == "/metrics":
        return text_play(_metrics(engine))
    if seen.path in ("/completion", "/completions"):
        return _generate(engine, seen, body)
    return dialect_openai.route_v1(engine, seen, body)


def _metrics(engine: ScriptedEngine) -> str:
    c = engine.counters
    lines = [
        f"llamacpp:prompt_tokens_total {c['prompt'] - c['cached']}",
        f"llamacpp:tokens_predicted_total {c['generated']}",
        f"llamacpp:n_decode_total {c['generated']}",
        f"llamacpp:requests_processing {engine.running}",
        "llamacpp:requests_deferred 0",
        f"llamacpp:spec_decode_num_drafts_total {c['V']}",
        f"llamacpp:spec_decode_num_draft_tokens_total {c['P']}",
        f"llamacpp:spec_decode_num_accepted_tokens_total {c['C']}",
    ]
    return "\n".join(lines) + "\n"


def _generate(engine: ScriptedEngine, seen: Seen, body: dict[str, Any]) -> Answer:
    prompt = dialect_openai.prompt_of(engine, body, chat=False)
    n_predict = body.get("n_predict", body.get("max_tokens", 128))
    ask = Ask(
        prompt=prompt,
        max_tokens=int(n_predict),
        ignore_eos=bool(body.get("ignore_eos", False)),
        stream=bool(body.get("stream", False)),
        use_cache=bool(body.get("cache_prompt", True)),
        body=body,
    )
    error = {
        "code": 400,
        "message": f"request ({len(prompt)} tokens) exceeds the available context size "
        f"({engine.context} tokens)",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": len(prompt),
        "n_ctx": engine.context,
    }
    return engine.generate(seen, ask, _Shape, json_play({"error": error}, 400))


class _Shape:
    def __init__(self, engine: ScriptedEngine, made: Generation, ask: Ask, reason: str) -> None:
        self._engine, self._made, self._ask = engine, made, ask
        self._stop_type = "limit" if reason == "length" else "eos"
        self._ids_wanted = bool(ask.body.get("return_tokens"))

    def opening(self) -> list[Any]:
        return []

    def tokens(self, so_far: int, size: int, last: bool) -> list[Any]:
        return [self._token(k) for k in range(so_far, so_far + size)]

    def _token(self, k: int) -> dict[str, Any]:
        token = self._made.output[k]
        said: dict[str, Any] = {
            "index": 0,
            "content": self._engine.text([token]),
            "tokens": [token] if self._ids_wanted else [],
            "stop": False,
            "id_slot": 0,
            "tokens_predicted": k + 1,
            "tokens_evaluated": len(self._made.prompt),
        }
        if self._ask.body.get("timings_per_token"):
            said["timings"] = self._timings(k + 1)
        return said

    def closing(self) -> list[Any]:
        return [self._end("", [])]

    def document(self) -> Any:
        ids = list(self._made.output)
        return self._end(self._engine.text(ids), ids if self._ids_wanted else [])

    def _end(self, content: str, tokens: list[int]) -> dict[str, Any]:
        made = self._made
        return {
            "index": 0,
            "content": content,
            "tokens": tokens,
            "id_slot": 0,
            "stop": True,
            "model": self._engine.model,
            "tokens_predicted": len(made.output),
            "tokens_evaluated": len(made.prompt),
            "truncated": False,
            "stop_type": self._stop_type,
            "tokens_cached": len(made.prompt) + len(made.output) - 1,
            "timings": self._timings(len(made.output)),
        }

    def _timings(self, predicted: int) -> dict[str, Any]:
        made, spec = self._made, self._made.speculation
        said: dict[str, Any] = {
            "prompt_n": len(made.prompt) - made.cached_tokens,
            "prompt_ms": self._engine.ttft_ms,
            "predicted_n": predicted,
            "predicted_ms": self._engine.step_ms * len(made.steps),
        }
        if self._engine.report_cached:
            said["cache_n"] = made.cached_tokens
        if spec.P:
            said |= {"draft_n": spec.P, "draft_n_accepted": spec.C}
        return said
