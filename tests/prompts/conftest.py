"""Small real tokenizers, trained in a second on the bundled texts, and small corpora."""

from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from qualify.paths import corpora_dir
from qualify.prompts.tokens import Tokenizer

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>'"
    " + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def texts() -> list[str]:
    root = corpora_dir()
    prose = (root / "prose" / "austen-persuasion.txt").read_text("utf-8")[:150_000]
    code = (root / "code" / "flask" / "flask-app.py.txt").read_text("utf-8")
    return [prose, code]


def train(vocab_size: int) -> Backend:
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=SPECIALS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(texts(), trainer)
    return backend


def saved(backend: Backend, folder: Path, template: str | None = CHAT) -> Tokenizer:
    folder.mkdir(parents=True, exist_ok=True)
    backend.save(str(folder / "tokenizer.json"))
    if template is not None:
        (folder / "chat_template.jinja").write_text(template, "utf-8")
    return Tokenizer.load(folder)


@pytest.fixture(scope="session")
def words(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A byte-level BPE of 6,000 tokens: common words are one token."""
    return saved(train(6_000), tmp_path_factory.mktemp("words"))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Bytes and a few merges: no word is one token, characters can be cut in two."""
    return saved(train(300), tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def with_bos(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Puts <|endoftext|> before every text, as Llama's tokenizers do."""
    backend = train(3_000)
    backend.post_processor = processors.TemplateProcessing(
        single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
    )
    return saved(backend, tmp_path_factory.mktemp("bos"))


@pytest.fixture(scope="session")
def lossy(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Lower-cases and blanks out line ends: decoding does not give the text back."""
    backend = train(3_000)
    backend.normalizer = normalizers.Sequence(
        [normalizers.Lowercase(), normalizers.Replace("\n", " ")]
    )
    return saved(backend, tmp_path_factory.mktemp("lossy"))


@pytest.fixture(scope="session")
def doubling(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Every character becomes two tokens, so that no text has an odd number of them."""
    alphabet = [*sorted(set("".join(texts()))), "\u0001"]
    backend = Backend(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    backend.normalizer = normalizers.Sequence(
        [normalizers.Replace(c, f"{c}\u0001") for c in alphabet[:-1]]
    )
    return saved(backend, tmp_path_factory.mktemp("doubling"), None)
