"""One evaluation in one launch: ask every problem that has no answer yet, keep each answer."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from collections.abc import Sequence

from qualify.client.load import NextRequest, run_sessions
from qualify.client.reply import HttpRequest, RawReply
from qualify.client.timing import timing_of
from qualify.engines.counters import difference
from qualify.errors import CellError, UsageError
from qualify.evals.nouns import Completion, Kind, Problem, ProblemSet
from qualify.evals.voice import Speaker
from qualify.plan import CellPlan, EvalPlan, Side
from qualify.prompts.prompt import Prompt, PromptSpec
from qualify.records.schema import CacheEvidence
from qualify.run.clearing import clear
from qualify.run.endings import ended, without_ends
from qualify.run.events import CellEnded, CellStarted, RequestDone
from qualify.run.launch import Attempt
from qualify.run.observe import Where, to_record
from qualify.run.sending import IDLE_TIMEOUT_S, work_of

PREFIX = "eval:"  # the cell name of an evaluation in events


async def ask_all(
    attempt: Attempt,
    plan: EvalPlan,
    kind: Kind,
    problems: ProblemSet,
    speaker: Speaker,
    standing: dict[str, Completion],
    identity: dict[str, str],
) -> None:
    """Answer what `standing` (problem -> its answer so far) leaves open, and add to it.

    Sessions are whole: where one turn has no answer, all are asked again. Returns early, with
    answers missing, when the engine ends or the user stops; each answer is kept as it comes.
    """
    asker = _Asker(attempt, plan, kind, speaker, standing, identity)
    chains = [c for c in sessions_of(problems) if not asker.answered(c)]
    name, began = f"{PREFIX}{plan.id}", time.monotonic()
    attempt.watch(CellStarted(attempt.id, name, sum(map(len, chains))))
    reason: str | None = None
    try:
        if plan.cache == "cold":
            for chain in chains:
                if attempt.stop.is_set() or not attempt.server.alive():
                    break
                await asker.cold(chain)
        elif chains:
            await asker.together(chains, CacheEvidence("any", "none"))
    except (CellError, UsageError) as error:
        reason = f"{error.message} {error.remedy}".strip()
    done = sum(p.id in standing and standing[p.id].record.ok for p in problems.problems)
    status = "finished" if done == len(problems.problems) else "failed"
    if status == "failed" and reason is None:
        reason = asker.last_failure or "not every problem was asked"
    attempt.watch(
        CellEnded(
            attempt.id,
            name,
            status,
            reason,
            done,
            len(problems.problems),
            time.monotonic() - began,
        )
    )


def sessions_of(problems: ProblemSet) -> list[list[Problem]]:
    """Problems by session in their order; one without a session stands alone."""
    groups: dict[str, list[Problem]] = {}
    for problem in problems.problems:
        groups.setdefault(problem.session or f"\0{problem.id}", []).append(problem)
    return list(groups.values())


def basis_of(plan: EvalPlan, side: Side, identity: dict[str, str]) -> str:
    """What all answers of one evaluation in one mode share; see `Completion`.

    identity: image, checkpoint, engine and the like from the plan, and the model and version
    that the server itself names.
    """
    told = {
        "eval": plan.id,
        "side": dataclasses.asdict(side),
        "sampling": dataclasses.asdict(plan.sampling),
        "style": plan.style,
        "identity": identity,
    }
    text = json.dumps(told, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def key_of(basis: str, problem: Problem, prompt: Prompt) -> str:
    return hashlib.sha256(f"{basis}\0{problem.id}\0{prompt.sha256}".encode()).hexdigest()


class _Asker:
    def __init__(
        self,
        attempt: Attempt,
        plan: EvalPlan,
        kind: Kind,
        speaker: Speaker,
        standing: dict[str, Completion],
        identity: dict[str, str],
    ) -> None:
        stop = kind.stop(speaker.style)
        self.plan = dataclasses.replace(
            plan, sampling=dataclasses.replace(plan.sampling, stop=stop), style=speaker.style
        )
        self.attempt, self.kind, self.speaker = attempt, kind, speaker
        self.standing = standing
        info = attempt.info
        told = {**identity, "model": str(info.model), "version": str(info.version)}
        self.basis = basis_of(self.plan, attempt.launch.side, told)
        self.where = Where(
            attempt.run, attempt.id, attempt.launch, self._cell(), attempt.server.protocol.name
        )
        self.last_failure: str | None = None

    def _cell(self) -> CellPlan:
        """An evaluation as a cell, so that its requests are recorded as any other."""
        plan = self.plan
        spec = PromptSpec("", plan.id, plan.name, 0, len(plan.problems), 0, thinking=plan.thinking)
        return CellPlan(
            id=plan.id,
            workload=plan.name,
            prompts=spec,
            warmup=None,
            sampling=plan.sampling,
            concurrency=plan.concurrency,
            cache=plan.cache,
            until="eos",
            first_token_timeout_s=plan.first_token_timeout_s,
        )

    def answered(self, chain: Sequence[Problem]) -> bool:
        """Whether every problem of the session has an answer under its present key."""
        before: list[Completion] = []
        for problem in chain:
            found = self.standing.get(problem.id)
            if found is None or not found.record.ok:
                return False
            if found.key != key_of(self.basis, problem, self._prompt(problem, before)):
                return False
            before.append(found)
        return True

    def _prompt(self, problem: Problem, before: Sequence[Completion]) -> Prompt:
        return self.kind.prompt(problem, self.plan, self.speaker, before)

    async def cold(self, chain: Sequence[Problem]) -> None:
        """One session on a cleared cache, with what the server counted meanwhile."""
        protocol, able = self.attempt.server.protocol, self.attempt.able
        cache = await clear(protocol, able, "cold", patience_s=self.attempt.flush_patience_s)
        before = await protocol.counters()
        made = await self.together([chain], cache, keep=False)
        after = await protocol.counters() if self.attempt.server.alive() else None
        change = difference(before, after)
        evidence = {"counters": {"values": change.values, "problem": change.problem}}
        for completion in made:
            known = {**completion.evidence, **evidence}
            self._keep(dataclasses.replace(completion, evidence=known))

    async def together(
        self, chains: Sequence[Sequence[Problem]], cache: CacheEvidence, *, keep: bool = True
    ) -> list[Completion]:
        """Ask the sessions, `concurrency` at a time; the answers in the order they ended."""
        made: list[Completion] = []
        asked: dict[tuple[int, int], tuple[Problem, Prompt, HttpRequest]] = {}
        began: list[float] = []

        def session(number: int, chain: Sequence[Problem]) -> NextRequest:
            answers: list[Completion] = []
            left = iter(enumerate(chain))

            def following(raw: RawReply | None) -> HttpRequest | None:
                if raw is not None:
                    answers.append(self._fold(asked[number, len(answers)], raw, cache, began[0]))
                    made.append(answers[-1])
                    if keep:
                        self._keep(answers[-1])
                    if not answers[-1].record.ok:
                        return None  # a later turn would build on an answer that is not there
                step, problem = next(left, (0, None))
                if problem is None:
                    return None
                prompt = self._prompt(problem, answers)
                request = self._encode(problem, prompt, cache)
                asked[number, step] = (problem, prompt, request)
                return request

            return following

        def first(_: int, __: int, raw: RawReply) -> None:
            if not began:
                began.append(raw.t_sent)

        await run_sessions(
            [session(n, chain) for n, chain in enumerate(chains)],
            self.plan.concurrency,
            first,
            stop=self.attempt.stop,
        )
        return made

    def _encode(self, problem: Problem, prompt: Prompt, cache: CacheEvidence) -> HttpRequest:
        context, asked = self.attempt.info.context_tokens, self.plan.sampling.output_tokens
        if context is not None and prompt.ids and len(prompt.ids) + asked > context:
            raise CellError(
                f"Problem {problem.id}: {len(prompt.ids)} + {asked} tokens do not fit the"
                f" {context} that the running engine allows a request.",
                "Lower output_tokens, or start the engine with a longer context.",
            )
        sampling = self.plan.sampling
        return self.attempt.server.protocol.encode(
            prompt,
            sampling if self.attempt.able.ends else without_ends(sampling),
            request_id=f"{self.attempt.id}/{self.plan.id}/{problem.id}",
            bypass_cache=cache.method == "bypass",
            first_byte_timeout_s=self.plan.first_token_timeout_s,
            idle_timeout_s=IDLE_TIMEOUT_S,
        )

    def _fold(
        self,
        asked: tuple[Problem, Prompt, HttpRequest],
        raw: RawReply,
        cache: CacheEvidence,
        began: float,
    ) -> Completion:
        problem, prompt, request = asked
        reply = self.attempt.server.protocol.decode(raw)
        timing, notes = timing_of(reply)
        record = to_record(
            self.where,
            prompt,
            "measured",
            request,
            dataclasses.replace(reply, notes=(*reply.notes, *notes)),
            timing,
            cache,
            t_start_s=raw.t_sent - began,
            client_delay_ms=raw.client_delay_ms,
        )
        counted = record.usage.prompt_tokens or 0  # of a text, the only count there is
        record = dataclasses.replace(
            record,
            tokens=len(prompt.ids) or counted,
            request={**record.request, "style": self.plan.style},
        )
        if not self.attempt.able.ends:
            record = ended(record, self.speaker.tokenizer, self.plan.sampling.stop)
        key = key_of(self.basis, problem, prompt)
        facts = {"prompt": prompt.facts} if prompt.facts else {}
        return Completion(self.plan.id, problem.id, self.basis, key, record, facts)

    def _keep(self, completion: Completion) -> None:
        record = completion.record
        self.attempt.store.append(completion)
        if record.ok or not self._has_answer(completion):
            self.standing[completion.problem] = completion
        if record.failure is not None:
            self.last_failure = f"{record.failure.cause}: {record.failure.message}"[:300]
        self.attempt.watch(
            RequestDone(
                self.attempt.id,
                f"{PREFIX}{self.plan.id}",
                record.phase,
                record.ok,
                record.usage.completion_tokens,
                record.timing.t_end_s or 0.0,
                work_of(record.tokens, self.plan.sampling.output_tokens),
            )
        )

    def _has_answer(self, completion: Completion) -> bool:
        found = self.standing.get(completion.problem)
        return found is not None and found.record.ok and found.key == completion.key
