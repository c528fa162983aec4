"""Is one commit faster than another? Runs a benchmark on both, in turns, and says what is more than noise.

    ./dev bench compare main HEAD -- simulator
    ./dev bench compare main HEAD -- broker --only Catchment --case "1 subscription" --runs 1
    ./dev bench compare HEAD HEAD -- simulator               how much noise there is: should differ in nothing
    ./dev bench compare --rounds 12 v1 v2 -- simulator       more rounds, narrower intervals

Each commit is checked out in a temporary directory. Both run with the same Python and the same packages, and each
compiles its kernels into a cache of its own, before anything is measured. The benchmark is the one that stands beside
this file, for both, so that only the code under `src` differs; with --own each commit runs its own, which must know
`--json`. A round runs the benchmark once on each, in the order A B, B A, A B, …

For each figure it prints the median of the rounds' ratios B/A, the interval in which the true one lies with 95 %
confidence, and the verdict: B is faster, slower, or no different (benchmarks/ratios.py).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.figures import Figure, read_figures
from benchmarks.ratios import CONFIDENCE, ROUNDS_MIN, compare_figure, table

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 8


@dataclass
class Side:
    """A or B: a commit, where it is checked out, and what was measured, a value of each figure in each round."""

    label: str
    commit: str
    tree: Path
    figures: dict[str, Figure] = field(default_factory=dict)

    @property
    def environment(self) -> Mapping[str, str]:
        own = {
            "PYTHONPATH": str(self.tree / "src"),
            "PYTHONHASHSEED": "0",  # sets have the same order in every run
            "NUMBA_CACHE_DIR": str(self.tree / "kernels"),
        }
        return {**os.environ, **own}

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *command], cwd=self.tree, env=self.environment, text=True, capture_output=True, check=False
        )

    def prepare(self) -> None:
        """Checks that its own code is what runs, and compiles its kernels."""
        imported = self.run("-c", "import catchment; print(catchment.__file__)")
        if not Path(imported.stdout.strip()).is_relative_to(self.tree):
            raise SystemExit(f"{self.label} would run {imported.stdout.strip()}\n{imported.stderr}")
        warmed = self.run("-m", "catchment.matching.warm")
        if warmed.returncode != 0:
            raise SystemExit(f"the kernels of {self.label} ({self.commit}) do not compile:\n{warmed.stderr}")

    def measure(self, script: Path, arguments: Sequence[str]) -> None:
        """One run of the benchmark. It may end with an error where a target is not reached: what counts is figures."""
        written = self.tree / "figures.json"
        written.unlink(missing_ok=True)
        ended = self.run(str(script), *arguments, "--json", str(written))
        if not written.exists():
            raise SystemExit(f"no figures of {self.label} ({self.commit}):\n{ended.stdout}{ended.stderr}")
        for figure in read_figures(written):
            before = self.figures.get(figure.name, Figure(figure.name, figure.is_more_faster, ()))
            values = (*before.values, median(figure.values))
            self.figures[figure.name] = Figure(figure.name, figure.is_more_faster, values)


def git(*arguments: str) -> str:
    ended = subprocess.run(["git", "-C", ROOT, *arguments], text=True, capture_output=True, check=False)
    if ended.returncode != 0:
        raise SystemExit(f"git {' '.join(arguments)}: {ended.stderr.strip()}")
    return ended.stdout.strip()


@contextmanager
def checked_out(refs: Sequence[str]) -> Iterator[list[Side]]:
    sides: list[Side] = []
    with tempfile.TemporaryDirectory(prefix="compare-") as directory:
        try:
            for label, ref in zip("AB", refs, strict=True):
                commit = git("rev-parse", "--short", f"{ref}^{{commit}}")
                tree = Path(directory).resolve() / label
                git("worktree", "add", "--detach", str(tree), commit)
                sides.append(Side(label, commit, tree))
            yield sides
        finally:
            for side in sides:
                git("worktree", "remove", "--force", str(side.tree))


def measured_in_turns(sides: Sequence[Side], rounds: int, script: str, arguments: Sequence[str], own: bool) -> None:
    for side in sides:
        print(f"compiling the kernels of {side.label} ({side.commit})", file=sys.stderr)
        side.prepare()
    for round in range(rounds):
        # Who is first takes turns too: the second of a round may find the machine warmer, or slower.
        for side in sides if round % 2 == 0 else reversed(sides):
            print(f"round {round + 1} of {rounds}: {side.label}", file=sys.stderr)
            side.measure((side.tree if own else ROOT) / script, arguments)


def report(sides: Sequence[Side], rounds: int) -> list[str]:
    a, b = sides
    names = [name for name in a.figures if name in b.figures]
    comparisons = [compare_figure(a.figures[name], b.figures[name]) for name in names]
    lines = [f"A is {a.commit}, B is {b.commit}; {rounds} rounds", "", *table(comparisons)]
    lines += [f"{name}: only one of them has it" for name in a.figures.keys() ^ b.figures.keys()]
    if len(names) > 1:
        chance = f"{(1 - CONFIDENCE) * len(names):.1f}"
        lines += ["", f"Of {len(names)} figures, up to {chance} on average seem to differ by chance alone."]
    return lines


def parsed(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """The options of this, and after `--` the benchmark's name and its own options."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="./dev bench compare [--rounds N] [--own] A B -- BENCHMARK [OPTIONS]",
    )
    parser.add_argument("refs", nargs=2, metavar="REF", help="A, then B: commits, branches or tags")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"{ROUNDS} unless told, at least {ROUNDS_MIN}")
    parser.add_argument("--own", action="store_true", help="each commit runs its own benchmark")
    at = arguments.index("--") if "--" in arguments else len(arguments)
    given, benchmark = parser.parse_args(arguments[:at]), list(arguments[at + 1 :])
    if not benchmark:
        parser.error("after -- comes the benchmark: broker or simulator")
    if not (ROOT / "benchmarks" / f"{benchmark[0]}.py").exists():
        parser.error(f"there is no benchmarks/{benchmark[0]}.py")
    if given.rounds < ROUNDS_MIN:
        parser.error(f"fewer than {ROUNDS_MIN} rounds can tell nothing")
    return given, benchmark


def main() -> int:
    given, (name, *arguments) = parsed(sys.argv[1:])
    with checked_out(given.refs) as sides:
        measured_in_turns(sides, given.rounds, f"benchmarks/{name}.py", arguments, given.own)
        print("\n".join(report(sides, given.rounds)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
