#!/usr/bin/env python3
"""Tensor and pipeline parallel training of the network of `bench` in PyTorch, as the reference for `bench --parallel`.

  python3 -m torch.distributed.run --standalone --nproc-per-node 2 parallel_torch.py --modes bf16,tf32 --batches 1024,8192

Tensor: torch.distributed.tensor.parallel; layers in pairs, the first split by outputs, the second by inputs. Pipeline:
torch.distributed.pipelining, 1F1B, two stages, split so that the larger stage has as few FLOPs as possible. The batch is
the global batch, as in `bench`. Rank 0 prints one line per case: milliseconds per step (median of the blocks).
"""
import argparse
import contextlib
import os
import statistics
import time

import torch
import torch.distributed
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from train_step_torch import LEARNING_RATE, WARM_UP_STEPS, modes, multilayer_perceptron, numbers


class Autocast(nn.Module):
    """Layers that run their GEMMs in bf16 if the mode requires it."""

    def __init__(self, layers, device, mode):
        super().__init__()
        self.layers, self.device, self.mode = layers, device, mode

    def forward(self, x):
        with torch.autocast(self.device.type, dtype=torch.bfloat16) if self.mode == "bf16" else contextlib.nullcontext():
            return self.layers(x)


def loss(outputs, targets):
    return nn.functional.mse_loss(outputs.float(), targets)


def second_stage(neurons):
    """Index of the first layer of the second stage."""
    work = [inputs * outputs for inputs, outputs in zip(neurons, neurons[1:])]
    return min(range(1, len(work)), key=lambda cut: max(sum(work[:cut]), sum(work[cut:])))


class Tensor:
    name = "tensor"

    def __init__(self, place, arguments, mode, batch):
        layers = multilayer_perceptron(arguments.layers).to(place.device)
        linear = [name for name, layer in layers.named_children() if isinstance(layer, nn.Linear)]
        plan = {name: RowwiseParallel() if number % 2 else ColwiseParallel() for number, name in enumerate(linear)}
        mesh = init_device_mesh(place.device.type, (place.size,))
        self.network = Autocast(parallelize_module(layers, mesh, plan), place.device, mode)
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=LEARNING_RATE, foreach=True)
        generator = torch.Generator(place.device).manual_seed(1)  # all ranks hold the global batch
        self.x = torch.randn(batch * place.size, arguments.layers[0], device=place.device, generator=generator)
        self.y = torch.randn(batch * place.size, arguments.layers[-1], device=place.device, generator=generator)

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss(self.network(self.x), self.y).backward()
        self.optimizer.step()


class Pipeline:
    name = "pipeline"

    def __init__(self, place, arguments, mode, batch):
        layers = multilayer_perceptron(arguments.layers)
        cut = 2 * second_stage(arguments.layers)  # each layer is followed by a ReLU
        stage = Autocast(layers[:cut] if place.rank == 0 else layers[cut:], place.device, mode).to(place.device)
        self.rank = place.rank
        self.optimizer = torch.optim.SGD(stage.parameters(), lr=LEARNING_RATE, fused=place.device.type == "cuda")
        self.schedule = Schedule1F1B(PipelineStage(stage, place.rank, place.size, place.device), arguments.micro_batches,
                                     loss_fn=loss)
        self.x = torch.randn(batch * place.size, arguments.layers[0], device=place.device)
        self.y = torch.randn(batch * place.size, arguments.layers[-1], device=place.device)

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        if self.rank == 0:
            self.schedule.step(self.x)
        else:
            self.schedule.step(target=self.y)
        self.optimizer.step()


class Place:
    """Rank, device and process group of this process; uses gloo if the host has no GPU."""

    def __init__(self):
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        torch.distributed.init_process_group("nccl" if self.device.type == "cuda" else "gloo")

    def synchronize(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        torch.distributed.barrier()


def block_ms(place, training, steps):
    place.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        training.step()
    place.synchronize()
    return (time.perf_counter() - start) * 1e3 / steps


def measure(place, arguments, kind, mode, batch):
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = mode == "tf32"
    training = kind(place, arguments, mode, batch)
    block_ms(place, training, WARM_UP_STEPS)
    ms = statistics.median(block_ms(place, training, arguments.steps) for _ in range(arguments.blocks))
    if place.rank == 0:
        print(f"TORCH plan={kind.name} mode={mode} ranks={place.size} batch_per_rank={batch} step_ms={ms:.3f} "
              f"samples_per_s={batch * place.size / ms * 1e3:.0f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description="Tensor and pipeline parallel training in PyTorch")
    parser.add_argument("--layers", type=numbers, default=[4096, 8192, 6144, 4096, 2048, 1024, 512])
    parser.add_argument("--batches", type=numbers, default=[1024, 8192], help="samples per rank")
    parser.add_argument("--modes", type=modes, default=["tf32", "bf16"])
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--steps", type=int, default=20, help="in a block")
    parser.add_argument("--blocks", type=int, default=5)
    arguments = parser.parse_args()
    place = Place()
    kinds = [Tensor, Pipeline] if place.size == 2 else [Tensor]
    for mode in arguments.modes:
        for batch in arguments.batches:
            for kind in kinds:
                measure(place, arguments, kind, mode, batch)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
