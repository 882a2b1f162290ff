#!/usr/bin/env python3
"""The twelve network tests of `loadtest` in PyTorch on one GPU, as the reference for comparison.

  python3 load_test_torch.py [--precision tf32|fp32|bf16] [--image-size 224] [--iterations 50]

Prints one line per test: samples per second, eager and with torch.compile (mode reduce-overhead). bf16 is autocast.
Images are NCHW and do not change. Loss, optimizer and sizes are those of `loadtest`.
"""
import argparse
import contextlib
import time

import torch
from torch import nn

CLASSES = 1000
WARM_UP = 10


class SimpleCnn(nn.Module):
    def __init__(self, pixels):
        super().__init__()
        layers, channels = [], 3
        for outputs in (32, 64, 128):
            layers += [nn.Conv2d(channels, outputs, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
            channels = outputs
        side = pixels // 8
        self.layers = nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * side * side, 512), nn.ReLU(), nn.Linear(512, CLASSES))

    def forward(self, x):
        return self.layers(x)


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        skip = x if self.downsample is None else self.downsample(x)
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + skip)


class ResNet18(nn.Module):
    def __init__(self):
        super().__init__()
        blocks, channels = [], 64
        for stage, outputs in enumerate((64, 128, 256, 512)):
            blocks += [Block(channels, outputs, 2 if stage else 1), Block(outputs, outputs, 1)]
            channels = outputs
        self.layers = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *blocks,
                                    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, CLASSES))

    def forward(self, x):
        return self.layers(x)


def samples_per_second(network, batch, trains, compiled, options):
    network = network.cuda().train(trains)
    x = torch.randn(batch, 3, options.image_size, options.image_size, device="cuda")
    y = torch.randint(0, CLASSES, (batch,), device="cuda")
    optimizer = torch.optim.SGD(network.parameters(), 0.01, momentum=0.9)
    loss = nn.CrossEntropyLoss()
    run = torch.compile(network, mode="reduce-overhead") if compiled else network
    cast = (lambda: torch.autocast("cuda", torch.bfloat16)) if options.precision == "bf16" else contextlib.nullcontext

    def step():
        with cast(), contextlib.nullcontext() if trains else torch.no_grad():
            outputs = run(x)
            if trains:
                value = loss(outputs, y)
        if trains:
            optimizer.zero_grad(set_to_none=True)
            value.backward()
            optimizer.step()

    for _ in range(WARM_UP):
        step()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(options.iterations):
        step()
    torch.cuda.synchronize()
    return batch * options.iterations / (time.perf_counter() - began)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16"), default="tf32")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--iterations", type=int, default=50)
    parser.add_argument("--no-compile", action="store_true")
    options = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = options.precision == "tf32"
    for verb, trains in (("train", True), ("infer", False)):
        for name, make, batches in (("simple_cnn", lambda: SimpleCnn(options.image_size), (16, 32, 64)), ("resnet18", ResNet18, (8, 16, 32))):
            for batch in batches:
                for how in ("eager",) if options.no_compile else ("eager", "compile"):
                    torch.compiler.reset()
                    rate = samples_per_second(make(), batch, trains, how == "compile", options)
                    print(f"TORCH test={verb}_{name}_bs{batch} how={how} samples_per_second={rate:.6g}", flush=True)


if __name__ == "__main__":
    main()
