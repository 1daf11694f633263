"""`python -m specdec.parallel.worker CHANNEL LIFELINE`: the process of a rank other than 0.

Started by rank 0 alone. CHANNEL and LIFELINE are inherited file descriptors: plans come and
answers go through the first; the second ends when rank 0 does, however that happens, and the rank
with it, even from within a collective. Signals are rank 0's business: a Ctrl-C or a stop that
reaches the whole process group must not take a rank away from requests that may still finish.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path

from specdec import logs
from specdec.errors import SpecdecError
from specdec.parallel.plans import Begin, End, Failure, Ready


def main(channel_fd: int, lifeline_fd: int) -> int:
    """Run until told to end. Returns the exit code."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(lifeline_fd,), daemon=True).start()
    channel: Connection = Connection(channel_fd)
    begin: Begin = channel.recv()
    logs.configure(begin.log_level, begin.rank)
    try:
        _serve(channel, begin)
    except EOFError:
        return 1
    except Exception as error:
        # The others see the end of this process; the reason is better said before it.
        logs.logger.exception("This rank cannot go on.")
        said = error.message if isinstance(error, SpecdecError) else repr(error)
        channel.send(Failure(said))
        return 1
    return 0


def _serve(channel: Connection, begin: Begin) -> None:
    from specdec.assemble import pick_device
    from specdec.parallel.connect import join_ranks
    from specdec.parallel.follower import Follower
    from specdec.runner import Runner

    channel.send(Ready())  # the libraries are loaded; now all meet
    options = begin.options
    device = pick_device(options.device)
    ranks = join_ranks(begin.rank, begin.size, begin.meeting, device, options.tp_timeout_s)
    follower = Follower(Runner.load(Path(begin.model), options, ranks))
    channel.send(Ready())
    while True:
        plan = channel.recv()
        if isinstance(plan, End):
            return
        answer = follower.obey(plan)
        if answer is not None:
            channel.send(answer)


def _end_with_parent(lifeline_fd: int) -> None:
    os.read(lifeline_fd, 1)  # nothing is ever written: it returns when the last writer is gone
    os._exit(1)


if __name__ == "__main__":
    code = main(int(sys.argv[1]), int(sys.argv[2]))
    # Nothing is left to save, and taking the libraries apart may wait for ranks that are gone.
    sys.stderr.flush()
    os._exit(code)
