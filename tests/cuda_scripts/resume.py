"""Checkpoints: trained, saved, and resumed with every form of map_location, on GPU 0 by number."""

import os
import tempfile

import torch
from torch import nn


def step(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


def make():
    model = nn.Linear(4, 3).cuda(0)
    return model, torch.optim.Adam(model.parameters(), lr=0.1)


def main():
    torch.cuda.set_device(0)
    gpu = torch.cuda.current_device()
    torch.manual_seed(3)
    model, optimizer = make()
    x = torch.randn(5, 4).cuda(gpu, non_blocking=True)
    for _ in range(3):
        step(model, optimizer, x)
    state = {
        "epoch": 3,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "best": torch.tensor(0.5, device="cuda"),
        "rng": torch.cuda.get_rng_state(),
    }
    path = os.path.join(tempfile.mkdtemp(), "checkpoint.pth.tar")
    torch.save(state, path)
    want = [step(model, optimizer, x) for _ in range(3)]

    locations = [
        None,
        "cuda",
        "cuda:0",
        f"cuda:{gpu}",
        torch.device("cuda"),
        torch.device("cuda:0"),
        {"cuda:1": "cuda:0"},
    ]
    for where in [*locations, lambda storage, loc: storage.cuda(gpu), "cpu", lambda storage, loc: storage]:
        checkpoint = torch.load(path, map_location=where, weights_only=True)
        on_cpu = where == "cpu" or (callable(where) and where is not None and "gpu" not in where.__code__.co_freevars)
        for tensor in [checkpoint["best"], *checkpoint["model"].values()]:
            assert tensor.is_cuda != on_cpu, (where, tensor.device)
        model, optimizer = make()
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        torch.cuda.set_rng_state(checkpoint["rng"].cpu())
        got = [step(model, optimizer, x) for _ in range(3)]
        assert got == want, (where, got, want)
    print("resumed", len(locations) + 3)


if __name__ == "__main__":
    main()
