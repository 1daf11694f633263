"""Generated small Python functions with a sentence about each."""

from __future__ import annotations

import random
from dataclasses import dataclass

# (names, parameters, what it does, body); {x}, {y} are the parameters' names.
_TABLE: tuple[tuple[str, str, str, str], ...] = (
    ("add sum_of_two plus", "x y", "returns the sum of {x} and {y}", "return {x} + {y}"),
    ("subtract difference minus", "x y", "returns {x} minus {y}", "return {x} - {y}"),
    ("multiply product times", "x y", "returns the product of {x} and {y}", "return {x} * {y}"),
    ("square squared", "x", "returns the square of {x}", "return {x} * {x}"),
    ("cube", "x", "returns the cube of {x}", "return {x} ** 3"),
    ("double twice", "x", "returns two times {x}", "return 2 * {x}"),
    ("negate opposite", "x", "returns {x} with its sign changed", "return -{x}"),
    ("is_even even", "x", "says whether {x} is even", "return {x} % 2 == 0"),
    ("is_odd odd", "x", "says whether {x} is odd", "return {x} % 2 == 1"),
    ("is_positive", "x", "says whether {x} is positive", "return {x} > 0"),
    ("absolute", "x", "returns the absolute value of {x}", "return {x} if {x} >= 0 else -{x}"),
    ("larger bigger", "x y", "returns the larger of {x} and {y}", "return max({x}, {y})"),
    ("smaller lesser", "x y", "returns the smaller of {x} and {y}", "return min({x}, {y})"),
    ("average mean_of_two", "x y", "returns the average of {x} and {y}", "return ({x} + {y}) / 2"),
    ("total sum_list", "xs", "returns the sum of the numbers in {x}", "return sum({x})"),
    ("largest maximum", "xs", "returns the largest element of {x}", "return max({x})"),
    ("smallest minimum", "xs", "returns the smallest element of {x}", "return min({x})"),
    ("count length size", "xs", "returns the number of elements in {x}", "return len({x})"),
    ("mean average_list", "xs", "returns the mean of {x}", "return sum({x}) / len({x})"),
    ("reverse_list reversed_list", "xs", "returns {x} in reverse order", "return {x}[::-1]"),
    ("first first_element", "xs", "returns the first element of {x}", "return {x}[0]"),
    ("last last_element", "xs", "returns the last element of {x}", "return {x}[-1]"),
    ("sort_list ascending", "xs", "returns {x} in ascending order", "return sorted({x})"),
    (
        "sort_descending descending",
        "xs",
        "returns {x} in descending order",
        "return sorted({x}, reverse=True)",
    ),
    (
        "unique distinct",
        "xs",
        "returns the distinct elements of {x}, sorted",
        "return sorted(set({x}))",
    ),
    ("contains has", "xs y", "says whether {y} is in {x}", "return {y} in {x}"),
    (
        "evens even_numbers",
        "xs",
        "returns the even numbers in {x}",
        "return [n for n in {x} if n % 2 == 0]",
    ),
    (
        "odds odd_numbers",
        "xs",
        "returns the odd numbers in {x}",
        "return [n for n in {x} if n % 2 == 1]",
    ),
    ("positives", "xs", "returns the positive numbers in {x}", "return [n for n in {x} if n > 0]"),
    ("squares", "xs", "returns the square of each number in {x}", "return [n * n for n in {x}]"),
    ("doubles", "xs", "returns each number in {x} doubled", "return [2 * n for n in {x}]"),
    ("reverse_string reverse_text", "s", "returns {x} reversed", "return {x}[::-1]"),
    ("upper shout", "s", "returns {x} in upper case", "return {x}.upper()"),
    ("lower", "s", "returns {x} in lower case", "return {x}.lower()"),
    ("is_palindrome", "s", "says whether {x} reads the same backwards", "return {x} == {x}[::-1]"),
    (
        "count_words word_count",
        "s",
        "returns the number of words in {x}",
        "return len({x}.split())",
    ),
    ("words split_words", "s", "returns the words of {x} as a list", "return {x}.split()"),
    (
        "count_vowels vowels",
        "s",
        "returns the number of vowels in {x}",
        "return sum(1 for c in {x} if c in 'aeiou')",
    ),
    ("join_words", "xs", "joins the words in {x} with spaces", "return ' '.join({x})"),
    ("greet greeting", "s", "returns a greeting for {x}", "return 'Hello, ' + {x} + '!'"),
    (
        "factorial",
        "x",
        "returns the factorial of {x}",
        "result = 1\n    for i in range(2, {x} + 1):\n        result *= i\n    return result",
    ),
    (
        "fibonacci fib",
        "x",
        "returns the {x}-th Fibonacci number",
        "a, b = 0, 1\n    for _ in range({x}):\n        a, b = b, a + b\n    return a",
    ),
    (
        "is_prime prime",
        "x",
        "says whether {x} is a prime number",
        "if {x} < 2:\n        return False\n    for i in range(2, {x}):\n"
        "        if {x} % i == 0:\n            return False\n    return True",
    ),
    (
        "sum_to triangular",
        "x",
        "returns the sum of the integers from 1 to {x}",
        "return {x} * ({x} + 1) // 2",
    ),
    (
        "gcd greatest_common_divisor",
        "x y",
        "returns the greatest common divisor of {x} and {y}",
        "while {y}:\n        {x}, {y} = {y}, {x} % {y}\n    return {x}",
    ),
    (
        "digit_sum sum_digits",
        "x",
        "returns the sum of the digits of {x}",
        "return sum(int(d) for d in str({x}))",
    ),
    (
        "count_down countdown",
        "x",
        "returns the list of numbers from {x} down to 1",
        "return list(range({x}, 0, -1))",
    ),
    ("power", "x y", "returns {x} to the power {y}", "return {x} ** {y}"),
    ("remainder modulo", "x y", "returns the remainder of {x} divided by {y}", "return {x} % {y}"),
    ("flatten", "xs", "flattens the list of lists {x}", "return [e for row in {x} for e in row]"),
)
_NUMBERS = ("a", "x", "n", "number", "value", "first", "m")
_SECOND = ("b", "y", "k", "other", "second")
_LISTS = ("numbers", "items", "values", "xs", "lst", "elements")
_STRINGS = ("text", "s", "string", "word", "name")


@dataclass(frozen=True)
class Snippet:
    """A function: its name, parameters, what it does (a verb phrase) and its code."""

    name: str
    parameters: str
    task: str
    body: str

    @property
    def code(self) -> str:
        return f"def {self.name}({self.parameters}):\n    {self.body}\n"

    @property
    def documented(self) -> str:
        sentence = self.task[0].upper() + self.task[1:]
        return f'def {self.name}({self.parameters}):\n    """{sentence}."""\n    {self.body}\n'


def make(rng: random.Random) -> Snippet:
    """A random entry of the table with random names."""
    names, kinds, task, body = rng.choice(_TABLE)
    choices = {"x": _NUMBERS, "xs": _LISTS, "s": _STRINGS, "y": _SECOND}
    parameters = [rng.choice(choices[kind]) for kind in kinds.split()]
    fields = dict(zip(("x", "y"), parameters, strict=False))
    return Snippet(
        rng.choice(names.split()),
        ", ".join(parameters),
        task.format(**fields),
        body.format(**fields),
    )


def count() -> int:
    return len(_TABLE)
