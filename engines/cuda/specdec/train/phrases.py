"""How generated codes are stated and asked for. ``{s}`` subject, ``{c}`` code, ``{n}`` number,
``{o}`` ordinal, ``{k}`` how many.
"""

from __future__ import annotations

NAMED = (
    "The code for {s} is {c}.",
    "The secret code for {s} is {c}.",
    "The access code of {s} is {c}.",
    "Remember this: the code for {s} is {c}.",
    "Note that {s} has the code {c}.",
    "For {s}, use the code {c}.",
    "The key to {s} is {c}.",
    "The pass key for {s} is {c}.",
    "The registered code of {s} is {c}.",
    "By the way, the code kept for {s} is {c}.",
    "It was written that the code for {s} is {c}.",
)
PLAIN = (
    "The secret code is {c}.",
    "One of the codes is {c}.",
    "A code to remember: {c}.",
    "Another code is {c}.",
    "The special code here is {c}.",
    "Remember the code {c}.",
    "Please note the code {c}.",
    "One code to keep in mind is {c}.",
    "The hidden code is {c}.",
    "A clerk wrote down the code {c} on that day.",
)
NUMBERED = (
    "Code {n} is {c}.",
    "The {o} code is {c}.",
    "The {o} secret code is {c}.",
    "Secret code number {n} is {c}.",
    "Needle {n}: the code is {c}.",
    "Access code {n} is {c}.",
)
ORDINALS = [
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "twelfth",
]
ASK_ONE = (
    "What is the code for {s}?",
    "What is the secret code for {s}?",
    "Which code belongs to {s}?",
    "What is the access code of {s}?",
    "What is the key to {s}?",
    "Give the code for {s}.",
)
ASK_NUMBER = ("What is code {n}?", "What is the {o} code?", "What is the {o} secret code?")
ASK_ALL = (
    "What are all the codes?",
    "What are the codes mentioned in the text above?",
    "List all {k} codes that appear in the text.",
    "List all the codes.",
    "Which {k} codes were stated in the text above?",
    "What are the {k} secret codes? Answer with the codes only.",
    "List every code stated in the text, in any order.",
    "Give all {k} access codes that the text states, separated by commas.",
    "Repeat every secret code from the text above. Answer with the codes only.",
    "What are the {k} codes? Answer with the codes only, separated by commas.",
    "Find the {k} codes hidden in this text and list them.",
    "{k} codes were stated in the text. What are they?",
)
COUNT_WORDS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
]
