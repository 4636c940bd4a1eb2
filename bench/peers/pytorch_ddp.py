#!/usr/bin/env python3
"""The training step of `paceline bench train` in PyTorch: the same networks, batch, optimizer and threads, by processes over Gloo.

Several workers are a DistributedDataParallel with gradient_as_bucket_view=True; one worker is the plain module. Prints one JSON object:
{"seconds": the mean time of a step, "parameters": of the network, "torch": version}.
"""
import argparse
import json
import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from pytorch_step import ResNet18

WARM_UP = 3  # steps; DDP arranges its buckets anew after the first
FEWEST = 3  # steps that are measured


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(3072, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10))


def cnn():
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(4096, 512), nn.ReLU(), nn.Linear(512, 10))


NETWORKS = {"mlp": mlp, "cnn": cnn, "resnet18": ResNet18}


def keep_to_cores(index, parts):
    """As Paceline's workers: each on its own part of the cores, where there are enough."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) >= parts:
        os.sched_setaffinity(0, cores[len(cores) * index // parts:len(cores) * (index + 1) // parts])


def work(rank, options, meeting_place, results):
    if options.pin:
        keep_to_cores(rank, max(options.workers, 2))
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    if options.mode == "no-onednn":
        torch._C._set_mkldnn_enabled(False)
    torch.manual_seed(rank)
    model = NETWORKS[options.network]()
    parameters = sum(tensor.numel() for tensor in model.parameters())
    together = options.workers > 1
    if together:
        dist.init_process_group("gloo", init_method=f"file://{meeting_place}", rank=rank, world_size=options.workers)
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    inputs, targets = torch.randn(options.batch, 3, 32, 32), torch.randint(10, (options.batch,))

    def seconds_of(steps):
        if together:
            dist.barrier()
        began = time.perf_counter()
        for _ in range(steps):
            optimizer.zero_grad(set_to_none=options.set_to_none or not together)
            F.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
        if together:
            dist.barrier()
        return (time.perf_counter() - began) / steps

    seconds_of(WARM_UP)
    steps = torch.tensor([max(FEWEST, round(options.seconds / seconds_of(1)))])
    if together:
        dist.broadcast(steps, 0)  # all make the same number
    seconds = seconds_of(int(steps))
    if rank == 0:
        results.put({"seconds": seconds, "parameters": parameters, "torch": torch.__version__})
    if together:
        dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", choices=list(NETWORKS), required=True)
    parser.add_argument("--batch", type=int, required=True, help="of a worker")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of a worker")
    parser.add_argument("--seconds", type=float, default=1.5, help="how long to measure")
    parser.add_argument("--mode", choices=["default", "no-onednn"], default="default")
    parser.add_argument("--pin", action="store_true", help="keep each worker to its part of the cores, as Paceline does")
    parser.add_argument("--set-to-none", action="store_true", help="drop DDP's gradients between steps instead of zeroing them")
    options = parser.parse_args()
    results = mp.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (options, os.path.join(folder, "meeting"), results), options.workers)
    print(json.dumps(results.get()))


if __name__ == "__main__":
    main()
