#!/usr/bin/env python3
"""The training step of train_step.cpp in PyTorch, as the reference for comparison.

  python3 train_step_torch.py --modes tf32,bf16 --batches 1024,8192
  python3 -m torch.distributed.run --standalone --nproc-per-node 4 train_step_torch.py      (DistributedDataParallel)

Modes: fp32; tf32 (GEMMs only); bf16 (autocast with fp32 weights, as in this program); pure_bf16 (weights, gradients and update
in bf16). --compile uses torch.compile in mode reduce-overhead. Rank 0 prints one line per case: milliseconds per step (median
of the blocks), TFLOP/s per GPU, samples/s of all ranks.
"""
import argparse
import contextlib
import os
import statistics
import time

import torch
import torch.distributed
from torch import nn

WARM_UP_STEPS = 15
LEARNING_RATE = 1e-3


class Ranks:
    """Rank, device and process group (if there are several ranks) of this process."""

    def __init__(self):
        self.rank = int(os.environ.get("RANK", "0"))
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        self.device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(self.device)
        if self.size > 1:
            torch.distributed.init_process_group("nccl", device_id=self.device)

    def share(self, network):
        """The network in DistributedDataParallel: gradients are averaged over ranks during the backward pass."""
        if self.size == 1:
            return network
        return nn.parallel.DistributedDataParallel(network, device_ids=[self.device.index], gradient_as_bucket_view=True)

    def barrier(self):
        if self.size > 1:
            torch.distributed.barrier()

    def close(self):
        if self.size > 1:
            torch.distributed.destroy_process_group()


def multilayer_perceptron(neurons):
    """Linear layers with a ReLU after each one except the last."""
    network = nn.Sequential()
    for inputs, outputs in zip(neurons, neurons[1:]):
        network.append(nn.Linear(inputs, outputs))
        network.append(nn.ReLU())
    return network[:-1]


def flops_per_sample(neurons):
    """FLOPs of the GEMMs: forward, weight gradients, and input gradients of all layers except the first."""
    products = [inputs * outputs for inputs, outputs in zip(neurons, neurons[1:])]
    return 2 * (3 * sum(products) - products[0])


class Training:
    """One network, its optimizer and one batch, in one mode."""

    def __init__(self, ranks, neurons, batch, mode, compiled):
        torch.manual_seed(1 + ranks.rank)
        torch.backends.cuda.matmul.allow_tf32 = mode == "tf32"
        dtype = torch.bfloat16 if mode == "pure_bf16" else torch.float32
        network = multilayer_perceptron(neurons).to(ranks.device, dtype)
        self.network = ranks.share(network)
        if compiled:
            self.network = torch.compile(self.network, mode="reduce-overhead")
        self.optimizer = torch.optim.SGD(network.parameters(), lr=LEARNING_RATE, fused=True)
        self.inputs = torch.randn(batch, neurons[0], device=ranks.device, dtype=dtype)
        self.targets = torch.randn(batch, neurons[-1], device=ranks.device, dtype=dtype)
        self.autocast = mode == "bf16"

    def step(self):
        precision = torch.autocast("cuda", dtype=torch.bfloat16) if self.autocast else contextlib.nullcontext()
        self.optimizer.zero_grad(set_to_none=True)
        with precision:
            loss = nn.functional.mse_loss(self.network(self.inputs), self.targets)
        loss.backward()
        self.optimizer.step()

    def block_ms(self, steps):
        """Milliseconds per step by the host clock, idle before and after."""
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(steps):
            self.step()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) * 1e3 / steps


def measure(ranks, arguments, mode, batch):
    training = Training(ranks, arguments.layers, batch, mode, arguments.compile)
    training.block_ms(WARM_UP_STEPS)
    blocks = []
    for _ in range(arguments.blocks):
        ranks.barrier()
        blocks.append(training.block_ms(arguments.steps))
    if ranks.rank != 0:
        return
    ms = statistics.median(blocks)
    print(f"TORCH mode={mode} how={'compiled' if arguments.compile else 'eager'} ranks={ranks.size} batch_per_rank={batch} step_ms={ms:.3f} "
          f"tflops_per_rank={flops_per_sample(arguments.layers) * batch / ms / 1e9:.2f} "
          f"samples_per_s={batch * ranks.size / ms * 1e3:.0f}", flush=True)


def numbers(text):
    return [int(number) for number in text.split(",")]


def modes(text):
    names = text.split(",")
    unknown = set(names) - {"fp32", "tf32", "bf16", "pure_bf16"}
    if unknown:
        raise argparse.ArgumentTypeError(f"no such mode: {', '.join(sorted(unknown))}; allowed: fp32, tf32, bf16, pure_bf16")
    return names


def parse_arguments():
    parser = argparse.ArgumentParser(description="The training step in PyTorch")
    parser.add_argument("--layers", type=numbers, default=[4096, 8192, 6144, 4096, 2048, 1024, 512])
    parser.add_argument("--batches", type=numbers, default=[1024, 8192], help="samples per rank")
    parser.add_argument("--modes", type=modes, default=["tf32", "bf16"])
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--steps", type=int, default=40, help="in a block")
    parser.add_argument("--blocks", type=int, default=5)
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    ranks = Ranks()
    for mode in arguments.modes:
        for batch in arguments.batches:
            measure(ranks, arguments, mode, batch)
            torch.cuda.empty_cache()
    ranks.close()


if __name__ == "__main__":
    main()
