#!/usr/bin/env python3
"""The gpt of `paceline bench memory` in PyTorch, by processes over Gloo on the CPU: what a rank holds at most under DistributedDataParallel,
the same with ZeroRedundancyOptimizer (stage 1), and FullyShardedDataParallel (stage 3). Each has processes of its own.

A process's peak of resident memory (VmHWM) during its steps, above what it held before the model was made: Python has no counters in its
allocations on the CPU. Prints one JSON object: {"torch": version, "modes": {mode: {"bytes": of the fullest rank} or {"reason": why this
PyTorch cannot}}}.
"""
import argparse
import json
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn import functional as F

from pytorch_ddp import keep_to_cores
from pytorch_step import Gpt
from pytorch_zero import MODES


def kilobytes(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name + ":"))


def forget_peak():
    with open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")


def work(rank, options, mode, meeting_place, results):
    keep_to_cores(rank, options.workers)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    dist.init_process_group("gloo", init_method=f"file://{meeting_place}", rank=rank, world_size=options.workers)
    torch.manual_seed(rank)
    inputs = torch.randint(options.vocabulary, (options.batch, options.positions))
    targets = torch.randint(options.vocabulary, (options.batch, options.positions))

    def step(model, optimizer):
        optimizer.zero_grad(set_to_none=False)
        F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten()).backward()
        optimizer.step()

    def made(layers):
        return MODES[mode](Gpt(options.vocabulary, options.positions, layers, options.width, options.heads))

    problem, grown = "", 0
    try:
        step(*made(1))  # what the libraries bring into memory is not the model's
        before = kilobytes("VmRSS")
        model, optimizer = made(options.layers)
        step(model, optimizer)
        forget_peak()
        for _ in range(options.steps):
            step(model, optimizer)
        grown = kilobytes("VmHWM") - before
    except Exception as error:  # a version that cannot: all ranks find the same
        problem = f"{type(error).__name__}: {error}".splitlines()[0][:160]
    fullest = torch.tensor([grown])
    dist.all_reduce(fullest, dist.ReduceOp.MAX)
    if rank == 0:
        results.put({"reason": problem} if problem else {"bytes": 1024 * int(fullest)})
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("workers", "layers", "width", "heads", "vocabulary", "positions", "batch", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    options = parser.parse_args()
    results, found = mp.get_context("spawn").SimpleQueue(), {}
    for mode in MODES:
        with tempfile.TemporaryDirectory() as folder:
            mp.spawn(work, (options, mode, os.path.join(folder, "meeting"), results), options.workers)
        found[mode] = results.get()
    print(json.dumps({"torch": torch.__version__, "modes": found}))


if __name__ == "__main__":
    main()
