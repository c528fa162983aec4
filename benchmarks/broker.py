"""A live broker under load, and RabbitMQ (headers exchange), NATS and Mosquitto with the nearest that they have.

    ./dev bench broker                     the whole table, about a quarter of an hour
    ./dev bench broker --quick             each once, with fewer notifications
    ./dev bench broker --only Catchment --case 10,000
    ./dev bench broker --routing NAME,…    other routing systems beside siena general; `all` stands for all systems
    ./dev bench broker --profile           only where the broker's time goes
    ./dev bench broker --json FILE         for another program: what was measured, run by run; writes no report

Debian's rabbitmq-server, nats-server and mosquitto are started by this; what is not installed is left out and said.
One publisher and the subscribers run in processes of their own, with Python clients for all; notifications are of three
attributes and 200 bytes of payload. The crowd are subscriptions to other symbols: with NATS and Mosquitto, other
topics.

The rate is from the first publication to the last delivery. Latency is that of all deliveries, from the first, at half
of the rate that was measured just before, of a broker that was started anew for it: nothing is warm but what it warms
itself. Half a second passes between the last subscription and the first publication. Peers take turns, run by run, and
a ratio is one of two neighbors in time: the median of these, the least and the most.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import quantiles
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.broker_cases import CASES, PROFILED, Case, Result
from benchmarks.broker_load import Load, receive, send
from benchmarks.broker_profile import Profile, of_stats, sampled
from benchmarks.broker_report import figures_of, lines_of, profile_lines, write_report, write_routing
from benchmarks.broker_routing import REFERENCE, ROUTING_CASES, names_of, needs_advertisements, options, systems_of
from benchmarks.figures import write_figures

PEERS = ("Catchment", "RabbitMQ", "NATS", "Mosquitto")
RUNS = 3
WAIT_S = 300
# Latency is measured for so long, and over no fewer notifications.
LATENCY_S = 6.0
LATENCY_COUNT_MIN = 500
# A broker that has a hundred thousand subscriptions to forget is not waited for.
STOP_S = 5


# --- brokers ------------------------------------------------------------------------------------


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@dataclass(frozen=True)
class Brokers:
    """Where to publish, where to subscribe, and the process that is subscribed at."""

    publish_at: str
    subscribe_at: str
    pid: int


@contextmanager
def running(peer: str, hops: int, directory: Path, before: Sequence[str] = ()) -> Iterator[Brokers]:
    """`before` is put before the command of a Catchment broker: options of Python. What is no peer is a routing system
    of Catchment."""
    processes: list[subprocess.Popen[Any]] = []
    try:
        if is_catchment(peer):
            addresses = _catchments(options(REFERENCE if peer == "Catchment" else peer, hops), processes, before)
        else:
            port = _free_port()
            processes.append(_peer(peer, port, directory))
            _listening(port)
            addresses = (f"127.0.0.1:{port}",) * 2
        yield Brokers(*addresses, processes[-1].pid)
    finally:
        for process in reversed(processes):
            os.killpg(process.pid, signal.SIGTERM)
        for process in processes:
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def is_catchment(peer: str) -> bool:
    return peer == "Catchment" or peer not in PEERS


def _catchments(
    routing: Sequence[Sequence[str]], processes: list[subprocess.Popen[Any]], before: Sequence[str]
) -> tuple[str, str]:
    """A line of brokers, with these options each."""
    addresses: list[str] = []
    for name, chosen in zip(names_of(len(routing)), routing, strict=True):
        command = [sys.executable, *before, "-m", "catchment", "serve", "--name", name, "--listen", "127.0.0.1:0"]
        command += ["--json", *chosen, *(["--neighbor", addresses[-1]] if addresses else [])]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
        )
        processes.append(process)
        assert process.stdout is not None
        addresses.append(json.loads(process.stdout.readline())["address"])
    return addresses[0], addresses[-1]


def _peer(peer: str, port: int, directory: Path) -> subprocess.Popen[Any]:
    environment = dict(os.environ)
    if peer == "NATS":
        command = ["nats-server", "-a", "127.0.0.1", "-p", str(port)]
    elif peer == "Mosquitto":
        config = directory / "mosquitto.conf"
        config.write_text(
            f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 0\nmax_inflight_messages 0\n"
        )
        command = ["mosquitto", "-c", str(config)]
    else:
        command = ["/usr/lib/rabbitmq/bin/rabbitmq-server"]
        environment |= {
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_NODENAME": f"bench{port}@localhost",
            "RABBITMQ_DIST_PORT": str(_free_port()),
            "RABBITMQ_MNESIA_BASE": str(directory),
            "RABBITMQ_LOG_BASE": str(directory),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
            "HOME": str(directory),
        }
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )


def _listening(port: int) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                time.sleep(1)  # RabbitMQ listens a little before it serves
                return
        time.sleep(0.2)
    raise SystemExit(f"nothing listens at {port}")


def is_there(peer: str) -> bool:
    commands = {"RabbitMQ": "rabbitmq-server", "NATS": "nats-server", "Mosquitto": "mosquitto"}
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))
    return is_catchment(peer) or shutil.which(commands[peer], path=path) is not None


# --- measuring ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """Notifications a second from the first sent to the last received; what of the rate asked for the publisher
    kept; how long each took, in seconds; how many did not come."""

    rate: float
    kept: float
    latencies: list[float]
    missed: int


def measured(peer: str, load: Load, brokers: Brokers, started: Callable[[], None] = lambda: None) -> Measured:
    context = multiprocessing.get_context("spawn")
    ready, go = context.Event(), context.Event()
    load = replace(load, progress=context.Value("q", 0, lock=False))
    if is_catchment(peer) and peer != "Catchment":
        load, peer = replace(load, advertises=needs_advertisements(peer)), "Catchment"
    sent, received = context.Queue(), context.Queue()
    processes = [
        context.Process(target=receive, args=(peer, brokers.subscribe_at, load, ready, received), daemon=True),
        context.Process(target=send, args=(peer, brokers.publish_at, load, go, sent), daemon=True),
    ]
    try:
        for process in processes:
            process.start()
        until = time.monotonic() + WAIT_S
        while not ready.wait(1):
            if not processes[0].is_alive() or time.monotonic() > until:
                raise SystemExit(f"{peer}: the subscribers are not ready")
        time.sleep(0.5)
        go.set()
        started()
        start, end = sent.get(timeout=WAIT_S)
        last, latencies, missed = received.get(timeout=WAIT_S)
        kept = load.count / load.rate / (end - start) if load.rate else 1.0
        return Measured(load.count / (last - start), kept, latencies, missed)
    finally:
        for process in processes:
            process.kill()


def run_once(result: Result, share: float, directory: Path) -> None:
    case, peer = result.case, result.peer
    count = int(case.count_for(peer) * share)
    with running(peer, case.hops, directory) as brokers:
        rate = measured(peer, Load(count, case.fan_out, case.crowd), brokers).rate
    paced = Load(max(LATENCY_COUNT_MIN, int(rate / 2 * LATENCY_S * share)), case.fan_out, case.crowd, rate / 2)
    with running(peer, case.hops, directory) as brokers:
        paced_run = measured(peer, paced, brokers)
    result.rates.append(rate)
    marks = quantiles(paced_run.latencies, n=100)
    result.p50s_ms.append(marks[49] * 1e3)
    result.p99s_ms.append(marks[98] * 1e3)
    result.worst_ms = max(result.worst_ms, max(paced_run.latencies) * 1e3)
    result.kept = min(result.kept, paced_run.kept)
    result.missed += paced_run.missed


def run_case(case: Case, peers: Sequence[str], runs: int, share: float) -> list[Result]:
    results = [Result(case, peer) for peer in peers if case.is_for(peer)]
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as directory:
        for i in range(runs):
            for result in results:
                print(f"{case.name}, run {i + 1}: {result.peer}", file=sys.stderr)
                run_once(result, share, Path(directory))
    return results


def profiled(case: Case) -> Profile:
    """Of the broker in a case, at full load; in a run of its own, because looking makes it slower."""
    load = Load(2 * case.count, case.fan_out, case.crowd)
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as directory:
        with running("Catchment", case.hops, Path(directory)) as brokers:
            profile = sampled(
                brokers.pid, lambda started: measured("Catchment", load, brokers, started), Path(directory)
            )
        if profile is not None:
            return profile
        stats = Path(directory) / "stats"
        with running("Catchment", case.hops, Path(directory), ("-m", "cProfile", "-o", str(stats))) as brokers:
            measured("Catchment", load, brokers)
        return of_stats(stats)


def compare_systems(systems: Sequence[str], cases: Sequence[Case], runs: int, share: float) -> list[Result]:
    results: list[Result] = []
    for case in cases:
        results += run_case(case, systems, runs, share)
        print("\n".join(lines_of(results, case, REFERENCE)), flush=True)
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=PEERS)
    parser.add_argument("--case", help="only cases with this in their name")
    parser.add_argument("--routing", metavar="NAME,…")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    runs, share = (1, 0.25) if given.quick else (given.runs, 1.0)
    if given.profile:
        print("\n".join(profile_lines(profiled(PROFILED))))
        return 0
    if given.routing:
        cases = [case for case in ROUTING_CASES if not given.case or given.case in case.name]
        results = compare_systems(systems_of(given.routing), cases, runs, share)
        if given.json:
            write_figures(given.json, [figure for result in results for figure in figures_of(result)])
        elif not given.case:
            write_routing(results, " ".join(["./dev bench broker", *map(shlex.quote, sys.argv[1:])]), REFERENCE)
        return 0
    peers = [peer for peer in PEERS if is_there(peer) and given.only in (None, peer)]
    for peer in PEERS:
        if not is_there(peer):
            print(f"{peer} is not installed: left out", file=sys.stderr)
    results = []
    for case in CASES:
        if not given.case or given.case in case.name:
            results += run_case(case, peers, runs, share)
            print("\n".join(lines_of(results, case)), flush=True)
    if given.json:
        write_figures(given.json, [figure for result in results for figure in figures_of(result)])
    elif not given.only and not given.case:
        command = " ".join(["./dev bench broker", *sys.argv[1:]])
        write_report(results, profiled(PROFILED), command)
    return 0


if __name__ == "__main__":
    sys.exit(main())
