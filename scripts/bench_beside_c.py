#!/usr/bin/env python3
"""What the harness of `commtrace bench collectives --backend mpi` adds to a plain loop in C.

    cargo build --release -p commtrace-cli --features mpi
    scripts/bench_beside_c.py [--collectives LIST] [--turns N] [--repeats N] [--ranks N] [COMMTRACE]

Runs collectives/benches/mpi_collectives.c and `commtrace bench collectives` in turns, at the default payloads of
float32, and prints for each collective and payload the medians of both, over the repeats, of the slowest rank's time:
that of the best job of each, and the median over the turns of their ratio. A job finds its memory where the kernel puts
it, which moves its figures by several percent, so that few turns tell little.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAYLOADS = [262144, 1048576, 4194304]
ELEMENT_BYTES = 4


def c_job(program, arguments):
    """Medians in microseconds of the loop in C, by collective and size."""
    sizes = sorted({payload * ELEMENT_BYTES for payload in PAYLOADS})
    command = ["mpirun", "-n", str(arguments.ranks), program, str(arguments.repeats), *map(str, sizes)]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    lines = (line.split() for line in out.splitlines())
    return {(name, int(size)): float(median) for name, size, median, _, _ in lines}


def our_job(arguments, folder, label):
    """The same of the command; all_gather, whose size is the larger buffer, with a part of the payload."""
    medians = {}
    wanted = arguments.collectives.split(",")
    others = ",".join(name for name in wanted if name != "all_gather")
    for collectives, divide in [(others, 1), ("all_gather" if "all_gather" in wanted else "", arguments.ranks)]:
        if not collectives:
            continue
        payloads = ",".join(str(payload // divide) for payload in PAYLOADS)
        command = [arguments.commtrace, "bench", "collectives", "--backend", "mpi", "--collectives", collectives]
        command += ["--payload-elements", payloads, "--ranks", str(arguments.ranks)]
        command += ["--repeats", str(arguments.repeats), "--run-label", f"{label}-{divide}", "-o", folder]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            sys.exit(done.stdout)
        record = json.loads(Path(folder, f"collectives_mpi_auto_{label}-{divide}.json").read_text())
        for row in record["metrics"]["rows"]:
            medians[row["collective"], row["size_bytes"]] = row["median_max_rank_ms"] * 1e3
    return medians


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commtrace", nargs="?", default=str(ROOT / "target/release/commtrace"))
    parser.add_argument("--collectives", default="all_reduce", metavar="LIST")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--ranks", type=int, default=2)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "mpi_collectives")
        subprocess.run(["mpicc", "-O2", "-o", program, ROOT / "collectives/benches/mpi_collectives.c"], check=True)
        turns = []
        for turn in range(arguments.turns):
            print(f"turn {turn + 1} of {arguments.turns}", file=sys.stderr)
            # Whoever goes second finds the machine as the first has left it, so they change places.
            jobs = [lambda: c_job(program, arguments), lambda: our_job(arguments, folder, f"turn-{turn}")]
            order = jobs if turn % 2 == 0 else jobs[::-1]
            results = [job() for job in order]
            turns.append(tuple(results if turn % 2 == 0 else results[::-1]))
    print(f"{'collective':<16} {'size (B)':>10} {'C (us)':>10} {'ours (us)':>10} {'best/best':>10} {'median ratio':>13}")
    for key in sorted(turns[0][1]):
        c, ours = ([turn[side][key] for turn in turns] for side in (0, 1))
        ratio = statistics.median(mine / plain for plain, mine in zip(c, ours))
        print(f"{key[0]:<16} {key[1]:>10} {min(c):>10.1f} {min(ours):>10.1f} {min(ours) / min(c):>10.3f} {ratio:>13.3f}")


if __name__ == "__main__":
    main()
