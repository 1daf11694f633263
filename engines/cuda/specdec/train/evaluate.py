"""Measures of a trained checkpoint: held-out loss, recall by distance, chat, MTP agreement.

Recall is judged in one forward pass: an answer is right when the argmax at every answer token is
that token, which is the same as greedy decoding producing it.
"""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from specdec.train.chat import question_and_answer
from specdec.train.loop import cross_entropy
from specdec.train.model import HybridModel
from specdec.train.mtp import MtpHead, MtpStages, unroll
from specdec.train.recall import Encode, Fact, Ids, make_facts, named_answer
from specdec.train.stages import Stages
from specdec.train.vocabulary import TURN_END, Encoder
from torch import Tensor


@dataclass(frozen=True)
class DomainLoss:
    """Held-out figures of one domain; loss in nats per token."""

    domain: str
    tokens: int
    loss: float
    top1: float


@dataclass(frozen=True)
class RecallScore:
    """Five codes stated through a text of ``tokens`` tokens, asked for at its end."""

    style: str
    tokens: int
    prompts: int
    all_five: float
    codes: float


def held_out_streams(data: Path, encode: Encode) -> dict[str, Ids]:
    """Held-out tokens by domain, in file order."""
    parts: dict[str, list[Ids]] = {}
    for line in (data / "heldout.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        parts.setdefault(row["domain"], []).append(encode(row["text"]))
    return {domain: np.concatenate(ids) for domain, ids in parts.items()}


def windows(ids: Ids, length: int, device: torch.device) -> Tensor:
    """[B, length + 1] consecutive windows that share their edge token."""
    count = (len(ids) - 1) // length
    rows = [ids[i * length : (i + 1) * length + 1].astype(np.int64) for i in range(count)]
    return torch.from_numpy(np.stack(rows)).to(device)


@torch.no_grad()
def domain_loss(
    model: HybridModel, domain: str, ids: Ids, run: Stages, *, length: int = 1024, rows: int = 16
) -> DomainLoss:
    """Loss and top-1 accuracy over consecutive windows of ``length`` tokens."""
    device = model.model.embed_tokens.weight.device
    head = model.model.embed_tokens.weight
    losses, hits, count = 0.0, 0.0, 0
    for chunk in windows(ids, length, device).split(rows):
        hidden = model.hidden(chunk[:, :-1], None, run)
        targets = chunk[:, 1:].flatten()
        ones = torch.ones_like(targets, dtype=torch.float32)
        loss, _ = cross_entropy(hidden, head, targets, ones, model.dtype)
        losses += float(loss) * targets.numel()
        hits += float((model.logits(hidden).argmax(-1) == targets).sum())
        count += targets.numel()
    return DomainLoss(domain, count, losses / count, hits / count)


def needle_prompt(
    rng: random.Random, tokens: int, encode: Encode, filler: Ids, style: str
) -> tuple[Ids, list[Fact]]:
    """A prompt of exactly ``tokens`` tokens in the chat template, and the five facts inside.

    The codes stand at 10, 30, 50, 70 and 90 per cent of the text.
    """
    facts = make_facts(rng, 5, style)
    head, tail = encode("<|im_start|>user\n"), encode("\n\n" + question_of(style, facts))
    tail = np.concatenate([tail, encode("<|im_end|>\n<|im_start|>assistant\n")])
    statements = [encode(f"\n{fact.sentence}\n") for fact in facts]
    room = tokens - len(head) - len(tail) - sum(map(len, statements))
    if room < 100 or room > len(filler):
        raise ValueError(f"{tokens} tokens do not fit 5 statements and {len(filler)} of filler.")
    start = rng.randrange(len(filler) - room + 1)
    text = filler[start : start + room]
    parts, place = [head], 0
    for index, statement in enumerate(statements):
        cut = int(room * (0.1 + 0.2 * index))
        parts += [text[place:cut], statement]
        place = cut
    parts += [text[place:], tail]
    return np.concatenate(parts), facts


def question_of(style: str, facts: list[Fact]) -> str:
    """The evaluation's question for each style."""
    if style == "named":
        names = [str(fact.subject) for fact in facts]
        return f"What are the codes for {', '.join(names[:-1])} and {names[-1]}?"
    return "List all five codes that appear in the text."


@torch.no_grad()
def recall(
    model: HybridModel,
    encode: Encode,
    filler: Ids,
    run: Stages,
    *,
    style: str,
    tokens: int,
    prompts: int,
    seed: str,
) -> RecallScore:
    """Share of prompts with all five codes right, and share of single codes right."""
    device = model.model.embed_tokens.weight.device
    end = encode(TURN_END)
    whole = single = 0
    for number in range(prompts):
        rng = random.Random(f"{seed}/{style}/{tokens}/{number}")
        prompt, facts = needle_prompt(rng, tokens, encode, filler, style)
        answers = [named_answer([f]) if style == "named" else f.code for f in facts]
        answer = encode(", ".join(answers))
        ids = np.concatenate([prompt, answer, end]).astype(np.int64)
        padded = np.pad(ids, (0, -len(ids) % 64))
        hidden = model.hidden(torch.from_numpy(padded)[None].to(device), None, run)
        start = len(prompt) - 1
        guess = model.logits(hidden[start : len(ids) - 1]).argmax(-1).cpu().numpy()
        right = guess == ids[len(prompt) :]
        whole += bool(right.all())
        place = 0
        for index, text in enumerate(answers):
            span = len(encode(text if index == 0 else ", " + text))
            single += bool(right[place : place + span].all())
            place += span
    return RecallScore(style, tokens, prompts, whole / prompts, single / (5 * prompts))


@torch.no_grad()
def greedy(
    model: HybridModel, encode: Encoder, prompts: list[str], run: Stages, new_tokens: int
) -> list[str]:
    """Greedy continuations by whole forward passes (short prompts only; no cache to be wrong)."""
    device = model.model.embed_tokens.weight.device
    rows = [encode(prompt).astype(np.int64).tolist() for prompt in prompts]
    starts = [len(row) for row in rows]
    stop = encode.id_of(TURN_END)
    width = max(starts) + new_tokens
    width += -width % 64
    for _ in range(new_tokens):
        ids = torch.zeros(len(rows), width, dtype=torch.long)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = torch.tensor(row)
        hidden = model.hidden(ids.to(device), None, run).view(len(rows), width, -1)
        last = torch.tensor([len(row) - 1 for row in rows], device=device)
        best = model.logits(hidden[torch.arange(len(rows), device=device), last]).argmax(-1)
        for row, start, token in zip(rows, starts, best.tolist(), strict=True):
            if stop not in row[start:]:
                row.append(token)
        if all(stop in row[start:] for row, start in zip(rows, starts, strict=True)):
            break
    return [
        encode.tokenizer.decode(row[start:], skip_special_tokens=False)
        for row, start in zip(rows, starts, strict=True)
    ]


def chat_figures(
    model: HybridModel, encode: Encoder, run: Stages, prompts: int = 64
) -> dict[str, object]:
    """Share of chat answers that end by themselves, share that are right, and samples."""
    rng = random.Random("chat-eval")
    pairs = [question_and_answer(rng) for _ in range(prompts)]
    asked = [f"<|im_start|>user\n{q}<|im_end|>\n<|im_start|>assistant\n" for q, _ in pairs]
    answers = greedy(model, encode, asked, run, 64)
    ended = sum(answer.endswith(TURN_END) for answer in answers)
    clean = [answer.removesuffix(TURN_END) for answer in answers]
    right = sum(got == want for got, (_, want) in zip(clean, pairs, strict=True))
    samples = [{"ask": q, "got": got} for (q, _), got in zip(pairs, clean, strict=True)][:12]
    return {
        "prompts": prompts,
        "ended": ended / prompts,
        "right": right / prompts,
        "samples": samples,
    }


@torch.no_grad()
def mtp_agreement(
    model: HybridModel,
    head: MtpHead,
    ids: Ids,
    run: Stages,
    *,
    depths: int,
    length: int = 1024,
    rows: int = 16,
) -> list[float]:
    """Share of teacher-forced chains whose draft at each depth is the target's argmax."""
    device = model.model.embed_tokens.weight.device
    sums, batches = [0.0] * depths, 0
    for chunk in windows(ids, length, device).split(rows):
        positions = torch.arange(length, device=device).expand(len(chunk), -1)
        result = unroll(
            model,
            head,
            chunk,
            positions,
            depths=depths,
            first=0,
            run=run,
            mtp_run=MtpStages.make(False),
        )
        sums = [total + float(share) for total, share in zip(sums, result.agreement, strict=True)]
        batches += 1
    return [total / batches for total in sums]


def report(
    model: HybridModel,
    head: MtpHead | None,
    data: Path,
    run: Stages,
    *,
    recall_lengths: list[int],
    prompts: int,
    chat_prompts: int = 64,
    filler: Ids | None = None,
    note: object = None,
) -> dict[str, object]:
    """All figures as plain values. ``filler`` defaults to the held-out prose."""
    encode = Encoder(data / "tokenizer.json")
    streams = held_out_streams(data, encode)
    filler = streams["prose"] if filler is None else filler
    say = note if callable(note) else lambda **_: None
    losses = [asdict(domain_loss(model, name, ids, run)) for name, ids in streams.items()]
    say(losses=losses)
    figures: dict[str, object] = {"held_out": losses}
    if head is not None:
        figures["mtp_agreement"] = {
            name: mtp_agreement(model, head, ids[:33000], run, depths=7)
            for name, ids in streams.items()
        }
        say(mtp_agreement=figures["mtp_agreement"])
    figures["chat"] = chat_figures(model, encode, run, chat_prompts)
    say(chat=figures["chat"])
    scores = []
    for tokens in recall_lengths:
        count = prompts if tokens <= 40_000 else max(2, prompts // (tokens // 20_000))
        for style in ("named", "numbered", "plain"):
            score = recall(
                model, encode, filler, run, style=style, tokens=tokens, prompts=count, seed="eval"
            )
            scores.append(asdict(score))
            say(**scores[-1])
    figures["recall"] = scores
    return figures
