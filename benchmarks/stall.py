"""How long does somebody wait while somebody else attacks the broker?

    ./dev bench stall                        every attack on the code of this directory, some five minutes
    ./dev bench stall --before main          the same on another commit too, side by side
    ./dev bench stall --before main --kept FILE
                                             the other commit is measured once: the next time, FILE has its figures
    ./dev bench stall --only 6 --only 12     the attacks of these findings of issue 18
    ./dev bench stall --json FILE            for another program: what was measured; writes no report

A broker runs in a process of its own, and so does the attacker (benchmarks/stall_attacks.py). Somebody else publishes
a notification over a connection of its own, waits until it is delivered to itself, pauses for a moment, and does it
again. Its waits while the attack runs are what is measured: the 99th percentile and the worst. TARGETS is what they
should be on a free core; give the benchmark a machine with three.

The work is the processor time that the broker used during these waits. It says what the broker did before it served
somebody else, also on a machine that is busy with other things.

Where the broker does not deliver within GIVE_UP_S, the attack has won, and the table says so. The resident size is the
most that the broker had.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.compare import ROOT, checked_out, git
from benchmarks.figures import Figure, write_figures
from benchmarks.stall_attacks import ATTACKS, Attack, Target, client, frame, hear

# An attack is measured for so long, or until it is over, but at least for the shorter time.
ATTACK_S, ATTACK_S_LEAST = 5.0, 2.0
PAUSE_S = 0.002
GIVE_UP_S = 60.0
PREPARE_S_MAX = 300.0
# What somebody may wait while an attack runs, on a free core.
TARGETS = {"p99": 0.005, "worst": 0.050}
REPORT = ROOT / "benchmarks" / "results" / "stall.md"


@dataclass(frozen=True)
class Waits:
    """Of one attack: the waits, and the broker's work in each, in seconds; whether the broker was given up; and its
    resident size in bytes."""

    seconds: Sequence[float]
    work: Sequence[float]
    has_won: bool
    resident: int

    @property
    def p99(self) -> float:
        return p99_of(self.seconds)

    @property
    def worst(self) -> float:
        return max(self.seconds)


def p99_of(values: Sequence[float]) -> float:
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]


def processor_time(pid: int) -> float:
    """The processor time that a process has used, in seconds; 0 where the system does not tell."""
    try:
        # As clock_getcpuclockid(3) makes it on Linux.
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0


# --- the broker, the attacker and somebody else -------------------------------------------------


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def broker(environment: Mapping[str, str], routing: str) -> Iterator[tuple[Target, int]]:
    target = Target(free_port(), free_port())
    command = [sys.executable, "-m", "catchment", "serve", "--routing", routing, "--log", "json"]
    addresses = ["--listen", f"127.0.0.1:{target.port}", "--http", f"127.0.0.1:{target.http_port}"]
    # Outside of every checkout: Python puts the directory where it starts before all others.
    with tempfile.TemporaryDirectory() as directory, (Path(directory) / "log").open("w") as log:
        process = subprocess.Popen(
            [*command, *addresses], env=dict(environment), cwd=directory, stdout=subprocess.PIPE, stderr=log
        )
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield target, process.pid
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


def attack_in_process(index: int, target: Target, ready: Any, go: Any, stop: Any, over: Any) -> None:
    steps = ATTACKS[index].steps(target)
    next(steps)
    ready.set()
    go.wait()
    for _ in steps:
        if stop.is_set():
            break
    over.set()
    stop.wait()


def resident_most(pid: int) -> int:
    """The most memory that a process had, where the system tells."""
    try:
        status = Path(f"/proc/{pid}/status").read_text("ascii")
    except OSError:
        return 0
    return 1_024 * int(re.findall(r"VmHWM:\s+(\d+)", status)[0])


class Somebody:
    """Publishes something, and waits until it is delivered to itself."""

    def __init__(self, target: Target) -> None:
        self._connection = client(target, "somebody")
        self._number = 0
        for number, request in enumerate(
            (["Advertise", "somebody", "mine any"], ["Subscribe", "somebody", "s", "mine > 0"]), 1
        ):
            self._connection.sendall(frame("Request", number, request))
            assert hear(self._connection) == ["Accepted", number]

    def wait(self) -> None:
        """Until it is delivered. TimeoutError if it does not come."""
        self._number += 1
        give_up_at = time.perf_counter() + GIVE_UP_S
        self._connection.settimeout(GIVE_UP_S)
        self._connection.sendall(frame("Publish", 0, [[{"mine": self._number}, "somebody", None, None]]))
        while True:
            message = hear(self._connection)
            if message[0] == "Delivery" and message[3][0]["mine"] == self._number:
                return
            if message[0] == "Ping":
                self._connection.sendall(frame("Pong"))
            if time.perf_counter() > give_up_at:
                # Pings come in time, and nothing else.
                raise TimeoutError(f"the last message was {message}")


def waits_under(attack: Attack, environment: Mapping[str, str]) -> Waits:
    context = multiprocessing.get_context("fork")
    ready, go, stop, over = (context.Event() for _ in range(4))
    with broker(environment, attack.routing) as (target, pid):
        somebody = Somebody(target)
        for _ in range(20):
            somebody.wait()
        arguments = (ATTACKS.index(attack), target, ready, go, stop, over)
        attacker = context.Process(target=attack_in_process, args=arguments, daemon=True)
        attacker.start()
        try:
            prepared_by = time.perf_counter() + PREPARE_S_MAX
            # It answers pings meanwhile: the broker would end a connection that is silent.
            while not ready.wait(1.0):
                if time.perf_counter() > prepared_by:
                    raise SystemExit(f"{attack.name}: the preparation did not end within {PREPARE_S_MAX:.0f} s")
                somebody.wait()
            somebody.wait()
            go.set()
            seconds, work, has_won = measured(somebody, over, pid)
            return Waits(seconds, work, has_won, resident_most(pid))
        finally:
            stop.set()
            attacker.terminate()
            attacker.join()


def measured(somebody: Somebody, over: Any, pid: int) -> tuple[list[float], list[float], bool]:
    seconds: list[float] = []
    work: list[float] = []
    began = time.perf_counter()
    while (passed := time.perf_counter() - began) < ATTACK_S and not (over.is_set() and passed > ATTACK_S_LEAST):
        before = processor_time(pid)
        asked = time.perf_counter()
        try:
            somebody.wait()
        except (TimeoutError, ConnectionError):
            return [*seconds, time.perf_counter() - asked], [*work, processor_time(pid) - before], True
        seconds.append(time.perf_counter() - asked)
        work.append(processor_time(pid) - before)
        time.sleep(PAUSE_S)
    return seconds, work, False


# --- the report ---------------------------------------------------------------------------------


def shown(waits: Waits | None) -> list[str]:
    if waits is None:
        return []
    worst = f"> {GIVE_UP_S:.0f} s" if waits.has_won else f"{1e3 * waits.worst:,.1f} ms"
    work = f"{1e3 * p99_of(waits.work):,.1f} ms, {1e3 * max(waits.work):,.1f} ms"
    return [f"{1e3 * waits.p99:,.1f} ms", worst, work, f"{waits.resident / 1_048_576:,.0f} MiB"]


def lines_of(by_label: Mapping[str, Mapping[Attack, Waits]], attacks: Sequence[Attack]) -> Iterator[str]:
    titles = [
        f"{what} {label}".strip() for label in by_label for what in ("p99", "worst", "work (p99, worst)", "resident")
    ]
    yield f"| finding | attack | {' | '.join(titles)} |"
    yield f"|---|---|{'---|' * len(titles)}"
    for attack in attacks:
        cells = [cell for waits in by_label.values() for cell in shown(waits.get(attack))]
        yield f"| {attack.finding} | {attack.name} | {' | '.join(cells)} |"


def figures_of(waits: Mapping[Attack, Waits]) -> list[Figure]:
    return [
        Figure(f"{attack.finding} {attack.name}, {what}", False, (getattr(each, what),))
        for attack, each in waits.items()
        for what in TARGETS
    ]


def missed(waits: Mapping[Attack, Waits]) -> list[str]:
    """The attacks under which somebody waits for longer than it should."""
    return [
        f"{attack.name}: {what} is {1e3 * getattr(each, what):,.1f} ms, the target is {1e3 * target:g} ms"
        for attack, each in waits.items()
        for what, target in TARGETS.items()
        if getattr(each, what) > target
    ]


def all_waits(label: str, environment: Mapping[str, str], attacks: Sequence[Attack]) -> dict[Attack, Waits]:
    waits = {}
    for attack in attacks:
        print(f"{label or 'this directory'}: {attack.finding} {attack.name}", file=sys.stderr, flush=True)
        waits[attack] = waits_under(attack, environment)
        print("  " + "  ".join(shown(waits[attack])), file=sys.stderr, flush=True)
    return waits


def measured_sides(before: str | None, kept: Path | None, attacks: Sequence[Attack]) -> dict[str, dict[Attack, Waits]]:
    here = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    if before is None:
        return {"": all_waits("", here, attacks)}
    return {f"at {before}": waits_before(before, kept, attacks), "now": all_waits("now", here, attacks)}


def waits_before(before: str, kept: Path | None, attacks: Sequence[Attack]) -> dict[Attack, Waits]:
    """The waits at another commit: from the file, if there is one, otherwise measured, and kept in it."""
    if kept is not None and kept.exists():
        by_name = {name: Waits(**waits) for name, waits in json.loads(kept.read_text("utf-8")).items()}
        return {attack: by_name[attack.name] for attack in attacks}
    with checked_out([before, "HEAD"]) as (side, _):
        print(f"compiling the kernels of {side.commit}", file=sys.stderr)
        side.prepare()
        waits = all_waits(f"at {side.commit}", side.environment, attacks)
    if kept is not None:
        kept.write_text(json.dumps({attack.name: asdict(each) for attack, each in waits.items()}), "utf-8")
    return waits


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", metavar="REF", help="a commit to compare with")
    parser.add_argument("--kept", type=Path, metavar="FILE", help="keep what --before measures, or take it from there")
    parser.add_argument("--only", action="append", metavar="FINDING", help="the attacks of this finding alone")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write figures there, and no report")
    given = parser.parse_args()
    attacks = [attack for attack in ATTACKS if given.only is None or attack.finding in given.only]
    if not attacks:
        parser.error(f"no such finding: {', '.join(dict.fromkeys(attack.finding for attack in ATTACKS))}")
    by_label = measured_sides(given.before, given.kept, attacks)
    waits = list(by_label.values())[-1]
    lines = list(lines_of(by_label, attacks))
    print("\n".join(lines))
    if given.json is not None:
        write_figures(given.json, figures_of(waits))
    elif given.only is None:
        command = " ".join(["./dev bench stall", *sys.argv[1:]])
        heading = [f"# {__doc__.splitlines()[0]}", "", f"`{command}`, at {git('rev-parse', '--short', 'HEAD')}.", ""]
        REPORT.write_text("\n".join([*heading, *lines, ""]), "utf-8")
    print("\n".join(missed(waits)), file=sys.stderr)
    return 1 if missed(waits) else 0


if __name__ == "__main__":
    sys.exit(main())
