"""What the engine itself does with the checkpoint: accept length by workload, recall by length.

    python -m specdec.train.measure fixtures/models/tiny-qwen3.5 [--draft-model DIR]
        [--widths 1,3,5,7] [--prompts 8] [--prompt-tokens 512] [--new-tokens 96]
        [--recall 1024,8192] [--out FILE]

With ``--draft-model`` the drafts are that checkpoint's (DFlash2 or DSpark, as it declares), whole
blocks unless widths are given; without it they are the MTP head's.

Greedy, on prompts from the checkpoint's own ``heldout.jsonl``. Every speculative output is
compared with target-only, id by id; counts come from the engine's counters.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence as Seq
from dataclasses import asdict, dataclass
from pathlib import Path

from specdec.contract import Mode, RunnerOptions
from specdec.request import Counters, Phase, SamplingParams, Sequence
from specdec.runner import Runner
from specdec.train.evaluate import held_out_streams
from specdec.train.vocabulary import TURN_END, Encoder
from specdec.train.workloads import Prompt, needles, workloads

RECALL_STYLES = ("named", "numbered", "plain")
DEFAULT_WIDTHS = (1, 3, 5, 7)
MODES: dict[str, Mode] = {"DFlash2DraftModel": "dflash2", "DSparkDraftModel": "dspark"}


@dataclass(frozen=True)
class Acceptance:
    """Counts over all prompts of one workload at one draft width; letters as in the engine."""

    workload: str
    drafts: int
    prompts: int
    output_tokens: int
    verify_steps: int
    proposed: int
    correct: int
    plain: int
    histogram: list[int]
    identical: int  # prompts whose ids equal those of target-only
    by_prompt: list[float | None]  # accept length of each

    @property
    def accept_length(self) -> float | None:
        return 1 + self.correct / self.verify_steps if self.verify_steps else None

    @property
    def match_rate(self) -> float | None:
        return self.correct / self.proposed if self.proposed else None


def run(runner: Runner, prompts: Seq[Prompt], new_tokens: int, stops: bool) -> list[Sequence]:
    """Each prompt alone, greedily; ``stops`` lets the end tokens end the answer."""
    done = []
    for number, prompt in enumerate(prompts):
        params = SamplingParams(max_new_tokens=new_tokens, temperature=0.0, ignore_eos=not stops)
        seq = runner.new_sequence(str(number), prompt.ids, params)
        runner.admit(seq)
        while seq.phase is Phase.PREFILL:
            runner.prefill_step([seq])
        while seq.phase is Phase.DECODE:
            runner.decode_step([seq])
        done.append(seq)
    return done


def pool(name: str, drafts: int, done: list[Sequence], plain: list[Sequence]) -> Acceptance:
    histogram = [0] * (drafts + 1)
    for seq in done:
        for index, steps in enumerate(seq.counters.correct_histogram):
            histogram[index] += steps
    return Acceptance(
        name,
        drafts,
        len(done),
        sum(len(seq.output_ids) for seq in done),
        sum(seq.counters.verify_steps for seq in done),
        sum(seq.counters.proposed_drafts for seq in done),
        sum(seq.counters.correct_drafts for seq in done),
        sum(seq.counters.plain_tokens for seq in done),
        histogram,
        sum(a.output_ids == b.output_ids for a, b in zip(done, plain, strict=True)),
        [accept_length(seq.counters) for seq in done],
    )


def accept_length(counters: Counters) -> float | None:
    """Of one request, to three places; None where nothing was verified."""
    steps = counters.verify_steps
    return round(1 + counters.correct_drafts / steps, 3) if steps else None


def launches(options: argparse.Namespace) -> list[RunnerOptions]:
    """The drafting modes and widths asked for."""
    widths = [int(part) for part in (options.widths or "").split(",") if part]
    common = {"device": options.device, "max_running_requests": 1}
    if options.draft_model is None:
        return [
            RunnerOptions(mode="mtp", draft_steps=width, **common)
            for width in widths or DEFAULT_WIDTHS
        ]
    config = json.loads((options.draft_model / "config.json").read_text("utf-8"))
    mode = MODES[config["architectures"][0]]
    return [
        RunnerOptions(mode=mode, draft_model=options.draft_model, draft_steps=width, **common)
        for width in (*widths,) or (None,)
    ]


def recall_score(encode: Encoder, seqs: list[Sequence], prompts: list[Prompt]) -> dict[str, object]:
    """Exact answers: all five codes, no other word that looks like one, a natural end."""
    whole = codes = ended = 0
    for seq, prompt in zip(seqs, prompts, strict=True):
        text = encode.tokenizer.decode(seq.output_ids, skip_special_tokens=False)
        said = [part.split(": ")[-1] for part in text.removesuffix(TURN_END).split(", ")]
        ended += text.endswith(TURN_END)
        codes += sum(code in said for code in prompt.codes)
        whole += text.endswith(TURN_END) and sorted(said) == sorted(prompt.codes)
    count = len(prompts)
    return {
        "prompts": count,
        "all_five": whole / count,
        "codes": codes / (5 * count),
        "natural_end": ended / count,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--draft-model", type=Path)
    parser.add_argument("--widths", help="drafts a step, several by comma")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=512)
    parser.add_argument("--new-tokens", type=int, default=96)
    parser.add_argument("--recall", default="1024,8192", help="lengths in tokens; empty for none")
    parser.add_argument("--recall-prompts", type=int, default=6)
    parser.add_argument("--filler", type=Path, help="text file for recall, not the held-out prose")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    encode = Encoder(options.model / "tokenizer.json")
    figures: dict[str, list[dict[str, object]]] = {"acceptance": [], "recall": []}
    prompts = workloads(encode, options.model, options.prompts, options.prompt_tokens)
    target = Runner.load(
        options.model, RunnerOptions(device=options.device, max_running_requests=1)
    )
    plain = {
        name: run(target, texts, options.new_tokens, name == "recall")
        for name, texts in prompts.items()
    }
    for launch in launches(options):
        runner = Runner.load(options.model, launch)
        assert runner.info.draft is not None
        drafts = runner.info.draft.most
        for name, texts in prompts.items():
            done = run(runner, texts, options.new_tokens, name == "recall")
            row = pool(name, drafts, done, plain[name])
            shown = {**asdict(row), "accept_length": row.accept_length, "match": row.match_rate}
            figures["acceptance"].append(shown)
            print(json.dumps(shown), flush=True)
    filler = held_out_streams(options.model, encode)["prose"]
    if options.filler:
        filler = encode(options.filler.read_text("utf-8"))
    for tokens in [int(part) for part in options.recall.split(",") if part]:
        settings = RunnerOptions(
            device=options.device, max_running_requests=1, max_total_tokens=tokens + 192
        )
        runner = Runner.load(options.model, settings)
        for style in RECALL_STYLES:
            asked = needles(encode, filler, options.recall_prompts, tokens, style)
            score = recall_score(encode, run(runner, asked, 96, True), asked)
            figures["recall"].append({"tokens": tokens, "style": style, **score})
            print(json.dumps(figures["recall"][-1]), flush=True)
    if options.out:
        options.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
