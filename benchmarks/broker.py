"""A live broker under load, and RabbitMQ (headers exchange), NATS and Mosquitto with the nearest that they have.

    ./dev bench broker                     the whole table, some minutes
    ./dev bench broker --quick             each once, with fewer notifications
    ./dev bench broker --only Catchment

Debian's rabbitmq-server, nats-server and mosquitto are started by this; what is not installed is left out and said.
One publisher and the subscribers run in processes of their own, with Python clients for all; notifications are of three
attributes and 200 bytes of payload. The rate is from the first publication to the last delivery. Latency is at half of
the rate that was measured. The crowd are subscriptions to other symbols: with NATS and
Mosquitto, other topics.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.broker_load import Load, Reception, receive, send

PEERS = ("Catchment", "RabbitMQ", "NATS", "Mosquitto")
RUNS = 3
WAIT_S = 600
# Bindings that RabbitMQ's headers exchange is asked for at the most: each notification is compared with all of them.
RABBITMQ_CROWD_MAX = 10_000


# --- brokers ------------------------------------------------------------------------------------


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def running(peer: str, hops: int, directory: Path) -> Iterator[tuple[str, str]]:
    """The addresses to publish at and to subscribe at."""
    processes: list[subprocess.Popen[Any]] = []
    try:
        if peer == "Catchment":
            yield _catchments(hops, processes)
        else:
            port = _free_port()
            processes.append(_peer(peer, port, directory))
            _listening(port)
            yield (f"127.0.0.1:{port}",) * 2
    finally:
        for one in reversed(processes):
            os.killpg(one.pid, signal.SIGTERM)
        for one in processes:
            try:
                one.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(one.pid, signal.SIGKILL)


def _catchments(hops: int, processes: list[subprocess.Popen[Any]]) -> tuple[str, str]:
    addresses: list[str] = []
    for i in range(hops):
        command = [sys.executable, "-m", "catchment", "serve", "--name", f"b{i}", "--listen", "127.0.0.1:0", "--json"]
        command += ["--neighbor", addresses[-1]] if addresses else []
        one = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
        )
        processes.append(one)
        assert one.stdout is not None
        addresses.append(json.loads(one.stdout.readline())["address"])
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
        with socket.socket() as found:
            if found.connect_ex(("127.0.0.1", port)) == 0:
                time.sleep(1)  # RabbitMQ listens a little before it serves
                return
        time.sleep(0.2)
    raise SystemExit(f"nothing listens at {port}")


def is_there(peer: str) -> bool:
    commands = {"RabbitMQ": "rabbitmq-server", "NATS": "nats-server", "Mosquitto": "mosquitto"}
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))
    return peer == "Catchment" or shutil.which(commands[peer], path=path) is not None


# --- measuring ----------------------------------------------------------------------------------


def measured(peer: str, load: Load, addresses: tuple[str, str]) -> tuple[float, Reception]:
    """Notifications a second from the first sent to the last received, and what was received."""
    context = multiprocessing.get_context("spawn")
    ready, go = context.Event(), context.Event()
    sent, received = context.Queue(), context.Queue()
    processes = [
        context.Process(target=receive, args=(peer, addresses[1], load, ready, received), daemon=True),
        context.Process(target=send, args=(peer, addresses[0], load, go, sent), daemon=True),
    ]
    try:
        for one in processes:
            one.start()
        if not ready.wait(WAIT_S):
            raise SystemExit(f"{peer}: the subscribers were not ready")
        time.sleep(0.5)
        go.set()
        start = sent.get(timeout=WAIT_S)
        found: Reception = received.get(timeout=WAIT_S)
        return load.count / (found.last - start), found
    finally:
        for one in processes:
            one.kill()


CASES = (
    # name, notifications, fan-out, crowd, hops
    ("1 subscription", 60_000, 1, 0, 1),
    ("10,000 subscriptions", 60_000, 1, 10_000, 1),
    ("100,000 subscriptions", 60_000, 1, 100_000, 1),
    ("fan-out 100", 2_000, 100, 0, 1),
    ("3 hops", 40_000, 1, 0, 3),
)


def count_for(peer: str, count: int, crowd: int) -> int:
    """RabbitMQ compares each with all bindings: fewer show it."""
    return max(200, count // 100) if peer == "RabbitMQ" and crowd >= 10_000 else count


def is_possible(peer: str, crowd: int, hops: int) -> bool:
    return peer == "Catchment" or (hops == 1 and not (peer == "RabbitMQ" and crowd > RABBITMQ_CROWD_MAX))


def run_case(peer: str, case: tuple[str, int, int, int, int], runs: int, share: float) -> dict[str, Any]:
    name, count, fan_out, crowd, hops = case
    count = int(count_for(peer, count, crowd) * share)
    rates, p50s, p99s, later_p99s = [], [], [], []
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as directory:
        for _ in range(runs):
            with running(peer, hops, Path(directory)) as addresses:
                rate, _ = measured(peer, Load(count, fan_out, crowd), addresses)
                rates.append(rate)
            with running(peer, hops, Path(directory)) as addresses:
                paced = Load(max(200, count // 4), fan_out, crowd, rate / 2)
                _, received = measured(peer, paced, addresses)
                marks = quantiles(received.latencies, n=100)
                p50s.append(marks[49] * 1e3)
                p99s.append(marks[98] * 1e3)
                # Both are reported: the first deliveries are slower, and it was not looked into why.
                later = received.latencies[len(received.latencies) // 5 :]
                later_p99s.append(quantiles(later, n=100)[98] * 1e3)
    return {
        "case": name, "peer": peer, "fan_out": fan_out, "rate": median(rates), "least": min(rates), "most": max(rates),
        "p50_ms": median(p50s), "p99_ms": median(p99s), "later_p99_ms": median(later_p99s),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=PEERS)
    parser.add_argument("--case", help="only cases with this in their name")
    given = parser.parse_args()
    runs, share = (1, 0.25) if given.quick else (RUNS, 1.0)
    results = []
    for case in CASES:
        if given.case and given.case not in case[0]:
            continue
        for peer in PEERS:
            if given.only and peer != given.only:
                continue
            if not is_there(peer):
                print(f"{peer} is not installed: left out", file=sys.stderr)
            elif is_possible(peer, case[3], case[4]):
                results.append(run_case(peer, case, runs, share))
                print(_line(results[-1], results), flush=True)
    if not given.only and not given.case:
        from benchmarks.broker_report import write_report

        write_report(results, "./dev bench broker" + (" --quick" if given.quick else ""), runs)
    return 0


def _line(found: dict[str, Any], results: list[dict[str, Any]]) -> str:
    ours = next((one for one in results if one["case"] == found["case"] and one["peer"] == "Catchment"), None)
    ratio = f"{ours['rate'] / found['rate']:7.2f}x" if ours is not None else ""
    deliveries = f"{found['rate'] * found['fan_out']:10,.0f}/s delivered"
    return (
        f"{found['case']:22} {found['peer']:10} {found['rate']:10,.0f}/s ({found['least']:,.0f}-{found['most']:,.0f})"
        f"{deliveries} p50 {found['p50_ms']:.2f} ms p99 {found['p99_ms']:.2f} ms"
        f" (after the first fifth {found['later_p99_ms']:.2f}) {ratio}"
    )


if __name__ == "__main__":
    sys.exit(main())
