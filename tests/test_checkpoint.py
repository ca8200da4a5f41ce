"""Checkpoints: saved on a device, loaded anywhere; sharing, dtypes and modules survive, handles never travel."""

from __future__ import annotations

import copy
import io
import multiprocessing
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from subprocesses import output_of
from torch import nn

import torch_fl

DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool, torch.complex64, torch.complex128,
]  # fmt: skip


def _saved(value: Any, **options: Any) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(value, file, **options)
    file.seek(0)
    return file


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.usefixtures("allow_fallback")
def test_every_dtype_comes_back(device: torch.device, dtype: torch.dtype) -> None:
    value = torch.tensor([0, 1, 2, 3]).to(dtype)
    file = _saved(value.to(device))
    for where in (torch.device("cpu"), device):
        file.seek(0)
        loaded = torch.load(file, map_location=where)
        assert loaded.device == where
        assert torch.equal(loaded.cpu(), value)


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_views_share_their_storage_again(device: torch.device, zipped: bool) -> None:
    base = torch.arange(12.0, device=device).reshape(3, 4)
    views = {"base": base, "row": base[1], "turned": base.t()[1:3], "wide": base[0, :1].expand(5)}
    for where in ("cpu", device):
        loaded = torch.load(_saved(views, _use_new_zipfile_serialization=zipped), map_location=where)
        for name, view in views.items():
            assert loaded[name].stride() == view.stride()
            torch.testing.assert_close(loaded[name].cpu(), view.cpu())
        loaded["base"][1, 2] = 99
        assert loaded["row"][2] == 99
        assert loaded["turned"][1, 1] == 99
        assert len({v.untyped_storage().data_ptr() for v in loaded.values()}) == 1


def test_the_copy_in_a_file_is_of_its_time(device: torch.device) -> None:
    x = torch.zeros(3, device=device)
    kept = pickle.dumps(x)
    x.fill_(1)
    assert pickle.loads(pickle.dumps(x)).tolist() == [1, 1, 1]
    assert pickle.loads(kept).tolist() == [0, 0, 0]


def test_tied_weights_stay_tied(device: torch.device) -> None:
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5, bias=False))
    model[1].weight = model[0].weight
    torch_fl.virtualize(model, device)
    for where in ("cpu", device):
        state = torch.load(_saved(model.state_dict()), map_location=where)
        assert state["0.weight"].untyped_storage().data_ptr() == state["1.weight"].untyped_storage().data_ptr()
        whole = torch.load(_saved(model), map_location=where, weights_only=False)
        assert whole[1].weight is whole[0].weight
        assert whole[0].weight.device.type == torch.device(where).type


def test_parameters_gradients_flags_and_attributes(device: torch.device) -> None:
    weight = nn.Parameter(torch.ones(2, device=device), requires_grad=False)
    weight.note = "kept"  # type: ignore[attr-defined]
    x = torch.ones(2, device=device, requires_grad=True) * 2
    for where in ("cpu", device):
        loaded_weight, loaded_x = torch.load(_saved([weight, x]), map_location=where, weights_only=False)
        assert isinstance(loaded_weight, nn.Parameter)
        assert not loaded_weight.requires_grad
        assert loaded_weight.note == "kept"
        assert loaded_x.requires_grad
        assert loaded_x.is_leaf


@pytest.mark.device
def test_a_process_without_torch_fl_reads_all(tmp_path: Path, device: torch.device) -> None:
    torch.manual_seed(0)
    model = torch_fl.virtualize(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), device)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(5, 4)).sum().backward()
    optimizer.step()
    model.eval()
    wanted = model(torch.ones(1, 4)).detach().cpu()
    torch.save(model, tmp_path / "module.pt")
    torch.save({"m": model.state_dict(), "o": optimizer.state_dict()}, tmp_path / "state.pt")
    torch_fl.save({"m": model, "device": device, "nested": [device]}, tmp_path / "config.pt")
    output_of(
        f"""
import os; os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
import sys, torch
folder = {str(tmp_path)!r}
wanted = torch.tensor({wanted.tolist()})
model = torch.load(folder + "/module.pt", weights_only=False)
torch.testing.assert_close(model(torch.ones(1, 4)), wanted)
state = torch.load(folder + "/state.pt", weights_only=True)
model.load_state_dict(state["m"])
optimizer = torch.optim.Adam(model.parameters())
optimizer.load_state_dict(state["o"])
model(torch.ones(1, 4)).sum().backward()
optimizer.step()
config = torch.load(folder + "/config.pt", weights_only=False)
assert config["device"] == config["nested"][0] == torch.device("cpu")
torch.testing.assert_close(config["m"].eval()(torch.ones(1, 4)), wanted)
assert "torch_fl" not in sys.modules
"""
    )


def test_load_and_save_choose_the_device(tmp_path: Path, device: torch.device) -> None:
    assert torch.flagos.save is torch_fl.save  # type: ignore[attr-defined]
    torch_fl.save({"x": torch.arange(3, device=device), "lr": 0.1, "where": device}, tmp_path / "x.pt")
    with torch.device("cpu"):
        loaded = torch_fl.load(tmp_path / "x.pt", device)
    assert loaded["x"].device == device
    assert loaded["where"] == torch.device("cpu")
    assert torch_fl.load(tmp_path / "x.pt", "cpu")["x"].device.type == "cpu"
    assert torch_fl.load(tmp_path / "x.pt", device.index)["x"].device == device
    assert torch_fl.load(tmp_path / "x.pt")["x"].device == torch_fl.device()


def test_every_form_of_map_location(device: torch.device) -> None:
    file = _saved(torch.arange(3, device=device))
    places: list[Any] = [str(device), device, {"cpu": str(device)}, lambda s, _: s.to(device=device)]
    for place in places:
        file.seek(0)
        assert torch.load(file, map_location=place).device == device
    file.seek(0)
    with pytest.raises(RuntimeError, match="device 99"):
        torch.load(file, map_location="npu:99")


class _Hostile:
    def __reduce__(self) -> Any:
        return print, ("this must not run",)


def test_a_hostile_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"x": torch.ones(1), "bad": _Hostile()}, tmp_path / "bad.pt")
    for load in (torch_fl.load, torch.load):
        with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
            load(tmp_path / "bad.pt")
    assert "must not" not in capsys.readouterr().out


def test_safetensors(tmp_path: Path, device: torch.device) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5, bias=False))
    model[1].weight = model[0].weight
    model.to(device)
    with pytest.raises(RuntimeError, match="share memory"):
        safetensors.save_file(model.state_dict(), tmp_path / "shared.safetensors")
    safetensors.save_model(model, str(tmp_path / "m.safetensors"))
    twin = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)).to(device)
    twin[1].weight = twin[0].weight
    safetensors.load_model(twin, str(tmp_path / "m.safetensors"))
    torch.testing.assert_close(twin[1].weight, model[0].weight)
    loaded = safetensors.load_file(tmp_path / "m.safetensors", device=str(device))
    assert {t.device for t in loaded.values()} == {device}


def _double(connection: Any) -> None:
    found = connection.recv()
    connection.send((found.device.type, (found * 2).tolist()))


@pytest.mark.device
def test_another_process_gets_values(device: torch.device) -> None:
    here, there = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_double, args=(there,))
    process.start()
    here.send(torch.arange(3.0, device=device))
    answer = here.recv()
    process.join()
    assert answer == ("cpu", [0, 2, 4])


@pytest.mark.device
def test_workers_get_a_dataset_of_device_tensors(device: torch.device) -> None:
    data = torch.utils.data.TensorDataset(torch.arange(8.0, device=device))
    loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=1, multiprocessing_context="spawn")
    assert [b.tolist() for (b,) in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_deepcopy_moves_its_inputs_too(device: torch.device) -> None:
    model = torch_fl.virtualize(nn.Linear(2, 2), device)
    twin = copy.deepcopy(model)
    assert twin(torch.ones(1, 2)).device == device
    loaded = pickle.loads(pickle.dumps(model))
    assert loaded(torch.ones(1, 2)).device.type == "cpu"


class TestStorage:
    """Storages of device tensors do what users of storages ask for."""

    def test_it_is_the_bytes_that_views_share(self, device: torch.device) -> None:
        x = torch.arange(4, dtype=torch.int16, device=device)
        storage = x[2:].untyped_storage()
        assert storage is x.untyped_storage()
        assert (storage.device, storage.nbytes(), len(storage)) == (device, 8, 8)
        assert storage.tolist() == [0, 0, 1, 0, 2, 0, 3, 0]
        assert storage.cpu().tolist() == storage.clone().tolist() == storage.tolist()
        storage[0] = 7
        assert x[0] == 7
        assert storage[0] == 7
        storage.fill_(1)
        assert x.tolist() == [257] * 4
        storage.copy_(torch.zeros(4, dtype=torch.int16).untyped_storage())
        assert x.tolist() == [0] * 4

    def test_addresses_tell_what_shares_memory(self, device: torch.device) -> None:
        x, y = torch.zeros(4, device=device), torch.zeros(4, device=device)
        assert x.data_ptr() != y.data_ptr()
        assert x[1:].data_ptr() == x.data_ptr() + 4
        assert x.view(2, 2).data_ptr() == x.data_ptr() == x.untyped_storage().data_ptr()
        assert x[:0].data_ptr() == 0

    def test_made_without_a_tensor(self, device: torch.device) -> None:
        made = torch.UntypedStorage(12, device=device)
        assert (made.device, made.nbytes()) == (device, 12)
        moved = torch.arange(3).untyped_storage().to(device=device)
        assert torch.empty(0, dtype=torch.int64, device=device).set_(moved).tolist() == [0, 1, 2]

    def test_memory_given_back_and_taken_again(self, device: torch.device) -> None:
        """As sharded training does with parameters: the tensors stay, the memory comes and goes."""
        x = torch.arange(1 << 18, device=device)
        view, storage, before = x[2:5], x.untyped_storage(), torch.npu.memory_allocated(device)
        assert storage.resize_(0).nbytes() == 0
        assert before - torch.npu.memory_allocated(device) == 8 << 18
        for use in (lambda: view + 1, x.sum, x.cpu, lambda: x.fill_(1), lambda: view.copy_(torch.ones(3))):
            with pytest.raises(torch_fl.Error):
                use()
        storage.resize_(8 << 18)
        x.fill_(3)
        assert (view.tolist(), x.untyped_storage() is storage, x.data_ptr() == storage.data_ptr()) == (
            [3] * 3,
            True,
            True,
        )
        storage.resize_(16 << 18)
        assert (view.tolist(), storage.nbytes()) == ([3] * 3, 16 << 18)

    def test_errors_are_exceptions(self, device: torch.device) -> None:
        x = torch.arange(4, device=device)
        storage = x.untyped_storage()
        with pytest.raises(RuntimeError, match="out of bounds for storage"):
            torch.empty(0, dtype=torch.int64, device=device).set_(storage, 1, (4,), (1,))
        with pytest.raises(RuntimeError, match="devices must match"):
            torch.empty(0, device=device).set_(torch.ones(3).untyped_storage())
        with pytest.raises(RuntimeError, match="cannot be cut from 32 bytes to 8"):
            storage.resize_(8)
        with pytest.raises(RuntimeError, match="size does not match"):
            storage.copy_(torch.UntypedStorage(3))
