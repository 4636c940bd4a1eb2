#!/usr/bin/env python3
"""The training step of `paceline bench step` in PyTorch: the same networks, batch, optimizer, threads and precision.

Prints one JSON object: {"seconds": the median time of a step, "memory_gb": what a GPU's allocator took, "torch": version}. Modes: eager;
eager-no-mkldnn (convolutions through im2col and BLAS); graph (the whole step captured in a CUDA graph); compile (torch.compile).
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


class Bottleneck(nn.Module):
    def __init__(self, width_in, width, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width_in, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.shortcut = nn.Identity() if stride == 1 and width_in == 4 * width else nn.Sequential(
            nn.Conv2d(width_in, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu(self.bn2(self.conv2(y)), inplace=True)
        return F.relu(self.bn3(self.conv3(y)) + self.shortcut(x), inplace=True)


class ResNet50(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        blocks, width_in = [], 64
        for width, stride, count in ((64, 1, 3), (128, 2, 4), (256, 2, 6), (512, 2, 3)):
            for i in range(count):
                blocks.append(Bottleneck(width_in, width, stride if i == 0 else 1))
                width_in = 4 * width
        self.blocks, self.fc = nn.Sequential(*blocks), nn.Linear(2048, 1000)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x)), inplace=True), 3, 2, 1)
        return self.fc(self.blocks(x).mean((2, 3)))


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
    def __init__(self, vocabulary=65, context=128, layers=4, width=128, heads=4, tied=False):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Parameter(torch.zeros(context, width))
        self.blocks = nn.Sequential(*(GptBlock(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, x):
        return self.head(self.norm(self.blocks(self.tokens(x) + self.positions)))


def gpt2(context):
    return Gpt(50304, context, 12, 768, 12, tied=True)


NETWORKS = {"lenet5": LeNet5, "resnet18": ResNet18, "resnet50": ResNet50, "gpt": Gpt, "gpt2": lambda: gpt2(1024), "gpt2_8192": lambda: gpt2(8192)}
TOKENS = {"gpt": (65, 128), "gpt2": (50304, 1024), "gpt2_8192": (50304, 8192)}  # vocabulary, context
IMAGES = {"lenet5": (10, 1, 28, 28), "resnet18": (10, 3, 32, 32), "resnet50": (1000, 3, 224, 224)}  # classes, shape


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", choices=list(NETWORKS), required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--mode", choices=["eager", "eager-no-mkldnn", "graph", "compile"], default="eager")
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
    model = NETWORKS[options.network]().to(device)
    tokens = options.network in TOKENS
    if tokens:
        vocabulary, context = TOKENS[options.network]
        inputs = torch.randint(vocabulary, (options.batch, context), device=device)
        targets = torch.randint(vocabulary, (options.batch, context), device=device)
        make = lambda **extra: torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.0, **extra)
    else:
        classes, *shape = IMAGES[options.network]
        inputs = torch.randn(options.batch, *shape, device=device)
        targets = torch.randint(classes, (options.batch,), device=device)
        make = lambda **extra: torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9, **extra)
        if cuda:
            model, inputs = model.to(memory_format=torch.channels_last), inputs.to(memory_format=torch.channels_last)
    # AdamW counts its steps, and in a graph the count has to live on the GPU. SGD has no such option and needs none.
    in_graph = {"capturable": True} if tokens and options.mode == "graph" else {}
    try:
        optimizer = make(fused=True, **in_graph) if cuda else make()
    except (TypeError, RuntimeError):  # a version without fused optimizers
        optimizer = make(**in_graph)

    def loss_of():
        with torch.autocast(device.type, torch.bfloat16, enabled=options.precision == "bf16"):
            logits = model(inputs)
            return F.cross_entropy(logits.flatten(0, -2).float(), targets.flatten())

    if options.mode == "compile":
        loss_of = torch.compile(loss_of)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss_of().backward()
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
    chunk, times = (20 if cuda else 1), []
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
    memory = torch.cuda.max_memory_reserved() / 1e9 if cuda else 0
    print(json.dumps({"seconds": statistics.median(times), "memory_gb": memory, "torch": torch.__version__}))


if __name__ == "__main__":
    main()
