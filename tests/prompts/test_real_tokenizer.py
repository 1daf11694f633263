"""Our reading of a .gguf tokenizer against llama.cpp's own, on code, prose and odd text."""

from __future__ import annotations

import contextlib
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from qualify.engines.fetch import ensure_model
from qualify.engines.spec import load_engine
from qualify.paths import corpora_dir, engines_dir
from qualify.prompts.exact import build
from qualify.prompts.prompt import PromptSpec
from qualify.prompts.tokens import Tokenizer

pytest.importorskip("xllamacpp")
pytestmark = pytest.mark.engine

ODD = (
    "Grüße aus Köln — “naïve” café… ½ ² ③ Ⅷ № 5",
    "日本語のテキスト、中文字符。한국어 문장입니다. Привет! مرحبا ١٢٣ हिन्दी नमस्ते",
    "🙂 👩\u200d👩\u200d👧 🏳\ufe0f\u200d🌈 e\u0301 n\u0303",
    "a\u00a0b\u2003c\u2028d\u2029e\u0085f\u3000g\ufeffh",
    "tabs\t\t\tand  \n\n \n\t\n  blanks   \r\n\r\nCRLF\r",
    "don't I'LL we'Ve IT'S 'tis 1234567890 3.14 1e-5 0xFF",
    "\x01\x1f\x7f",
    "<|im_start|>user\nhi<|im_end|><|endoftext|>x",
    "   leading",
    "trailing   ",
    "\n",
)


@pytest.fixture(scope="module")
def model() -> Path:
    path = ensure_model(load_engine("llama-cpp"))
    assert path is not None
    return path


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = engines_dir() / "llama-cpp" / "serve.py"
    log = (tmp_path_factory.mktemp("log") / "server.log").open("w")
    process = subprocess.Popen(
        [sys.executable, script, "--model", model, "--port", str(port)], stdout=log, stderr=log
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            for _ in range(240):
                with contextlib.suppress(httpx.TransportError):
                    if client.get("/health").status_code == 200:
                        break
                time.sleep(0.25)  # refused, or 503 while it loads
            yield client
    finally:
        process.terminate()
        process.wait(20)
        log.close()


def theirs(server: httpx.Client, text: str) -> list[int]:
    answer = server.post("/tokenize", json={"content": text}).raise_for_status()
    return list(answer.json()["tokens"])


def test_every_text_gets_the_ids_that_llama_cpp_gives_it(model: Path, server: httpx.Client) -> None:
    tokenizer = Tokenizer.load(model)
    samples = [p.read_text("utf-8")[:4_000] for p in sorted(corpora_dir().rglob("*.txt"))[::9]]
    letters = random.Random(5)
    spans = ((32, 126), (9, 13), (160, 591), (768, 879), (0x2000, 0x206F), (0x3000, 0x30FF))
    fuzz = [
        "".join(chr(letters.randint(*letters.choice(spans))) for _ in range(40)) for _ in range(200)
    ]
    for text in (*ODD, *samples, *fuzz):
        assert tokenizer.encode(text) == theirs(server, text), text[:80]


def test_a_prompt_of_n_tokens_is_n_tokens_to_the_server(model: Path, server: httpx.Client) -> None:
    tokenizer = Tokenizer.load(model)
    for source in ("corpora/prose", "corpora/code", "corpora/copy"):
        for template in (False, True):
            for tokens in (64, 1_023):
                spec = PromptSpec("real", "w", source, tokens, 2, 0, template=template)
                for prompt in build(spec, tokenizer, need_text=True):
                    assert theirs(server, prompt.text) == list(prompt.ids)
                    assert len(prompt.ids) == tokens
