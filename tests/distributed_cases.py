"""`python distributed_cases.py RANK FILE DEVICE [CASE...]`: one of two processes.

It prints what went wrong per case, "" where nothing did.

A case gives tensors, which must be those of the same case on the CPU.
"""

from __future__ import annotations

import json
import sys
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_gather_tensor, all_reduce, reduce_scatter_tensor
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

import torch_fl  # noqa: F401

CASES: dict[str, Callable[[str, int], Any]] = {}


def case(fn: Callable[[str, int], Any]) -> Callable[[str, int], Any]:
    CASES[fn.__name__] = fn
    return fn


def _mine(device: str, rank: int, n: int = 4) -> torch.Tensor:
    return (torch.arange(float(n)) + 10 * rank).to(device)


@case
def reduce_in_place(device: str, rank: int) -> Any:
    x, low, half = _mine(device, rank), _mine(device, rank).long(), _mine(device, rank).half()
    dist.all_reduce(x)
    dist.all_reduce(low, op=dist.ReduceOp.MIN)
    dist.all_reduce(half, op=dist.ReduceOp.MAX)
    return x, low, half


@case
def whoever_waits_finds_it(device: str, rank: int) -> Any:
    x = _mine(device, rank)
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    later = dist.all_reduce(y := _mine(device, rank), async_op=True).get_future().then(lambda f: f.value()[0] * 2)
    return x, later.wait(), y


@case
def a_view_that_is_not_row_major(device: str, rank: int) -> Any:
    """gloo alone would take a column for a row."""
    x = torch.zeros(3, 4, device=device)
    column = x[:, rank : rank + 1].fill_(1.0).t()
    part = column.contiguous() if device == "cpu" else column
    dist.all_reduce(part)
    column.copy_(part)
    dist.broadcast(x[1], 1)
    return x


@case
def gathering(device: str, rank: int) -> Any:
    lists = [torch.zeros(4, device=device) for _ in range(2)]
    dist.all_gather(lists, _mine(device, rank))
    flat = torch.zeros(8, device=device)
    dist.all_gather_into_tensor(flat, _mine(device, rank))
    last = [torch.zeros(4, device=device) for _ in range(2)] if rank == 1 else None
    dist.gather(_mine(device, rank), last, dst=1)
    return lists, flat, last


@case
def scattering(device: str, rank: int) -> Any:
    part, piece, sent = (torch.zeros(2, device=device) for _ in range(3))
    dist.reduce_scatter_tensor(part, _mine(device, rank))
    dist.scatter(piece, list(_mine(device, 3).view(2, 2)) if rank == 0 else None, src=0)
    dist.reduce(whole := _mine(device, rank), 0)
    dist.all_to_all_single(both := torch.zeros(4, device=device), _mine(device, rank))
    if rank == 0:
        dist.send(_mine(device, 7, 2), 1)
    else:
        dist.recv(sent, 0)
    return part, piece, whole if rank == 0 else None, both, sent


@case
def both_send_and_receive(device: str, rank: int) -> Any:
    got = torch.zeros(4, device=device)
    works = [dist.irecv(got, 1 - rank), dist.isend(_mine(device, rank), 1 - rank)]
    for work in works:
        work.wait()
    again = torch.zeros(4, device=device)
    ops = [dist.P2POp(dist.isend, got, 1 - rank), dist.P2POp(dist.irecv, again, 1 - rank)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return got, again


@case
def functional_collectives(device: str, rank: int) -> Any:
    x, group = _mine(device, rank), dist.group.WORLD
    shared = all_reduce(x, "sum", group) + 1, all_gather_tensor(x, 0, group) + 1
    return *shared, reduce_scatter_tensor(x, "max", 0, group) + 1


@case
def objects_and_barriers(device: str, rank: int) -> Any:
    found: list[Any] = [None, None]
    dist.all_gather_object(found, _mine(device, rank).cpu())
    dist.barrier()
    dist.monitored_barrier()
    return found


def _model(device: str, norm: bool = False) -> torch.nn.Module:
    torch.manual_seed(0)
    between = torch.nn.BatchNorm1d(8) if norm else torch.nn.Identity()
    return torch.nn.Sequential(torch.nn.Linear(4, 8), between, torch.nn.Tanh(), torch.nn.Linear(8, 2)).to(device)


def _train(model: torch.nn.Module, device: str, rank: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(1 + rank)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(6, 4).to(device)).square().mean().backward()
        optimizer.step()


def _parallel(**options: Any) -> Callable[[str, int], Any]:
    def train(device: str, rank: int) -> Any:
        model = _model(device, norm=True)
        _train(DistributedDataParallel(model, **options), device, rank)
        return list(model.state_dict().values())

    return train


CASES["ddp"] = _parallel()
CASES["ddp_views_of_buckets"] = _parallel(gradient_as_bucket_view=True)
CASES["ddp_looking_for_unused"] = _parallel(find_unused_parameters=True)
CASES["ddp_static_graph"] = _parallel(static_graph=True)


@case
def ddp_compressed(device: str, rank: int) -> Any:
    model = _model(device)
    parallel = DistributedDataParallel(model)
    parallel.register_comm_hook(None, fp16_compress_hook)
    _train(parallel, device, rank)
    return list(model.parameters())


@case
def statistics_of_all(device: str, rank: int) -> Any:
    """SyncBatchNorm takes no CPU tensors: there one process sees the batches of both."""
    alone, norm = device == "cpu", torch.nn.BatchNorm2d(3).to(device)
    inputs, grads = torch.linspace(-1, 2, 120).view(2, 4, 3, 5, 1), torch.linspace(-2, 1, 120).sin().view(2, 4, 3, 5, 1)
    x = (inputs.flatten(0, 1) if alone else inputs[rank]).to(device).requires_grad_()
    y = (norm if alone else torch.nn.SyncBatchNorm.convert_sync_batchnorm(norm, dist.group.WORLD))(x)
    y.backward((grads.flatten(0, 1) if alone else grads[rank]).to(device))
    mine = slice(4 * rank, 4 * rank + 4) if alone else slice(None)
    return y[mine], x.grad[mine], norm.running_mean, norm.running_var


@case
def sharded_tensor(device: str, rank: int) -> Any:
    x = distribute_tensor(torch.arange(8.0, device=device).view(4, 2), init_device_mesh(device, (2,)), [Shard(0)])
    return (x @ x.t()).full_tensor()


@case
def fully_sharded(device: str, rank: int) -> Any:
    model = _model(device)
    fully_shard(model, mesh=init_device_mesh(device, (2,)))
    _train(model, device, rank)
    return [p.full_tensor() for p in model.parameters()]


@case
def fully_sharded_of_old(device: str, rank: int) -> Any:
    model = _model(device)
    sharded = FullyShardedDataParallel(model, device_id=torch.device(device), use_orig_params=True)
    _train(sharded, device, rank)
    with FullyShardedDataParallel.summon_full_params(sharded):
        return [p.detach().clone() for p in model.parameters()]


def _same(fn: Callable[[str, int], Any], device: str, rank: int) -> str:
    try:
        want = fn("cpu", rank)
        got = torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.cpu(), fn(device, rank))
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    except Exception:  # noqa: BLE001 - told as a result
        return traceback.format_exc()
    return ""


def main(rank: int, file: str, device: str, *names: str) -> None:
    warnings.simplefilter("ignore")
    backend = "nccl" if device == "cuda" else "gloo"
    where: dict[str, Any] = {"init_method": f"file://{file}", "rank": rank, "world_size": 2}
    dist.init_process_group(backend, timeout=timedelta(seconds=60), **where)
    print(json.dumps({name: _same(fn, device, rank) for name, fn in CASES.items() if name in (names or CASES)}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
