"""A real process that behaves as an engine does while it starts and stops, and no further.

It speaks llama.cpp's control routes. Standard library only; run as a script.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

p = argparse.ArgumentParser()
p.add_argument("--port", type=int, required=True)
p.add_argument("--alias", default="toy")
p.add_argument("--load-s", type=float, default=0.0, help="503 for so long")
p.add_argument("--load-status", type=int, default=503, help="what it answers meanwhile")
p.add_argument("--die-after-s", type=float, help="exit with code 3 then, before listening")
p.add_argument("--ignore-term", action="store_true")
p.add_argument("--daemon", action="store_true", help="leave a grandchild in a session of its own")
p.add_argument("--chatter", type=int, default=0, help="bytes of output at the start")
p.add_argument("--eat-mb", type=int, default=0, help="take so much memory at the start")
p.add_argument("--last-words", help="printed after --load-s, before the first 200")
p.add_argument("--seen", help="file that gets a line for each request")
args = p.parse_args()

SLEEPER = "import time\nwhile True: time.sleep(60)"
print("toy: starting", flush=True)
if args.chatter:
    sys.stdout.write("x" * args.chatter + "\n")
    sys.stdout.flush()
if args.ignore_term:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
else:
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
if args.daemon:
    # Double fork: its parent is gone, its session and group are its own.
    code = f"import subprocess,sys; subprocess.Popen([sys.executable,'-c',{SLEEPER!r}])"
    subprocess.run([sys.executable, "-c", code], start_new_session=True, check=True)
if args.die_after_s is not None:
    time.sleep(args.die_after_s)
    print("toy: no memory for the model", file=sys.stderr, flush=True)
    sys.exit(3)
if args.eat_mb:
    print("toy: eating", flush=True)
    eaten = bytearray(os.urandom(1 << 20)) * args.eat_mb
began = time.monotonic()
if args.last_words:
    threading.Timer(args.load_s, lambda: print(args.last_words, flush=True)).start()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if args.seen:
            with Path(args.seen).open("a") as file:
                file.write(f"GET {self.path}\n")
        ready = time.monotonic() - began >= args.load_s
        if self.path == "/health" and not ready:
            error = {"code": args.load_status, "message": "Loading model"}
            return self.answer(args.load_status, {"error": error})
        known = {
            "/health": {"status": "ok"},
            "/v1/models": {"data": [{"id": args.alias}]},
            "/props": {"total_slots": 1, "default_generation_settings": {"n_ctx": 64}},
            "/slots": [{"n_ctx": 64}],
        }
        if self.path in known:
            return self.answer(200, known[self.path])
        return self.answer(404, {})

    def do_POST(self) -> None:
        if args.seen:
            with Path(args.seen).open("a") as file:
                file.write(f"POST {self.path}\n")
        self.answer(500, {})

    def answer(self, status: int, payload: object) -> None:
        data = json.dumps(payload).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


ThreadingHTTPServer(("127.0.0.1", args.port), Handler).serve_forever()
