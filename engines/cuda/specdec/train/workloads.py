"""The prompts of the published figures: held-out code and prose, recall, and repetition."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from specdec.train.evaluate import held_out_streams, needle_prompt
from specdec.train.recall import Encode, Ids


@dataclass(frozen=True)
class Prompt:
    """Token ids, the codes that the answer must hold (recall only), and where the text is from."""

    ids: tuple[int, ...]
    codes: tuple[str, ...] = ()


def slices(ids: Ids, count: int, length: int) -> list[Prompt]:
    """Prompts spread evenly over a held-out stream."""
    step = (len(ids) - length) // max(1, count)
    return [Prompt(tuple(ids[i * step : i * step + length].tolist())) for i in range(count)]


def repetitive(ids: Ids, count: int, length: int) -> list[Prompt]:
    """A held-out passage of 48 tokens, over and over, cut in the middle of a repetition."""
    starts = slices(ids, count, 48)
    return [Prompt(tuple(np.resize(np.asarray(p.ids), length).tolist())) for p in starts]


def needles(encode: Encode, filler: Ids, count: int, tokens: int, style: str) -> list[Prompt]:
    prompts = []
    for number in range(count):
        rng = random.Random(f"measure/{style}/{tokens}/{number}")
        ids, facts = needle_prompt(rng, tokens, encode, filler, style)
        prompts.append(Prompt(tuple(ids.tolist()), tuple(fact.code for fact in facts)))
    return prompts


def workloads(encode: Encode, folder: Path, count: int, length: int) -> dict[str, list[Prompt]]:
    """The prompts of each workload."""
    streams = held_out_streams(folder, encode)
    third = max(1, count // 2)
    return {
        "code": slices(streams["code"], count, length),
        "prose": slices(streams["prose"], count, length),
        "recall": [
            *needles(encode, streams["prose"], count - third, length, "numbered"),
            *needles(encode, streams["prose"], third, length, "plain"),
        ],
        "repetitive": repetitive(streams["prose"], count, length),
    }
