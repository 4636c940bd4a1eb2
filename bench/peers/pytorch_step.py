#!/usr/bin/env python3
"""The training step of `paceline bench step` in PyTorch: the same networks, batch, optimizer, threads and precision.

Prints one JSON object: {"seconds": the median time of a step, "torch": version}. Modes: eager; eager-no-mkldnn (convolutions through im2col and
BLAS); graph (the whole step captured in a CUDA graph).
"""
import argparse
import json
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F


class LeNet5(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))


class Block(nn.Module):
    def __init__(self, width_in, width, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width_in, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        self.shortcut = nn.Identity() if stride == 1 and width_in == width else nn.Sequential(
            nn.Conv2d(width_in, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x), inplace=True)


class ResNet18(nn.Module):
    """For 32x32 images: a 3x3 stem and no first pooling."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64)
        blocks, width_in = [], 64
        for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            blocks += [Block(width_in, width, stride), Block(width, width, 1)]
            width_in = width
        self.blocks, self.fc = nn.Sequential(*blocks), nn.Linear(512, 10)

    def forward(self, x):
        x = self.blocks(F.relu(self.bn1(self.conv1(x)), inplace=True))
        return self.fc(x.mean((2, 3)))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, time_, width = x.shape
        q, k, v = (t.view(batch, time_, self.heads, -1).transpose(1, 2) for t in self.qkv(x).split(width, 2))
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mask = torch.ones(time_, time_, dtype=torch.bool, device=x.device).triu(1)
            scores = (q @ k.transpose(-2, -1)) * (q.size(-1) ** -0.5)
            y = F.softmax(scores.masked_fill(mask, float("-inf")), -1) @ v
        return self.out(y.transpose(1, 2).reshape(batch, time_, width))


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln1, self.attention, self.ln2 = nn.LayerNorm(width), Attention(width, heads), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.ln1(x))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, vocabulary=65, context=128, layers=4, width=128, heads=4):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Parameter(torch.zeros(context, width))
        self.blocks = nn.Sequential(*(GptBlock(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.tokens(x) + self.positions)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", choices=["lenet5", "resnet18", "gpt"], required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--mode", choices=["eager", "eager-no-mkldnn", "graph"], default="eager")
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    cuda = options.device.startswith("cuda")
    if options.mode == "eager-no-mkldnn":
        torch._C._set_mkldnn_enabled(False)
    if cuda:
        torch.backends.cudnn.benchmark = True
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = options.precision != "fp32"

    device = torch.device(options.device)
    model = {"lenet5": LeNet5, "resnet18": ResNet18, "gpt": Gpt}[options.network]().to(device)
    if options.network == "gpt":
        inputs = torch.randint(65, (options.batch, 128), device=device)
        targets = torch.randint(65, (options.batch, 128), device=device)
        make = lambda **extra: torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.0, **extra)
    else:
        shape = (1, 28, 28) if options.network == "lenet5" else (3, 32, 32)
        inputs = torch.randn(options.batch, *shape, device=device)
        targets = torch.randint(10, (options.batch,), device=device)
        make = lambda **extra: torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9, **extra)
        if cuda:
            model, inputs = model.to(memory_format=torch.channels_last), inputs.to(memory_format=torch.channels_last)
    # AdamW counts its steps, and in a graph the count has to live on the GPU. SGD has no such option and needs none.
    in_graph = {"capturable": True} if options.network == "gpt" and options.mode == "graph" else {}
    try:
        optimizer = make(fused=True, **in_graph) if cuda else make()
    except (TypeError, RuntimeError):  # a version without fused optimizers
        optimizer = make(**in_graph)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=options.precision == "bf16"):
            logits = model(inputs)
            loss = F.cross_entropy(logits.flatten(0, -2).float(), targets.flatten())
        loss.backward()
        optimizer.step()

    if options.mode == "graph":
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(5):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        run = graph.replay
    else:
        run = step

    for _ in range(5):
        run()
    chunk, times = (50 if cuda else 1), []
    began = time.perf_counter()
    while time.perf_counter() - began < 1.0 or len(times) < 3:
        if cuda:
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(chunk):
            run()
        if cuda:
            torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / chunk)
    print(json.dumps({"seconds": statistics.median(times), "torch": torch.__version__}))


if __name__ == "__main__":
    main()
