"""Generated recall: codes stated in natural text, asked for later at every distance.

A sequence is filler (real text) with statements in it, questions after them, and the answers,
which alone carry a higher loss weight. Wording, code formats, number of codes, order of the
question and answer style vary, so that what is learnt is the looking up and not one sentence.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from specdec.train.phrases import (
    ASK_ALL,
    ASK_NUMBER,
    ASK_ONE,
    COUNT_WORDS,
    NAMED,
    NUMBERED,
    ORDINALS,
    PLAIN,
)
from specdec.train.words import NAMES, PLACES, THINGS

Ids = NDArray[np.uint16]
Encode = Callable[[str], Ids]
Fill = Callable[[int], Ids]

ANSWER_WEIGHT = 4
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"


@dataclass(frozen=True)
class Fact:
    """One statement: its sentence, its code, and what identifies it in a question."""

    sentence: str
    code: str
    subject: str | None = None
    number: int | None = None


def random_code(rng: random.Random, family: int) -> str:
    """A code that nothing else in the text predicts."""
    digits = "".join(rng.choices("0123456789", k=8))
    letters = "".join(rng.choices(_LETTERS, k=4))
    formats = (
        f"{letters[0]}{digits[0]}-{digits[1:5]}",
        f"{letters[0]}{digits[0]}-{digits[1:5]}",
        f"{letters[:2]}-{digits[:4]}",
        f"{letters[:3]}-{digits[:3]}",
        digits[:4],
        digits[:6],
        digits[:7],
        f"{digits[:3]}-{digits[3:6]}",
        f"{letters[:2]}{digits[:4]}",
        f"{letters[0]}{digits[:5]}",
        f"{digits[:2]}-{letters[:2]}-{digits[2:4]}",
        f"{letters}-{digits[:4]}",
    )
    return formats[family % len(formats)]


CODE_FAMILIES = 12


def random_subject(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.25:
        return rng.choice(NAMES)
    if kind < 0.4:
        return f"{rng.choice(NAMES)} {rng.choice(NAMES)}"
    if kind < 0.65:
        return f"the {rng.choice(THINGS)}"
    if kind < 0.85:
        return rng.choice(PLACES)
    return f"{rng.choice(('room', 'vault', 'gate', 'box', 'station'))} {rng.randint(2, 99)}"


def make_facts(rng: random.Random, count: int, style: str) -> list[Fact]:
    """``count`` facts in one style (``named``, ``plain`` or ``numbered``), all codes different."""
    family = rng.randrange(CODE_FAMILIES)
    template = rng.choice({"named": NAMED, "plain": PLAIN, "numbered": NUMBERED}[style])
    vary = rng.random() < 0.4
    facts: list[Fact] = []
    codes: set[str] = set()
    subjects: set[str] = set()
    while len(facts) < count:
        code, subject = random_code(rng, family), random_subject(rng)
        if code in codes or subject in subjects:
            continue
        codes.add(code)
        subjects.add(subject)
        if style == "named":
            text = rng.choice(NAMED) if vary else template
            facts.append(Fact(text.format(s=subject, c=code), code, subject=subject))
        elif style == "numbered":
            number = len(facts) + 1
            ordinal = ORDINALS[number - 1] if number <= len(ORDINALS) else f"{number}th"
            facts.append(Fact(template.format(n=number, o=ordinal, c=code), code, number=number))
        else:
            text = rng.choice(PLAIN) if vary else template
            facts.append(Fact(text.format(c=code), code))
    return facts


def named_answer(facts: list[Fact]) -> str:
    """Codes asked for by name: each behind its name, so that every one is a single look-up."""
    return ", ".join(f"{fact.subject}: {fact.code}" for fact in facts)


def ask(rng: random.Random, facts: list[Fact], stated: int) -> tuple[str, str]:
    """A question about the first ``stated`` facts, and its answer."""
    known = facts[:stated]
    whole = stated == len(facts) and len(facts) <= 12
    style = "named" if known[0].subject else "numbered" if known[0].number else "plain"
    if style == "plain" or (whole and rng.random() < 0.5):
        question = rng.choice(ASK_ALL).format(k=COUNT_WORDS[min(stated, 12)])
        return question, ", ".join(fact.code for fact in known)
    if style == "named" and rng.random() < 0.25 and stated >= 3:
        chosen = rng.sample(known, min(stated, rng.randint(2, 5)))
        names = [str(fact.subject) for fact in chosen]
        joined = ", ".join(names[:-1]) + " and " + names[-1]
        return f"What are the codes for {joined}?", named_answer(chosen)
    fact = rng.choice(known)
    if style == "named":
        return rng.choice(ASK_ONE).format(s=fact.subject), fact.code
    number = fact.number or 1
    ordinal = ORDINALS[number - 1] if number <= len(ORDINALS) else f"{number}th"
    return rng.choice(ASK_NUMBER).format(n=number, o=ordinal), fact.code


@dataclass
class Writer:
    """Collects token ids with their loss weights."""

    encode: Encode
    ids: list[Ids]
    weights: list[NDArray[np.uint8]]
    length: int = 0

    @classmethod
    def start(cls, encode: Encode) -> Writer:
        return cls(encode, [], [])

    def add(self, what: str | Ids, weight: int = 1) -> None:
        ids = self.encode(what) if isinstance(what, str) else what
        self.ids.append(ids)
        self.weights.append(np.full(len(ids), weight, np.uint8))
        self.length += len(ids)

    def joined(self) -> tuple[Ids, NDArray[np.uint8]]:
        return np.concatenate(self.ids), np.concatenate(self.weights)


def exchange(writer: Writer, rng: random.Random, chat: bool, question: str, answer: str) -> None:
    """One question and its answer, as a chat turn or as plain text."""
    if chat:
        writer.add(f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n")
        writer.add(f"{answer}<|im_end|>", ANSWER_WEIGHT)
        writer.add("\n")
    else:
        writer.add(f"\n\nQuestion: {question}\nAnswer:")
        writer.add(f" {answer}\n", ANSWER_WEIGHT)


def recall_sequence(
    rng: random.Random, length: int, encode: Encode, fill: Fill
) -> tuple[Ids, NDArray[np.uint8]]:
    """One sequence of about ``length`` tokens (never longer): facts in filler, then questions."""
    style = rng.choices(("named", "plain", "numbered"), (5, 4, 3))[0]
    most = max(1, min(length // 120, 12 if style != "named" else 24))
    count = min(most, 5) if rng.random() < 0.5 else rng.randint(1, most)
    facts = make_facts(rng, count, style)
    chat = rng.random() < 0.5
    follow_ups = 0 if length < 512 else rng.randint(0, 6 if style != "plain" else 1)
    reserve = 90 + 45 * follow_ups + 56 * count
    filler = max(0, length - reserve - (rng.randrange(length) // 4 if length <= 2048 else 0))
    cuts = sorted(rng.randrange(filler + 1) for _ in range(count))
    if rng.random() < 0.4:  # evenly through the text, as needle tests place them
        cuts = [int(filler * (index + 0.5) / count) for index in range(count)]
    writer = Writer.start(encode)
    lead = rng.choice(
        ("", "", "Read the text and remember the codes.\n\n", "Remember every code below.\n\n")
    )
    writer.add(("<|im_start|>user\n" if chat else "") + lead)
    text, place = fill(filler), 0
    for cut, fact in zip(cuts, facts, strict=True):
        writer.add(text[place:cut])
        place = cut
        writer.add(rng.choice((" ", "\n", "\n\n")) + fact.sentence + rng.choice((" ", "\n")))
    writer.add(text[place:])
    question, answer = ask(rng, facts, count)
    if chat:
        writer.add(f"\n\n{question}<|im_end|>\n<|im_start|>assistant\n")
        writer.add(f"{answer}<|im_end|>", ANSWER_WEIGHT)
        writer.add("\n")
    else:
        exchange(writer, rng, False, question, answer)
    for _ in range(follow_ups):
        if writer.length > length - 60:
            break
        exchange(writer, rng, chat, *ask(rng, facts, count))
    writer.add("<|endoftext|>", ANSWER_WEIGHT)
    ids, weights = writer.joined()
    return ids[:length], weights[:length]


def lookup_sequence(
    rng: random.Random, length: int, encode: Encode, fill: Fill
) -> tuple[Ids, NDArray[np.uint8]]:
    """A table of many keys with values, then many look-ups: dense practice at short range."""
    writer = Writer.start(encode)
    family = rng.randrange(CODE_FAMILIES)
    arrow = rng.choice((": ", " = ", " -> ", " is "))
    pairs: dict[str, str] = {}
    # Long sequences get one table and then real text: there are only so many subjects.
    length = min(length, 16_384)
    budget = int(length * rng.uniform(0.3, 0.6))
    gap = rng.choice((0, 0, 20, 60))
    while writer.length < budget:
        key = random_subject(rng)
        if key in pairs:
            continue
        pairs[key] = random_code(rng, family)
        writer.add(f"{key}{arrow}{pairs[key]}\n")
        if gap:
            writer.add(fill(rng.randrange(gap)))
            writer.add("\n")
    writer.add("\n")
    keys = list(pairs)
    while writer.length < length:
        key = rng.choice(keys)
        writer.add(f"{key}{arrow.rstrip()}")
        writer.add(f" {pairs[key]}\n", ANSWER_WEIGHT)
    ids, weights = writer.joined()
    return ids[:length], weights[:length]


def repeat_sequence(
    rng: random.Random, length: int, encode: Encode, fill: Fill
) -> tuple[Ids, NDArray[np.uint8]]:
    """Passages of real text that come again after other text: copying from context."""
    writer = Writer.start(encode)
    while writer.length < length:
        span = fill(rng.randint(16, max(17, min(400, length // 3))))
        asked = rng.random() < 0.3
        if asked:
            writer.add("<|im_start|>user\nRepeat this text:\n")
            writer.add(span)
            writer.add("<|im_end|>\n<|im_start|>assistant\n")
            writer.add(span, 2)
            writer.add("<|im_end|>\n")
            continue
        writer.add(span)
        for _ in range(rng.randint(1, 3)):
            writer.add(fill(rng.randint(0, max(1, length // 3))))
            writer.add(span, 2)
    ids, weights = writer.joined()
    return ids[:length], weights[:length]
