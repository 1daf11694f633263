"""PocketLLM's engine behind SGLang's native route: one process a rank, one line a request.

The engine itself is no server: rank 0 reads `MAX_NEW_TOKENS ID ID …` on its standard input and
answers with one line of key=value words once all is generated. This starts the ranks (sharing
an NCCL id file that must not exist before), waits until rank 0 says qwen_startup=1, and serves
`/generate`, `/health`, `/server_info` and `/model_info` over HTTP on one address.

Nothing is streamed, so nobody can measure a first token from outside: answers are one JSON
document, and the engine's own prefill and decode seconds stand in meta_info under its names.
One request runs at a time; others wait in order of arrival. A request that would make the
engine exit (too long, nothing to generate) is refused here with 400. Standard library only.

    python serve.py --engine BINARY --model FOLDER --tp-world 4 --devices 0,1,2,3 --port 30000 \
        --max-context 32768 [any flag of the engine]
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ranks import Ranks, ids, number


class Refused(Exception):
    """Answered with 400."""


class Server:
    """What the routes answer; each method gives (status, JSON)."""

    def __init__(self, options: argparse.Namespace, ranks: Ranks) -> None:
        self._options, self._ranks = options, ranks

    def health(self) -> tuple[int, Any]:
        if self._ranks.failed:
            return 503, {"error": {"message": self._ranks.failed}}
        ready = bool(self._ranks.startup)
        return (200, {}) if ready else (503, {"error": {"message": "ranks are loading"}})

    def model_info(self) -> tuple[int, Any]:
        name = self._options.served_model_name or self._options.model
        return 200, {"model_path": self._options.model, "served_model_name": name}

    def server_info(self) -> tuple[int, Any]:
        startup = {key: number(value) for key, value in self._ranks.startup.items()}
        return 200, {
            "context_length": self._options.max_context,
            "max_total_num_tokens": self._options.max_context,
            "max_running_requests": 1,
            "tp_size": self._options.tp_world,
            "served_model_name": self._options.served_model_name or self._options.model,
            "disable_radix_cache": startup.get("prefix_cache") == 0,
            "engine": startup,
        }

    def generate(self, body: Any) -> tuple[int, Any]:
        prompt, new_tokens = self._checked(body)
        result, same = self._ranks.generate(prompt, new_tokens)
        tokens = ids(result.get("tokens", ""))
        meta = {
            "id": body.get("rid"),
            "finish_reason": {"type": "length", "length": len(tokens)},
            "prompt_tokens": number(result.get("prompt_tokens", "")),
            "completion_tokens": number(result.get("generated_tokens", "")),
            "cached_tokens": number(result.get("prefix_reused_tokens", "")),
            "rank_token_parity": same,
            "engine": {k: number(v) for k, v in result.items() if k != "tokens"},
        }
        return 200, {"text": "", "output_ids": tokens, "meta_info": meta}

    def _checked(self, body: Any) -> tuple[list[int], int]:
        """What the engine would exit over, or would answer as if it were something else."""
        if not isinstance(body, dict) or not isinstance(body.get("input_ids"), list):
            raise Refused("input_ids: a list of token ids is needed; there is no tokenizer here")
        prompt, params = body["input_ids"], body.get("sampling_params") or {}
        new_tokens = params.get("max_new_tokens", 128)
        if not prompt or not all(isinstance(i, int) and i >= 0 for i in prompt):
            raise Refused("input_ids must be whole numbers, at least one")
        if not isinstance(new_tokens, int) or new_tokens < 1:
            raise Refused("max_new_tokens must be at least 1")
        if len(prompt) + new_tokens > self._options.max_context:
            raise Refused(
                f"{len(prompt)} + {new_tokens} tokens are above max_context "
                f"{self._options.max_context}"
            )
        if params.get("temperature", 1.0) != 0:
            raise Refused("this engine is greedy: temperature must be 0")
        if params.get("ignore_eos") is not True:
            raise Refused("this engine never stops at an end of text: ignore_eos must be true")
        return prompt, new_tokens


def handler(server: Server) -> type[BaseHTTPRequestHandler]:
    routes = {
        "/health": server.health,
        "/ready": server.health,
        "/model_info": server.model_info,
        "/server_info": server.server_info,
    }

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            route = routes.get(self.path.partition("?")[0])
            self._answer(*(route() if route else (404, {"error": {"message": "Not Found"}})))

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers.get("content-length") or 0))
            if self.path.partition("?")[0] != "/generate":
                return self._answer(404, {"error": {"message": "Not Found"}})
            if server.health()[0] != 200:
                return self._answer(*server.health())
            try:
                self._answer(*server.generate(json.loads(data)))
            except (Refused, ValueError) as error:
                self._answer(400, {"error": {"message": str(error)}})
            except RuntimeError as error:
                self._answer(500, {"error": {"message": str(error)}})

        def _answer(self, status: int, payload: Any) -> None:
            data = json.dumps(payload).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """The log is the ranks' own."""

    return Handler


def main() -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument(
        "--engine", required=True, help="the command: pocketllm_engine, dsv4_cpp_engine, …"
    )
    parser.add_argument(
        "--dialect",
        choices=["pocketllm", "specdec"],
        default="pocketllm",
        help="whose flags the command takes; `specdec worker` speaks the same lines",
    )
    parser.add_argument("--model", required=True)
    parser.add_argument("--served-model-name")
    parser.add_argument("--tp-world", type=int, default=1)
    parser.add_argument("--devices", default="", help="a GPU a rank, such as 0,1,2,3")
    parser.add_argument("--max-context", type=int, required=True)
    parser.add_argument("--rank-logs", help="a folder that gets rank0.log, rank1.log, …")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    options, flags = parser.parse_known_args()
    if options.dialect == "specdec" and options.tp_world != 1:
        parser.error("--tp-world: specdec starts its own ranks; pass it --tp-size instead")
    ranks = Ranks(options, flags)
    http = ThreadingHTTPServer((options.host, options.port), handler(Server(options, ranks)))
    http.daemon_threads = True
    stopping = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stopping.set())
    threading.Thread(target=http.serve_forever, daemon=True).start()
    while not stopping.wait(0.1):
        if ranks.failed:
            print(f"pocketllm: {ranks.failed}", flush=True)
            break
    failed = ranks.failed
    http.shutdown()
    code = ranks.stop()
    return 1 if failed else code


if __name__ == "__main__":
    sys.exit(main())
