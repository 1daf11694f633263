"""Exact shapes, the same everywhere, different from one another."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from qualify.errors import CellError, QualifyError
from qualify.prompts.exact import build, check_distinct, ids_sha256
from qualify.prompts.prompt import Prompt, PromptSpec
from qualify.prompts.tokens import Tokenizer

SOURCES = tuple(f"corpora/{name}" for name in ("prose", "code", "mixed", "copy", "recall"))
SHAPES = (1, 2, 3, 7, 8, 15, 16, 17, 31, 64, 255, 256, 1000, 1024, 4097)


def spec(**changes: object) -> PromptSpec:
    base = PromptSpec("test", "work", "corpora/prose", 256, 3, 0)
    return replace(base, **changes)  # type: ignore[arg-type]


def shared(a: Prompt, b: Prompt) -> int:
    n = 0
    while n < min(len(a.ids), len(b.ids)) and a.ids[n] == b.ids[n]:
        n += 1
    return n


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("tokens", SHAPES)
def test_every_shape_is_met_to_the_token_and_its_text_encodes_to_the_same_ids(
    words: Tokenizer, source: str, tokens: int
) -> None:
    prompts = build(spec(source=source, tokens=tokens), words)
    assert [len(p.ids) for p in prompts] == [tokens] * 3
    for prompt in prompts:
        assert prompt.text_exact
        assert words.backend.encode(prompt.text).ids == list(prompt.ids)
        assert prompt.sha256 == ids_sha256(prompt.ids)


@pytest.mark.parametrize("tokens", [1, 2, 15, 16, 255, 1024])
def test_a_vocabulary_without_whole_words_meets_every_shape_too(
    tiny: Tokenizer, tokens: int
) -> None:
    for source in ("corpora/prose", "corpora/code"):
        prompts = build(spec(source=source, tokens=tokens), tiny)
        assert [len(p.ids) for p in prompts] == [tokens] * 3
        for prompt in prompts:
            assert prompt.text_exact == (tiny.backend.encode(prompt.text).ids == list(prompt.ids))


@pytest.mark.parametrize("tokens", [2, 3, 16, 255, 1024])
def test_a_leading_bos_counts_as_a_token_of_the_shape(with_bos: Tokenizer, tokens: int) -> None:
    for prompt in build(spec(tokens=tokens), with_bos):
        assert len(prompt.ids) == tokens
        assert prompt.ids[0] == with_bos.id_of("<|endoftext|>")
        assert with_bos.backend.encode(prompt.text).ids == list(prompt.ids)
        assert prompt.frame_tokens == 1


def test_a_shape_that_only_holds_the_bos_is_refused_with_the_smallest_possible_one(
    with_bos: Tokenizer,
) -> None:
    with pytest.raises(CellError, match="alone take 2") as caught:
        build(spec(tokens=1), with_bos)
    assert "at least 2" in caught.value.remedy


@pytest.mark.parametrize("tokens", [16, 64, 255, 1024])
def test_a_chat_template_counts_and_the_whole_rendered_text_is_proven(
    words: Tokenizer, tokens: int
) -> None:
    for prompt in build(spec(tokens=max(tokens, 32), template=True), words):
        assert len(prompt.ids) == max(tokens, 32)
        assert words.backend.encode(prompt.text).ids == list(prompt.ids)
        assert prompt.text.startswith("<|im_start|>system\n")
        assert prompt.text.endswith("<|im_start|>assistant\n")
        assert prompt.template_sha256 == words.template_sha256


def test_a_shape_smaller_than_the_template_is_refused(words: Tokenizer) -> None:
    with pytest.raises(CellError, match="the chat template and one word alone take") as caught:
        build(spec(tokens=5, template=True), words)
    assert "template: false" in caught.value.remedy


def test_sixty_four_prompts_have_sixty_four_hashes_and_share_no_first_token(
    words: Tokenizer,
) -> None:
    prompts = build(spec(tokens=200, count=64), words)
    assert len({p.sha256 for p in prompts}) == 64
    assert len({p.ids[0] for p in prompts}) == 64


def test_streams_share_no_leading_token_and_no_prompt(words: Tokenizer) -> None:
    streams = {
        name: build(spec(tokens=128, count=24, stream=name), words)
        for name in ("measured", "warmup", "probe")
    }
    firsts = [{p.ids[0] for p in prompts} for prompts in streams.values()]
    assert not firsts[0] & firsts[1]
    assert not firsts[0] & firsts[2]
    assert not firsts[1] & firsts[2]
    check_distinct([p for prompts in streams.values() for p in prompts])


@pytest.mark.parametrize("shape", [{}, {"template": True}, {"tokens": 64}], ids=str)
def test_heads_differ_between_workloads_of_the_same_source_and_shape(
    words: Tokenizer, shape: dict[str, object]
) -> None:
    """An engine that was not emptied between two workloads finds nothing of one in the other."""
    works = {
        name: build(spec(workload=name, count=24, **shape), words)
        for name in ("chat", "edit", "copy", "review")
    }
    frame = works["chat"][0].frame_tokens
    heads = {name: {p.ids[frame : frame + 3] for p in made} for name, made in works.items()}
    assert all(len(found) == 24 for found in heads.values())
    assert len(set().union(*heads.values())) == 4 * 24
    everything = [p for made in works.values() for p in made]
    check_distinct(everything)
    ordered = sorted(everything, key=lambda p: p.ids)
    assert max(shared(a, b) for a, b in pairwise(ordered)) < frame + 3


def test_more_prompts_than_first_words_still_differ_within_sixteen_tokens(
    words: Tokenizer,
) -> None:
    prompts = build(spec(tokens=24, count=700), words)
    assert len({p.sha256 for p in prompts}) == 700
    ordered = sorted(prompts, key=lambda p: p.ids)
    assert max(shared(a, b) for a, b in pairwise(ordered)) < 16


def test_templated_prompts_share_only_the_opening_of_the_template(words: Tokenizer) -> None:
    a, b, _ = build(spec(template=True), words)
    opening = words.encode("<|im_start|>system\n")
    assert shared(a, b) == len(opening) == a.frame_tokens


def test_two_prompts_that_share_a_long_head_are_refused(words: Tokenizer) -> None:
    first, second, _ = build(spec(), words)
    twin = replace(second, ids=(*first.ids[:20], *second.ids[20:]))
    with pytest.raises(QualifyError, match="share their first 20 tokens"):
        check_distinct([first, twin])


def test_the_text_of_two_prompts_does_not_overlap(words: Tokenizer) -> None:
    prompts = build(spec(tokens=512, count=32), words)
    bodies = [p.text.partition("\n\n")[2] for p in prompts]
    for i, body in enumerate(bodies):
        middle = body[len(body) // 2 :][:120]
        assert all(middle not in other for j, other in enumerate(bodies) if j != i)


def test_a_prompt_does_not_change_when_more_are_asked_for(words: Tokenizer) -> None:
    few = build(spec(count=2), words)
    many = build(spec(count=16), words)
    assert [p.sha256 for p in few] == [p.sha256 for p in many[:2]]


def test_the_campaign_workload_stream_seed_and_shape_each_give_other_prompts(
    words: Tokenizer,
) -> None:
    variants = [
        spec(),
        spec(campaign="other"),
        spec(workload="other"),
        spec(stream="warmup"),
        spec(seed=1),
        spec(tokens=257),
    ]
    hashes = [build(v, words)[0].ids[:200] for v in variants]
    assert len(set(hashes)) == len(variants)


def test_another_process_with_another_hash_seed_builds_the_same_prompts(words: Tokenizer) -> None:
    code = (
        "from qualify.prompts.exact import build\n"
        "from qualify.prompts.prompt import PromptSpec\n"
        "from qualify.prompts.tokens import Tokenizer\n"
        f"tok = Tokenizer.load({words.path!r})\n"
        "spec = PromptSpec('test', 'work', 'corpora/mixed', 256, 3, 0)\n"
        "print(*[p.sha256 for p in build(spec, tok)])"
    )
    out = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONHASHSEED": "77", "PATH": ""},
        cwd=Path(__file__).parents[2],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert out == [p.sha256 for p in build(spec(source="corpora/mixed"), words)]


def test_a_copy_prompt_ends_with_the_first_part_of_its_own_document(words: Tokenizer) -> None:
    for prompt in build(spec(source="corpora/copy", tokens=512, count=6), words):
        document, _, again = prompt.text.partition("word for word:\n\n")
        original = document.partition("The document:\n\n")[2]
        assert len(again) > 200
        assert original.startswith(again)
        assert len(original) > 1.5 * len(again)
        assert prompt.klass == "natural"


def test_a_recall_prompt_states_its_codes_far_before_it_asks_for_them(words: Tokenizer) -> None:
    tables = set()
    for prompt in build(spec(source="corpora/recall", tokens=1024, count=6), words):
        listed = prompt.text.partition("The codes:\n")[2].partition("\n\n")[0].splitlines()
        asked = prompt.text.rpartition("in the same order:\n")[2]
        assert len(listed) == 10
        assert listed[0].partition(":")[0] + ":" == asked
        codes = [line.partition(": ")[2] for line in listed]
        assert len(set(codes)) == 10
        assert all(prompt.text.count(code) == 1 for code in codes)
        assert prompt.klass == "natural"
        tables.add(tuple(codes))
    assert len(tables) == 6


def test_f025_a_tokenizer_that_changes_the_text_is_still_counted_exactly(lossy: Tokenizer) -> None:
    for tokens in (16, 255, 1024):
        for prompt in build(spec(tokens=tokens), lossy, need_text=True):
            assert lossy.backend.encode(prompt.text).ids == list(prompt.ids)
            assert len(prompt.ids) == tokens


def test_f025_a_length_that_no_text_reaches_is_refused_and_the_nearest_is_named(
    doubling: Tokenizer,
) -> None:
    assert len(build(spec(tokens=254), doubling, need_text=True)[0].ids) == 254
    assert [len(p.ids) for p in build(spec(tokens=255), doubling)] == [255] * 3
    with pytest.raises(CellError, match="exactly 255 tokens") as caught:
        build(spec(tokens=255), doubling, need_text=True)
    said = re.search(r"nearest reachable length is (\d+)", str(caught.value))
    assert said is not None
    nearest = int(said[1])
    # It is reached, and nothing nearer is: 255 itself is refused, and both neighbours are one off.
    assert len(build(spec(tokens=nearest), doubling, need_text=True)[0].ids) == nearest
    assert abs(nearest - 255) == 1


def test_f025_prompts_of_8192_tokens_have_8192_also_where_text_does_not_come_back(
    lossy: Tokenizer,
) -> None:
    for prompt in build(spec(tokens=8192, count=2), lossy, need_text=True):
        assert len(prompt.ids) == 8192
        assert lossy.backend.encode(prompt.text).ids == list(prompt.ids)
