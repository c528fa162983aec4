"""Where a broker's time goes under load: samples of py-spy or, where that is not to be had, cProfile in the broker."""

from __future__ import annotations

import pstats
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SAMPLES_A_SECOND = 200
SECONDS = 5
FUNCTIONS_SHOWN = 12
REST = "event loop and sockets"
# The first that a path holds: what is called from a layer and lies outside all of them counts for that layer.
LAYERS = (
    ("catchment/wire", "decoding and encoding"),
    ("catchment/model/", "decoding and encoding"),
    ("catchment/matching/", "matching"),
    ("catchment/routing/", "routing core"),
    # What runs the loop: under it is all else.
    ("catchment/broker/run.py", REST),
    ("catchment/broker/", "connections and actions"),
    ("catchment/node/", "connections and actions"),
)
_FRAME = re.compile(r"(?P<name>.*) \((?P<path>.*?)(:\d+)?\)$")


@dataclass(frozen=True)
class Profile:
    """Shares of the time that the broker was busy, by layer and by function."""

    how: str
    layers: list[tuple[str, float]]
    functions: list[tuple[str, float]]


def spy() -> str | None:
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


def sampled(pid: int, work: Callable[[Callable[[], None]], object], directory: Path) -> Profile | None:
    """Of a process while the work is done, which calls what it is given when it begins; None if the process may not be
    looked into."""
    command, output = spy(), directory / "samples"
    if command is None:
        return None
    options = ["-d", str(SECONDS), "-r", str(SAMPLES_A_SECOND), "-f", "raw", "-F", "-o", str(output)]
    watching: list[subprocess.Popen[bytes]] = []

    def watch() -> None:
        whole = [command, "record", "-p", str(pid), *options]
        watching.append(subprocess.Popen(whole, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    work(watch)
    failed = [process.wait(SECONDS + 30) for process in watching]
    return None if any(failed) or not output.exists() else _of_samples(output.read_text("utf-8"))


def _of_samples(text: str) -> Profile:
    layers: Counter[str] = Counter()
    functions: Counter[str] = Counter()
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = [match for frame in stack.split(";") if (match := _FRAME.match(frame)) is not None]
        # A worker of the executor that waits for work is not always known to be idle.
        if frames and not frames[-1]["path"].endswith("futures/thread.py"):
            layers[_layer([frame["path"] for frame in frames])] += int(count)
            functions[_shown(frames[-1]["path"], frames[-1]["name"])] += int(count)
    return _profile(f"py-spy, {SAMPLES_A_SECOND} samples a second", layers, functions)


def _layer(paths: list[str]) -> str:
    for path in reversed(paths):
        for part, name in LAYERS:
            if part in path:
                return name
    return REST


def of_stats(path: Path) -> Profile:
    """What cProfile has written: its own cost falls on small functions."""
    layers: Counter[str] = Counter()
    functions: Counter[str] = Counter()
    for (file, _, name), (_, _, own, _, _) in pstats.Stats(str(path)).stats.items():  # type: ignore[attr-defined]
        layers[_layer([file])] += own
        functions[_shown(file, name)] += own
    return _profile("cProfile, which makes calls look dearer than they are", layers, functions)


def _shown(path: str, name: str) -> str:
    _, package, inside = path.rpartition("catchment/")
    return f"{inside if package else Path(path).name}: {name}"


def _profile(how: str, layers: Counter[str], functions: Counter[str]) -> Profile:
    total = sum(layers.values()) or 1
    most = functions.most_common(FUNCTIONS_SHOWN)
    return Profile(
        how, [(name, own / total) for name, own in layers.most_common()], [(name, own / total) for name, own in most]
    )
