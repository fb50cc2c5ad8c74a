"""Figures of the traces beside this file, computed slowly and apart from the crate's reader.

    python slow_reader.py *.json.gz > figures.json

Every instant is an exact decimal in nanoseconds. Communication is what the backend did (`gloo:*`). Compute
is every operator (`cpu_op`) that lies in no other operator and in no backend range on a thread of the
backend's own; calls of `c10d::` are neither. Coverage is counted by elementary intervals, not by merging.
"""

import gzip
import json
import sys
from collections import defaultdict
from decimal import Decimal

SIZES = {"float": 4, "double": 8, "long": 8, "long int": 8, "int": 4}
# The vocabulary of the reports.
OPS = {"all_reduce", "all_gather", "broadcast", "reduce", "all_to_all", "send", "recv", "barrier"}


def load(path):
    with gzip.open(path, "rt") as file:
        return json.load(file, parse_float=Decimal)


def interval(event):
    start = Decimal(event["ts"]) * 1000
    end = start + Decimal(event["dur"]) * 1000
    assert start == int(start) and end == int(end), event
    return int(start), int(end)


def inside(event, outer):
    if event is outer or event["tid"] != outer["tid"] or event["pid"] != outer["pid"]:
        return False
    (start, end), (outer_start, outer_end) = interval(event), interval(outer)
    if (start, end) == (outer_start, outer_end):
        return False
    return outer_start <= start < outer_end


def covered(intervals, others=None):
    """Length of the union of intervals, or of its intersection with the union of others."""
    cuts = sorted({cut for pair in intervals + (others or []) for cut in pair})
    total = 0
    for left, right in zip(cuts, cuts[1:]):
        within = lambda list: any(start <= left and right <= end for start, end in list)
        if within(intervals) and (others is None or within(others)):
            total += right - left
    return total


def payload(op, event, world):
    dims, types = event["args"].get("Input Dims"), event["args"].get("Input type")
    if op == "barrier":
        return 0
    count = 1
    for dim in dims[0]:
        count *= dim
    return count * SIZES[types[0]] * (world if op == "all_gather" else 1)


def figures(path):
    document = load(path)
    world = document["distributedInfo"]["world_size"]
    events = [event for event in document["traceEvents"] if event.get("ph") == "X"]
    operators = [event for event in events if event.get("cat") == "cpu_op"]
    backend = [event for event in events if event["name"].startswith("gloo:")]
    callers = {event["tid"] for event in operators if event["name"].startswith("c10d::")}
    own = [event for event in backend if event["tid"] not in callers]
    top = [
        event
        for event in operators
        if not event["name"].startswith("c10d::") and not any(inside(event, outer) for outer in operators + own)
    ]
    compute = [interval(event) for event in top]
    by_op = defaultdict(lambda: {"count": 0, "time_ns": 0, "exposed_ns": 0, "bytes": 0})
    for event in backend:
        op = event["name"].removeprefix("gloo:")
        assert op in OPS, op
        start, end = interval(event)
        sums = by_op[op]
        sums["count"] += 1
        sums["time_ns"] += end - start
        sums["exposed_ns"] += end - start - covered([(start, end)], compute)
        sums["bytes"] += payload(op, event, world)
    comm = [interval(event) for event in backend]
    return {
        "rank": document["distributedInfo"]["rank"],
        "world_size": world,
        "steps": sorted(
            int(event["name"].removeprefix("ProfilerStep#"))
            for event in events
            if event["name"].startswith("ProfilerStep#")
        ),
        "compute_events": len(compute),
        "comm_ns": covered(comm),
        "compute_ns": covered(compute),
        "overlap_ns": covered(comm, compute),
        "by_op": by_op,
    }


if __name__ == "__main__":
    json.dump({path.rsplit("/")[-1]: figures(path) for path in sys.argv[1:]}, sys.stdout, indent=1)
    print()
