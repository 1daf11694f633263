"""Do all ranks commit the same tokens? Asked after every step, of every sequence."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence as Seq
from dataclasses import dataclass

from specdec.contract import RankParity
from specdec.parallel.errors import RanksBroken
from specdec.parallel.plans import Report
from specdec.request import Sequence


@dataclass
class ParityCheck:
    """Counts what was compared. ``ranks`` with rank 0 among them."""

    ranks: int
    tokens: int = 0
    differing: int = 0

    @property
    def facts(self) -> RankParity:
        return RankParity(self.ranks, self.tokens, self.differing == 0)

    def compare(self, seqs: Seq[Sequence], mine: Report, rank: int, theirs: Report) -> None:
        """Raises RanksBroken, with the sequence marked, at the first difference.

        Ranks that disagree about a token disagree about everything after it, and about the pages
        that hold it; there is no way back from there.
        """
        for seq, ours, other in zip(seqs, mine.tokens, theirs.tokens, strict=True):
            if ours != other:
                self.differing += 1
                seq.rank_token_parity = False
                raise RanksBroken(
                    f"Rank {rank} committed other tokens than rank 0 for request "
                    f"'{seq.request_id}': {list(other)} instead of {list(ours)}.",
                    "Report it with the log; the server cannot go on.",
                )
            self.tokens += len(ours)
        pool = (theirs.free_tokens, theirs.free_slots)
        if pool != (mine.free_tokens, mine.free_slots):
            raise RanksBroken(
                f"Rank {rank} has {pool[0]} free tokens and {pool[1]} free slots where rank 0 has "
                f"{mine.free_tokens} and {mine.free_slots}.",
                "Report it with the log; the server cannot go on.",
            )


def tokens_line(seq: Sequence) -> str:
    """What each rank logs of a request that ended, so that logs can be compared too."""
    digest = hashlib.sha256(",".join(map(str, seq.output_ids)).encode()).hexdigest()[:16]
    return f"Rank tokens, rid: {seq.request_id}, #token: {len(seq.output_ids)}, sha256: {digest}"
