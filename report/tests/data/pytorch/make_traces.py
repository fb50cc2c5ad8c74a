"""Makes the PyTorch profiler traces beside this file: CPU training with gloo, no GPU needed.

    pip install torch numpy
    python make_traces.py OUT_DIR

Writes one `NAME_rankR.json.gz` per rank for

    ddp2, ddp4    DistributedDataParallel with 2 and 4 processes
    fsdp2         fully sharded data parallelism (FSDP2, `fully_shard`) with 2 processes
    ops2          each collective once or more with 2 processes, through torch.distributed itself

The traces keep shapes (`record_shapes=True`) and hold two steps each, so that they stay small.
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.profiler import ProfilerActivity, profile, schedule

STEPS = 2


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8)
    )


def train(step_model, optimizer):
    inputs, targets = torch.randn(32, 64), torch.randn(32, 8)
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(step_model(inputs), targets)
    loss.backward()
    optimizer.step()


def ddp(_rank):
    wrapped = torch.nn.parallel.DistributedDataParallel(model(), bucket_cap_mb=0.05)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01)
    return lambda: train(wrapped, optimizer)


def fsdp(_rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    sharded = model()
    for layer in sharded:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    optimizer = torch.optim.SGD(sharded.parameters(), lr=0.01)
    return lambda: train(sharded, optimizer)


def ops(rank):
    world = dist.get_world_size()

    def step():
        data = torch.ones(1024)
        dist.all_reduce(data)
        dist.broadcast(data, 0)
        dist.reduce(data, 0)
        dist.all_gather_into_tensor(torch.empty(world * 1024), data)
        dist.all_gather([torch.empty(1024) for _ in range(world)], data)
        dist.reduce_scatter_tensor(torch.empty(512), data)
        dist.all_to_all_single(torch.empty(1024), data)
        # Unequal shares: rank 0 sends 256 and 768, rank 1 sends 512 and 512.
        send = [256, 768] if rank == 0 else [512, 512]
        receive = [256, 512] if rank == 0 else [768, 512]
        dist.all_to_all_single(torch.empty(sum(receive)), data, receive, send)
        if rank == 0:
            dist.send(data, 1)
        else:
            dist.recv(data, 0)
        dist.barrier()
        pending = dist.all_reduce(data.double(), async_op=True)
        torch.mm(torch.randn(128, 128), torch.randn(128, 128))
        pending.wait()

    return step


def worker(rank, world, name, port, out):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    step = {"ddp": ddp, "fsdp": fsdp, "ops": ops}[name.rstrip("0123456789")](rank)
    path = os.path.join(out, f"{name}_rank{rank}.json.gz")
    with profile(
        activities=[ProfilerActivity.CPU],
        record_shapes=True,
        schedule=schedule(wait=1, warmup=1, active=STEPS, repeat=1),
        on_trace_ready=lambda trace: trace.export_chrome_trace(path),
    ) as profiler:
        for _ in range(2 + STEPS):
            step()
            profiler.step()
    dist.barrier()
    dist.destroy_process_group()


def main():
    out = sys.argv[1]
    os.makedirs(out, exist_ok=True)
    for port, (name, world) in enumerate([("ddp2", 2), ("ddp4", 4), ("fsdp2", 2), ("ops2", 2)], start=29611):
        try:
            mp.spawn(worker, args=(world, name, port, out), nprocs=world, join=True)
        except Exception as error:  # One kind may not run in some version; the others still are of use.
            print(f"{name}: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
