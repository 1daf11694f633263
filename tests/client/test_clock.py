"""The client's clocks and the measure of its own lateness."""

from __future__ import annotations

import asyncio
import re
import time

from qualify.client.clock import CLOCK, DelayProbe
from tests.client.streams import run


def test_the_wall_clock_is_iso_8601_in_utc() -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", CLOCK.wall())


def test_a_blocked_loop_is_seen_where_it_was_blocked_and_nowhere_else() -> None:
    async def main() -> tuple[float, float, float]:
        async with DelayProbe() as probe:
            await asyncio.sleep(0.05)
            before = CLOCK.now()
            time.sleep(0.15)  # noqa: ASYNC251 (the block is what is measured)
            blocked = CLOCK.now()
            overdue = probe.worst_ms(before, blocked)
            await asyncio.sleep(0.1)
            later = CLOCK.now()
            await asyncio.sleep(0.06)
            return overdue, probe.worst_ms(before, blocked), probe.worst_ms(later, CLOCK.now())

    overdue, seen, after = run(main())
    # The timer was due within 10 ms of the block's beginning.
    assert overdue > 130
    assert seen > 130
    assert after < 100


def test_the_probe_stops_with_its_block_and_keeps_its_cpu_share() -> None:
    async def main() -> tuple[float, float, int]:
        async with DelayProbe() as probe:
            end = time.process_time() + 0.05
            while time.process_time() < end:
                pass
            await asyncio.sleep(0.05)
        first = probe.cpu_share
        await asyncio.sleep(0.05)
        return first, probe.cpu_share, len(asyncio.all_tasks())

    first, second, tasks = run(main())
    assert first == second
    assert 0.05 < first <= 1.1
    assert tasks == 1


def test_intervals_come_from_a_clock_that_nobody_can_set() -> None:
    info = time.get_clock_info(CLOCK.now.__name__)
    assert info.monotonic
    assert not info.adjustable
