"""An image looked at without running it: its settings and the files of its sources.

A container is created, never started, its files are read as a stream, and it is removed. What a
mixed source tree hides at run time stands in the files: a worker of one revision beside a model
file of another, a profiler left in, a backup file that is imported by nobody.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path
from typing import IO, Any, cast

from qualify.engines.docker_client import connect, docker_py, reason
from qualify.engines.docker_create import labels_of
from qualify.engines.docker_nouns import Holds
from qualify.engines.owned import new_owned
from qualify.errors import EngineError
from qualify.inspect.imagefiles import ChunkStream, Files
from qualify.inspect.manifest import judge as judge_manifest
from qualify.inspect.nouns import Fault, Inspection
from qualify.inspect.registry import registered

# Never the engine's own sources; passed over where an image does not say where those are.
SYSTEM = ("bin", "boot", "dev", "etc", "lib", "lib64", "media", "proc", "run", "sbin", "sys",
          "tmp", "usr", "var")  # fmt: skip
MANIFESTS = ("MANIFEST.sha256", "SOURCES.sha256", "SHA256SUMS")
LEFT_OVER = {
    "bytecode": ("*.pyc", "*.pyo"),
    "backup": ("*~", "*.bak", "*.orig", "*.rej", "*.swp", "*.old", ".#*"),
    "profiler": ("*phase_profiler*", "*.nsys-rep", "*.prof", "*.pt.trace.json*"),
    "log": ("*.log",),
}


def inspect_image(ref: str, wanted: Holds, *, client: Any = None) -> Inspection:
    """Compare an image of the Docker Engine with what it should hold.

    Raises EngineError when no engine answers or the image is not there.
    """
    if client is None:
        client = connect()
        try:
            return inspect_image(ref, wanted, client=client)
        finally:
            client.close()
    image = _image(client, ref)
    config = image.attrs.get("Config") or {}
    env = dict(entry.partition("=")[::2] for entry in config.get("Env") or ())
    roots = wanted.roots or _roots(env, config.get("WorkingDir") or "")
    files = Files(MANIFESTS if wanted.manifest is None else (wanted.manifest,))
    _read(client, image.id, roots, files)
    faults = [*_env(env, wanted), *_left(files.files, wanted)]
    places = {name: registered(name, files.sources) for name in wanted.classes}
    for name, place in places.items():
        if place is None:
            text = f"No source registers the class {name}: a checkpoint that declares it "
            faults.append(Fault("class", name, f"{text}cannot be what it says."))
    unjudged: list[str] = []
    faults += judge_manifest(files, required=wanted.manifest is not None, unjudged=unjudged)
    if not files.files:
        unjudged.append(f"no file lies below {', '.join(roots)}")
    if not wanted.classes:
        unjudged.append("no draft class was named, so none was looked for")
    facts = {
        "id": image.id,
        "digests": list(image.attrs.get("RepoDigests") or ()),
        "roots": list(roots),
        "looked_at": len(files.files),
        "manifest": files.manifest_path,
        "registered": places,
        "env": {name: env.get(name) for name in wanted.env},
    }
    return Inspection(ref, "image", tuple(faults), tuple(unjudged), facts)


def _image(client: Any, ref: str) -> Any:
    errors = docker_py().errors
    try:
        return client.images.get(ref)
    except errors.ImageNotFound:
        raise EngineError(
            f"The image {ref} is not here.", f"Fetch it (docker pull {ref}) or build it first."
        ) from None
    except errors.APIError as error:
        raise EngineError(
            f"The Docker Engine cannot look up {ref}: {reason(error)}.", "Check the image's name."
        ) from error


def _roots(env: dict[str, str], folder: str) -> tuple[str, ...]:
    """Where an image says that its program lives: PYTHONPATH and the working directory. One
    that lies below another is read with it."""
    named = [p.rstrip("/") for p in (*env.get("PYTHONPATH", "").split(":"), folder)]
    found = sorted({p for p in named if p.startswith("/") and p.count("/") > 0})
    kept = [p for p in found if not any(p.startswith(f"{other}/") for other in found)]
    return tuple(kept) or ("/",)


def _read(client: Any, image: str, roots: Iterable[str], files: Files) -> None:
    """Stream what lies below each root; a root that is not there holds nothing."""
    errors = docker_py().errors
    labels = labels_of(new_owned("inspect"), Path("inspect"))
    made = client.containers.create(image, ["true"], network_disabled=True, labels=labels)
    try:
        for root in roots:
            try:
                chunks = made.export() if root == "/" else made.get_archive(root)[0]
            except errors.NotFound:
                continue
            stream = cast(IO[bytes], ChunkStream(chunks))
            with tarfile.open(fileobj=stream, mode="r|") as archive:
                files.take(root, archive, SYSTEM if root == "/" else ())
    finally:
        made.remove(force=True)


def _env(env: dict[str, str], wanted: Holds) -> list[Fault]:
    faults = []
    for name, value in wanted.env.items():
        if env.get(name) != value:
            said = "is not set" if name not in env else f"is {env[name]!r}"
            text = f"The environment default {name} {said}; {value!r} is expected."
            faults.append(Fault("env", name, text))
    return faults


def _left(files: Iterable[str], wanted: Holds) -> list[Fault]:
    """One fault a kind, with the first file and how many there are."""
    patterns = {**LEFT_OVER, "forbidden": wanted.forbid}
    faults = []
    for what, names in patterns.items():
        found = sorted(
            p
            for p in files
            if any(fnmatch(p.rpartition("/")[2], n) or fnmatch(p, n) for n in names)
            and not any(fnmatch(p, n) for n in wanted.allow)
        )
        if found:
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            text = f"The image holds a {what} file that should not be there: {found[0]}"
            faults.append(Fault(what, found[0], f"{text}{more}."))
    return faults
