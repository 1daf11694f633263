"""Collect the text, split it, train the tokenizer and write token streams.

    python -m specdec.train.prepare --out DIR --site-packages DIR [--stdlib DIR] [--texts DIR]
        [--protect PATH ...]

``--protect`` names texts that training must not touch (the harness's corpora, evaluation
problems): every 50-token span they share with a training document is cut out of the document.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import random
import sysconfig
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from specdec.train import sources
from specdec.train.batches import Corpus, Mixture, sequence, write_stream
from specdec.train.sources import Document
from specdec.train.split import SPAN_TOKENS, Ids, SpanIndex, first_overlap, is_held_out
from specdec.train.vocabulary import END_OF_TEXT, Encoder, train_tokenizer, write_tokenizer

HELD_OUT_PER_MILLE = {"code": 12, "prose": 30}
LEAST_STRETCH_TOKENS = 256
HELD_OUT_TOKENS = 150_000
#: Copyleft texts: held out and hashed, but not passed on with the checkpoint.
HASHED_ONLY = {"debian-handbook", "debian-reference-en", "developers-reference", "gnome-user-docs"}
TOKENIZER_SAMPLE_CHARS = 60_000_000


def collect(stdlib: Path, site_packages: Path, texts: Path | None) -> list[Document]:
    """All documents in a fixed order, without exact duplicates."""
    found: list[Document] = []
    found += sources.python_files(stdlib, sources.STDLIB)
    for source in sources.PACKAGES:
        found += sources.python_files(site_packages / source.name, source)
    if texts is not None:
        found += sources.prose(texts)
    seen: set[str] = set()
    return [d for d in found if d.sha256 not in seen and not seen.add(d.sha256)]  # type: ignore[func-returns-value]


def protected_texts(paths: list[Path]) -> Iterator[tuple[str, str]]:
    """(name, text) of every file below the given paths; JSON lines give each string they hold."""
    for path in paths:
        files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        for file in files:
            raw = file.read_bytes()
            if file.suffix == ".gz":
                raw = gzip.decompress(raw)
            text = raw.decode("utf-8", "replace")
            if ".json" in file.name:
                records = json.loads(text) if file.suffix == ".json" else text.splitlines()
                for record in records:
                    value = json.loads(record) if isinstance(record, str) else record
                    for field in value.values() if isinstance(value, dict) else ():
                        if isinstance(field, str):
                            yield file.name, field
            else:
                yield file.name, text


def sample_texts(documents: list[Document], limit_chars: int) -> Iterator[str]:
    """A balanced sample for the tokenizer: code and prose in equal measure, then generated text."""
    rng = random.Random("tokenizer")
    for domain in ("code", "prose"):
        picked = [d.text for d in documents if d.domain == domain]
        rng.shuffle(picked)
        budget = limit_chars // 2
        for text in picked:
            if budget <= 0:
                break
            yield text[:budget]
            budget -= len(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    paths = sysconfig.get_paths()
    parser.add_argument("--stdlib", type=Path, default=Path(paths["stdlib"]))
    parser.add_argument("--site-packages", type=Path, default=Path(paths["purelib"]))
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--protect", type=Path, action="append", default=[])
    parser.add_argument("--vocab", type=int, default=4096)
    arguments = parser.parse_args()
    out: Path = arguments.out
    documents = collect(arguments.stdlib, arguments.site_packages, arguments.texts)
    held: list[Document] = []
    training: list[Document] = []
    for document in documents:
        limit = HELD_OUT_PER_MILLE[document.domain]
        side = held if is_held_out(document.source, document.path, limit) else training
        side.append(document)
    print(f"{len(documents)} documents, {len(held)} held out", flush=True)

    if not (out / "tokenizer.json").exists():
        tokenizer = train_tokenizer(sample_texts(training, TOKENIZER_SAMPLE_CHARS), arguments.vocab)
        write_tokenizer(tokenizer, out)
    encode = Encoder(out / "tokenizer.json")
    end = np.asarray([encode.id_of(END_OF_TEXT)], np.uint16)
    print("tokenizer ready", flush=True)

    protected = list(protected_texts(arguments.protect))
    guard = SpanIndex.of(encode(text) for _, text in protected)
    print(f"protected: {len(protected)} texts, {len(guard.hashes)} spans", flush=True)
    streams: dict[str, list[Ids]] = {"code": [], "prose": []}
    tokens: Counter[str] = Counter()
    cut = 0
    for document in training:
        ids = encode(document.text)
        kept = guard.clean_stretches(ids, SPAN_TOKENS) if len(ids) >= SPAN_TOKENS else [ids]
        cut += len(ids) - sum(map(len, kept))
        for part in kept:
            streams[document.domain] += [part, end]
            tokens[document.source] += len(part)
    joined = {domain: np.concatenate(parts) for domain, parts in streams.items()}
    for domain, ids in joined.items():
        write_stream(out / f"{domain}.u16.xz", ids)
    print(f"training tokens: {sum(tokens.values())}, cut as protected: {cut}", flush=True)

    trained = SpanIndex.of(joined.values())
    rows, budget = [], dict.fromkeys(streams, HELD_OUT_TOKENS)
    random.Random("held-out").shuffle(held)
    with (out / "heldout.jsonl").open("w", encoding="utf-8") as handle:
        for document in held:
            for number, part in enumerate(
                trained.clean_stretches(encode(document.text), LEAST_STRETCH_TOKENS)
            ):
                if budget[document.domain] <= 0:
                    break
                part = part[: budget[document.domain]]
                budget[document.domain] -= len(part)
                text = encode.tokenizer.decode(part.tolist(), skip_special_tokens=False)
                row = {
                    "domain": document.domain,
                    "source": document.source,
                    "path": document.path,
                    "part": number,
                    "tokens": len(part),
                    "sha256": hashlib.sha256(text.encode()).hexdigest(),
                }
                row["text_included"] = document.source not in HASHED_ONLY
                if row["text_included"]:
                    handle.write(json.dumps({**row, "text": text}, ensure_ascii=False) + "\n")
                rows.append((row, encode(text)))
    texts = [ids for _, ids in rows] + [encode(text) for _, text in protected]
    clash = first_overlap(trained, [ids for ids in texts if len(ids)])
    if clash is not None:
        raise SystemExit(f"Held-out text {clash[0]} shares a 50-token span with training text.")
    _check_generated(encode, joined, SpanIndex.of(texts))
    train_hash = hashlib.sha256()
    for document in sorted(training, key=lambda d: (d.source, d.path)):
        train_hash.update(f"{document.source}/{document.path} {document.sha256}\n".encode())
    split = {
        "span_tokens": SPAN_TOKENS,
        "training_documents": len(training),
        "training_documents_sha256": train_hash.hexdigest(),
        "training_tokens": dict(sorted(tokens.items())),
        "training_stream_sha256": {
            domain: hashlib.sha256(ids.astype("<u2").tobytes()).hexdigest()
            for domain, ids in joined.items()
        },
        "protected": _protected_hashes(protected),
        "cut_tokens": cut,
        "held_out": [row for row, _ in rows],
    }
    (out / "split.json").write_text(json.dumps(split, indent=1) + "\n")
    print("no shared 50-token span; written", out, flush=True)


def _check_generated(encode: Encoder, joined: dict[str, Ids], index: SpanIndex) -> None:
    """Generated training sequences must not hold a held-out span either (a seeded sample)."""
    corpus = Corpus(joined["code"], joined["prose"])
    rng = random.Random("overlap")
    for number in range(600):
        kind = Mixture(code=0, prose=0).draw(rng)
        ids, _ = sequence(rng, kind, 1025, corpus, encode)
        if index.shared(ids).any():
            raise SystemExit(f"Generated {kind} sequence {number} holds a held-out span.")


def _protected_hashes(protected: list[tuple[str, str]]) -> dict[str, str]:
    digests: dict[str, hashlib._Hash] = {}
    for name, text in protected:
        digests.setdefault(name, hashlib.sha256()).update(text.encode())
    return {name: digest.hexdigest() for name, digest in sorted(digests.items())}


if __name__ == "__main__":
    main()
