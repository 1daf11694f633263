"""Answers of a server that does not stop: what counts is what stands before the first end."""

from __future__ import annotations

import dataclasses

from qualify.engines.protocol import Sampling
from qualify.paths import data_root
from qualify.prompts.tokens import Tokenizer
from qualify.records.schema import Record
from qualify.run.endings import NOTE, ended, without_ends
from tests.evals.test_speed import answer

TOKENIZER = Tokenizer.load(data_root() / "fixtures/models/tiny-qwen3.5")


def record(text: str) -> Record:
    made = answer("a", "mtp", tokens=11, first_s=1.0, last_s=2.0).record
    ids = tuple(TOKENIZER.encode(text))
    return dataclasses.replace(made, output_text="", output_ids=ids, finish_reason="length")


def test_ids_without_a_text_are_decoded_and_cut_at_the_end_marker() -> None:
    found = ended(record("The answer is 18.<|im_end|>\n<|im_start|>user\n7"), TOKENIZER, ())
    assert found.output_text == "The answer is 18."
    assert found.finish_reason == "stop"
    assert NOTE in found.notes
    assert found.usage.completion_tokens == 11, "the server's own count stays"


def test_the_first_stop_text_ends_it_and_none_leaves_the_length() -> None:
    told = record("    return 1\n\ndef other():\n    pass<|endoftext|>")
    assert ended(told, TOKENIZER, ("\ndef ", "\nclass ")).output_text == "    return 1\n"
    whole = ended(record("    return 1"), TOKENIZER, ("\ndef ",))
    assert (whole.output_text, whole.finish_reason) == ("    return 1", "length")


def test_nothing_that_such_a_server_cannot_do_is_sent() -> None:
    sent = without_ends(Sampling(8, ignore_eos=False, stop=("x",)))
    assert (sent.ignore_eos, sent.stop, sent.output_tokens) == (True, (), 8)
