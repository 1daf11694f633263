"""Generated chat: short questions with short answers that end, and small functions on request."""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray
from specdec.train import snippets
from specdec.train.recall import ANSWER_WEIGHT, Encode, Fill, Ids, Writer
from specdec.train.words import CAPITALS, COLOURS, DAYS, MONTHS, NAMES, OPPOSITES, THINGS

_GREETINGS = {
    "Hello!": "Hello! How can I help you?",
    "Hi there.": "Hi! What can I do for you?",
    "Good morning.": "Good morning! How can I help?",
    "How are you?": "I am well, thank you. How can I help?",
    "Thank you.": "You are welcome.",
    "Who are you?": "I am a very small language model.",
    "What are you?": "I am a very small language model.",
    "Goodbye.": "Goodbye!",
    "Can you help me?": "Yes. What would you like to know?",
}


def _arithmetic(rng: random.Random) -> tuple[str, str]:
    a, b = rng.randint(0, 20), rng.randint(0, 20)
    kind = rng.randrange(5)
    if kind == 0:
        return f"What is {a} + {b}?", str(a + b)
    if kind == 1:
        a, b = max(a, b), min(a, b)
        return f"What is {a} - {b}?", str(a - b)
    if kind == 2:
        a, b = a % 11, b % 11
        return f"What is {a} * {b}?", str(a * b)
    if kind == 3:
        return f"Which is larger, {a} or {b}?", str(max(a, b))
    return f"Is {a} even or odd?", "Even." if a % 2 == 0 else "Odd."


def _fact(rng: random.Random) -> tuple[str, str]:
    kind = rng.randrange(5)
    if kind == 0:
        country, city = rng.choice(list(CAPITALS.items()))
        question = rng.choice(
            (
                f"What is the capital of {country}?",
                f"Name the capital of {country}.",
                f"Which city is the capital of {country}?",
            )
        )
        return question, rng.choice((f"{city}.", f"The capital of {country} is {city}."))
    if kind == 1:
        word, other = rng.choice(list(OPPOSITES.items()))
        if rng.random() < 0.5:
            word, other = other, word
        return f"What is the opposite of {word}?", f"{other.capitalize()}."
    if kind == 2:
        thing, colour = rng.choice(list(COLOURS.items()))
        return f"What colour is {thing}?", f"{colour.capitalize()}."
    if kind == 3:
        index = rng.randrange(7)
        return f"Which day comes after {DAYS[index]}?", f"{DAYS[(index + 1) % 7]}."
    index = rng.randrange(12)
    return f"Which month comes after {MONTHS[index]}?", f"{MONTHS[(index + 1) % 12]}."


def _from_context(rng: random.Random) -> tuple[str, str]:
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    other, count = rng.choice(NAMES), rng.randint(2, 30)
    kind = rng.randrange(3)
    if kind == 0:
        return f"{name} has {count} books. How many books does {name} have?", f"{count}."
    if kind == 1:
        return f"{name} is in the {thing}. {other} is at home. Where is {name}?", f"In the {thing}."
    return f"Repeat the word {thing}.", f"{thing}"


def question_and_answer(rng: random.Random) -> tuple[str, str]:
    """One short exchange."""
    kind = rng.random()
    if kind < 0.15:
        return rng.choice(list(_GREETINGS.items()))
    if kind < 0.4:
        return _arithmetic(rng)
    if kind < 0.65:
        return _fact(rng)
    if kind < 0.75:
        return _from_context(rng)
    snippet = snippets.make(rng)
    asked = rng.choice(
        (
            f"Write a Python function {snippet.name} that {snippet.task}.",
            f"Write a function {snippet.name}({snippet.parameters}) that {snippet.task}.",
            f"Please write the Python function {snippet.name}. It {snippet.task}.",
        )
    )
    return asked, rng.choice((f"```python\n{snippet.code}```", snippet.code.rstrip()))


def chat_sequence(
    rng: random.Random, length: int, encode: Encode, fill: Fill
) -> tuple[Ids, NDArray[np.uint8]]:
    """Conversations of one to four turns, packed; a few functions stand alone as code."""
    del fill
    writer = Writer.start(encode)
    while writer.length < length:
        if rng.random() < 0.25:
            snippet = snippets.make(rng)
            writer.add(snippet.documented, 2)
            writer.add("<|endoftext|>")
            continue
        if rng.random() < 0.15:
            writer.add("<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n")
        for _ in range(rng.choice((1, 1, 1, 2, 3, 4))):
            question, answer = question_and_answer(rng)
            writer.add(f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n")
            writer.add(f"{answer}<|im_end|>", ANSWER_WEIGHT)
            writer.add("\n")
        writer.add("<|endoftext|>")
    ids, weights = writer.joined()
    return ids[:length], weights[:length]
