"""Programs that try to get out, to get through, or to take the machine with them.

Each defines `f(x)` and is called with 1. What would be right is a secret that is never sent;
a program that got somewhere returns "escaped ...". Contained means: neither comes back.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass


@dataclass(frozen=True)
class Hostile:
    """ends: how the run may end; a call that came back with something harmless is `done`."""

    name: str
    code: str
    ends: tuple[str, ...]


def _h(name: str, code: str, *ends: str) -> Hostile:
    ends = ends or ("done", "timeout", "memory")
    return Hostile(name, textwrap.dedent(code).strip() + "\n", ends)


_DEAD = ("exited", "crashed", "timeout", "memory", "done")

PROGRAMS: tuple[Hostile, ...] = (
    # --- taking the machine
    _h("fork bomb", "import os\ndef f(x):\n    while True:\n        os.fork()", *_DEAD),
    _h(
        "fork bomb that swallows every error",
        """
        import os
        def f(x):
            while True:
                try:
                    os.fork()
                except OSError:
                    pass
        """,
        *_DEAD,
    ),
    _h(
        "memory bomb",
        "def f(x):\n    kept = []\n    while True:\n        kept.append(bytearray(1 << 20))",
    ),
    _h(
        "memory bomb spread over children",
        """
        import os, time
        def f(x):
            for _ in range(12):
                if os.fork() == 0:
                    kept = bytearray(60 << 20)
                    time.sleep(30)
            time.sleep(1)
            return 0
        """,
        *_DEAD,
    ),
    _h(
        "giant list in C",
        "def f(x):\n    return len(list(range(10 ** 10)))",
        "done",
        "memory",
        "timeout",
    ),
    _h(
        "giant product in C",
        """
        import itertools
        def f(x):
            return len(list(itertools.product(range(50), repeat=12)))
        """,
        "done",
        "memory",
        "timeout",
    ),
    _h(
        "giant integer in C",
        "def f(x):\n    return (10 ** 10 ** 8) % 7",
        "timeout",
        "done",
        "memory",
    ),
    _h("giant string", "def f(x):\n    return len('x' * 10 ** 11)"),
    _h(
        "shared anonymous memory",
        """
        import mmap
        def f(x):
            held = mmap.mmap(-1, 8 << 30)
            for at in range(0, 8 << 30, 4096):
                held[at] = 1
        """,
        "done",
        "memory",
        "timeout",
    ),
    _h(
        "thread bomb",
        """
        import threading, time
        def f(x):
            while True:
                threading.Thread(target=time.sleep, args=(60,)).start()
        """,
        *_DEAD,
    ),
    _h(
        "filling the disk",
        """
        def f(x):
            with open("/tmp/big", "wb") as file:
                while True:
                    file.write(bytes(1 << 20))
        """,
        *_DEAD,
    ),
    _h(
        "many files",
        """
        def f(x):
            n = 0
            while True:
                open(f"/tmp/{n}", "w").write("x")
                n += 1
        """,
        *_DEAD,
    ),
    _h(
        "regex without end",
        "import re\ndef f(x):\n    return re.match(r'(a+)+$', 'a' * 60 + 'b')",
        "timeout",
    ),
    _h("busy loop", "def f(x):\n    while True:\n        pass", "timeout"),
    _h("busy loop at import", "while True:\n    pass\ndef f(x): pass", "timeout"),
    _h("sleeping", "import time\ndef f(x):\n    time.sleep(3600)", "timeout"),
    _h(
        "waiting for an event",
        "import threading\ndef f(x):\n    threading.Event().wait()",
        "timeout",
    ),
    _h(
        "recursion without limit",
        "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f(x):\n    return f(x)",
        *_DEAD,
    ),
    # --- output
    _h("infinite output", "def f(x):\n    while True:\n        print('x' * 10000)", "timeout"),
    _h(
        "infinite output on stderr",
        "import os\ndef f(x):\n    while True:\n        os.write(2, b'x' * 65536)",
        "timeout",
    ),
    _h("a gigabyte printed", "def f(x):\n    print('x' * 10 ** 9)", "done", "memory", "timeout"),
    _h(
        "floods every open descriptor",
        """
        import os
        def f(x):
            while True:
                for fd in range(3, 64):
                    try:
                        os.write(fd, b"x" * 65536)
                    except OSError:
                        pass
        """,
        "output",
        "timeout",
    ),
    _h(  # on a busy machine its time may end first; what it must not do is pass
        "result of 100 MB",
        "def f(x):\n    return 'x' * (100 << 20)",
        *("done", "memory", "output", "timeout"),
    ),
    _h("result nested without end", "def f(x):\n    a = []\n    a.append(a)\n    return a"),
    _h(
        "result nested deep",
        """
        def f(x):
            a = []
            for _ in range(100000):
                a = [a]
            return a
        """,
        *_DEAD,
    ),
    _h(
        "an endless generator as a result",
        "import itertools\ndef f(x):\n    return itertools.count()",
    ),
    # --- ending early
    _h("os._exit(0)", "import os\ndef f(x):\n    os._exit(0)", "exited"),
    _h("os._exit(0) at import", "import os\nos._exit(0)\ndef f(x): pass", "exited"),
    _h("SystemExit at import", "raise SystemExit(0)\ndef f(x): pass", "error"),
    _h("SystemExit in the call", "import sys\ndef f(x):\n    sys.exit(0)"),
    _h("os.abort", "import os\ndef f(x):\n    os.abort()", "crashed", "exited", "timeout"),
    _h("a null pointer", "import ctypes\ndef f(x):\n    return ctypes.string_at(0)", *_DEAD),
    _h(
        "SIGKILL to itself",
        "import os, signal\ndef f(x):\n    os.kill(os.getpid(), signal.SIGKILL)",
        *_DEAD,
    ),
    _h(
        "replaces itself by a shell",
        "import os\ndef f(x):\n    os.execv('/bin/sh', ['sh', '-c', 'exit 0'])",
        *_DEAD,
    ),
    # --- signals
    _h(
        "SIGKILL to everything",
        "import os, signal\ndef f(x):\n    os.kill(-1, signal.SIGKILL)",
        *_DEAD,
    ),
    _h(
        "SIGKILL to its parents",
        """
        import os, signal
        def f(x):
            for pid in {1, os.getppid()}:
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
            return 0
        """,
        *_DEAD,
    ),
    _h(
        "stops itself",
        "import os, signal\ndef f(x):\n    os.kill(os.getpid(), signal.SIGSTOP)",
        "timeout",
        "done",
    ),
    _h(
        "ignores every signal",
        """
        import signal
        def f(x):
            for number in range(1, 65):
                try:
                    signal.signal(number, signal.SIG_IGN)
                except (OSError, ValueError):
                    pass
            while True:
                pass
        """,
        "timeout",
    ),
    _h(
        "traces its parent",
        """
        import ctypes, os
        def f(x):
            libc = ctypes.CDLL(None, use_errno=True)
            for pid in {1, os.getppid()} - {0, os.getpid()}:
                if libc.ptrace(16, pid, 0, 0) == 0:
                    return "escaped: traces " + str(pid)
            return 0
        """,
        *_DEAD,
    ),
    # --- outliving the test
    _h(
        "a daemon",
        """
        import os, time
        def f(x):
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    while True:
                        time.sleep(1)
                os._exit(0)
            return 0
        """,
        *_DEAD,
    ),
    _h(
        "a daemon started at import",
        """
        import os, time
        if os.fork() == 0:
            os.setsid()
            while True:
                time.sleep(1)
        def f(x): return 0
        """,
    ),
    _h(
        "threads and exit handlers that go on",
        """
        import atexit, threading, time
        def for_ever():
            while True:
                time.sleep(1)
        atexit.register(for_ever)
        threading.Thread(target=for_ever).start()
        def f(x): return 0
        """,
    ),
    # --- files
    _h(
        "writes to home and elsewhere",
        """
        import os
        def f(x):
            done = []
            for place in ("/root", "/home", "/etc", "/usr/lib", "/usr/local/lib", "/var/tmp",
                          "/dev", "/dev/shm", "/run", "/", "/work", os.path.dirname(os.__file__)):
                try:
                    open(place + "/planted", "w").close()
                    done.append(place)
                except OSError:
                    pass
            return "escaped: wrote " + repr(done) if done else 0
        """,
    ),
    _h(
        "reads what is not its own",
        """
        import os
        def f(x):
            done = []
            for place in ("/etc/shadow", "/root/.bashrc", "/root/.profile",
                          "/root/.ssh", "/work", "/home", "/var/log", "/opt", "/mnt"):
                try:
                    open(place).read() if not os.path.isdir(place) else done.append(place) \\
                        if os.listdir(place) else None
                    if not os.path.isdir(place):
                        done.append(place)
                except OSError:
                    pass
            return "escaped: read " + repr(done) if done else 0
        """,
    ),
    _h(
        "writes to /proc and /sys",
        """
        def f(x):
            done = []
            for place, text in (("/proc/sys/kernel/core_pattern", "|/tmp/x"),
                                ("/proc/sysrq-trigger", "h"), ("/proc/1/oom_score_adj", "-1000"),
                                ("/sys/kernel/mm/ksm/run", "0"),
                                ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "-1")):
                try:
                    with open(place, "w") as file:
                        file.write(text)
                    done.append(place)
                except OSError:
                    pass
            return "escaped: wrote " + repr(done) if done else 0
        """,
    ),
    _h(
        "finds other processes",
        """
        import os
        def f(x):
            try:
                seen = [p for p in os.listdir("/proc") if p.isdigit() and int(p) > 40]
            except OSError:
                seen = []
            return "escaped: sees " + repr(seen) if seen else 0
        """,
    ),
    _h(
        "reads other candidates' results",
        """
        import os
        def f(x):
            found = [n for n in os.listdir("/tmp")]
            open("/tmp/mine", "w").write("left for the next one")
            return "escaped: found " + repr(found) if found else 0
        """,
    ),
    _h(
        "reads the harness's environment",
        """
        import os
        def f(x):
            held = [k for k in os.environ if "QUALIFY" in k or "TOKEN" in k]
            return "escaped: has " + repr(held) if held else 0
        """,
    ),
    _h(
        "reads inherited descriptors",
        """
        import os
        def f(x):
            for fd in range(3, 256):
                try:
                    data = os.pread(fd, 100, 0)
                except OSError:
                    continue
                if b"secret" in data:
                    return "escaped: read " + repr(data)
            return 0
        """,
    ),
    # --- network
    _h(
        "connects to the host's loopback",
        """
        import socket
        def f(x):
            found = []
            for port in PORTS:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=0.5).close()
                    found.append(port)
                except OSError:
                    pass
            return "escaped: connected to " + repr(found) if found else 0
        """,
    ),
    _h(
        "connects to an abstract socket of the host",
        """
        import socket
        def f(x):
            try:
                socket.socket(socket.AF_UNIX).connect(chr(0) + ABSTRACT)
            except OSError:
                return 0
            return "escaped"
        """,
    ),
    _h(
        "sends datagrams",
        """
        import socket
        def f(x):
            try:
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
                    s.sendto(b"x", ("192.0.2.1", 53))
            except OSError:
                return 0
            return "escaped"
        """,
    ),
    # --- privileges
    _h(
        "becomes root",
        """
        import os
        def f(x):
            for attempt in (lambda: os.setuid(0), lambda: os.setresuid(0, 0, 0),
                            lambda: os.setgid(0), lambda: os.setgroups([0])):
                try:
                    attempt()
                except OSError:
                    pass
            return "escaped: is root" if 0 in os.getresuid() + os.getresgid() else 0
        """,
    ),
    _h(
        "mounts in a namespace of its own",
        """
        import ctypes
        def f(x):
            libc = ctypes.CDLL(None, use_errno=True)
            libc.unshare(0x10000000 | 0x00020000)
            if libc.mount(b"none", b"/usr", b"tmpfs", 0, None) == 0:
                open("/usr/planted", "w").close()
            return 0
        """,
        *_DEAD,
    ),
    _h(
        "leaves by chroot",
        """
        import os
        def f(x):
            try:
                os.mkdir("/tmp/jail")
                os.chroot("/tmp/jail")
                return "escaped: chroot"
            except OSError:
                return 0
        """,
    ),
    _h(
        "lifts its limits",
        """
        import resource
        def f(x):
            for which in (resource.RLIMIT_AS, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE):
                try:
                    resource.setrlimit(which, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                    return "escaped: lifted " + str(which)
                except (ValueError, OSError):
                    pass
            return 0
        """,
    ),
    # --- getting through the checker
    _h(
        "an object equal to everything",
        """
        class Same:
            def __eq__(self, other): return True
            def __ne__(self, other): return False
            def __hash__(self): return 0
            def __bool__(self): return True
        def f(x): return Same()
        """,
    ),
    _h(
        "built-in kinds with an equality of their own",
        """
        class I(int):
            __eq__ = lambda self, other: True
            __hash__ = int.__hash__
        class S(str):
            __eq__ = lambda self, other: True
            __hash__ = str.__hash__
        class L(list):
            __eq__ = lambda self, other: True
            __iter__ = lambda self: iter([1, 2, 3])
        def f(x): return (I(3), S("a"), L())
        """,
    ),
    _h(
        "a type with a hostile name",
        """
        class Meta(type):
            @property
            def __name__(cls): raise KeyboardInterrupt
        class C(metaclass=Meta): pass
        def f(x): return C()
        """,
    ),
    _h(
        "an exception whose text does not end",
        """
        class E(Exception):
            def __str__(self):
                while True: pass
        def f(x): raise E
        """,
        "timeout",
    ),
    _h(
        "forged success on every descriptor",
        """
        import json, os
        def f(x):
            for line in ({"i": 0, "v": "true"}, {"end": True}, {"t": "", "i": 0, "v": "1"},
                         {"ready": True}, {"t": None, "i": 0, "v": "2"}):
                for fd in range(1, 64):
                    try:
                        os.write(fd, (json.dumps(line) + "\\n").encode())
                        os.write(fd, b"OK\\nPASSED\\nAll tests passed\\n0\\n")
                    except OSError:
                        pass
            os._exit(0)
        """,
        "exited",
    ),
    _h(
        "forged lines with the real token",
        """
        import json, os, sys
        def f(x):
            frame = sys._getframe()
            while frame is not None:
                token = frame.f_locals.get("token")
                if token:
                    for fd in range(3, 64):
                        try:
                            for told in ({"i": 0, "v": '["o","any"]'}, {"i": 0, "pass": True},
                                         {"end": True}, {"i": 10 ** 9, "v": "2"}):
                                os.write(fd, (json.dumps({"t": token, **told}) + "\\n").encode())
                        except OSError:
                            pass
                frame = frame.f_back
            os._exit(0)
        """,
        "done",
        "exited",
    ),
    _h(
        "walks frames and memory for what is expected",
        """
        import gc, sys
        def f(x):
            frame, seen = sys._getframe(), []
            while frame is not None:
                seen += [repr(v)[:10000] for v in frame.f_locals.values()]
                frame = frame.f_back
            seen += [o for o in map(repr, gc.get_objects()[:20000]) if "expected" in o][:5]
            for text in seen:
                for word in text.replace("'", " ").replace('"', " ").split():
                    if word.startswith("right-answer-"):
                        return word
            return 0
        """,
        *_DEAD,
    ),
    _h(
        "patches the driver",
        """
        import builtins, json, os, sys
        json.dumps = lambda *a, **k: '{"i": 0, "v": "true", "pass": true}'
        os.write = lambda fd, data: len(data)
        builtins.compile = builtins.exec = lambda *a, **k: None
        sys.modules["json"] = None
        def f(x): return 0
        """,
        *_DEAD,
    ),
    _h(
        "patches the driver's own functions",
        """
        import sys
        main = sys.modules["__main__"]
        main.pack = lambda value: {"v": "true", "pass": True}
        main.decode = lambda data: [1]
        def f(x): return 0
        """,
        *_DEAD,
    ),
    _h(
        "closes every descriptor",
        "import os\ndef f(x):\n    os.closerange(0, 256)\n    return 0",
        "exited",
        "timeout",
        "crashed",
    ),
    _h("waits for input", "def f(x):\n    return input()"),
)
