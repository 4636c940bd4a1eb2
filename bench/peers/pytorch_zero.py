#!/usr/bin/env python3
"""The gpt of `paceline bench zero` in PyTorch, by processes over Gloo on the CPU: DistributedDataParallel, the same with
ZeroRedundancyOptimizer (stage 1), and FullyShardedDataParallel (stage 3), set up side by side and measured in alternating rounds.

Prints one JSON object: {"torch": version, "modes": {mode: {"seconds": of a step, by round} or {"reason": why this PyTorch cannot}}}.
"""
import argparse
import json
import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from pytorch_ddp import keep_to_cores
from pytorch_step import Gpt, GptBlock

RATE = 1e-4


def ddp(model):
    model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    return model, torch.optim.AdamW(model.parameters(), RATE)


def zero_redundancy(model):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    return model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, parameters_as_bucket_view=True, lr=RATE)


def fsdp(model):
    import functools

    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={GptBlock})
    model = FullyShardedDataParallel(model, auto_wrap_policy=policy, device_id=torch.device("cpu"))
    return model, torch.optim.AdamW(model.parameters(), RATE)


MODES = {"ddp": ddp, "zero_redundancy_optimizer": zero_redundancy, "fsdp": fsdp}


def work(rank, options, meeting_place, results):
    keep_to_cores(rank, options.workers)
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    dist.init_process_group("gloo", init_method=f"file://{meeting_place}", rank=rank, world_size=options.workers)
    torch.manual_seed(rank)
    inputs = torch.randint(options.vocabulary, (options.batch, options.positions))
    targets = torch.randint(options.vocabulary, (options.batch, options.positions))
    found, steps = {}, {}

    def step_of(model, optimizer):
        def step():
            optimizer.zero_grad(set_to_none=False)
            F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten()).backward()
            optimizer.step()
        return step

    for mode, make in MODES.items():
        problem = ""
        try:
            step = step_of(*make(Gpt(options.vocabulary, options.positions, options.layers, options.width, 4)))
            step()
            steps[mode] = step
        except Exception as error:  # a version that cannot: all ranks find the same
            problem = f"{type(error).__name__}: {error}".splitlines()[0][:160]
        found[mode] = {"reason": problem} if problem else {"seconds": []}

    for _ in range(options.rounds):
        for mode, step in steps.items():
            dist.barrier()
            began = time.perf_counter()
            for _ in range(options.steps):
                step()
            dist.barrier()
            found[mode]["seconds"].append((time.perf_counter() - began) / options.steps)
    if rank == 0:
        results.put({"torch": torch.__version__, "modes": found})
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("workers", "layers", "width", "vocabulary", "positions", "batch", "steps", "rounds"):
        parser.add_argument(f"--{name}", type=int, required=True)
    options = parser.parse_args()
    results = mp.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (options, os.path.join(folder, "meeting"), results), options.workers)
    print(json.dumps(results.get()))


if __name__ == "__main__":
    main()
