"""Unmodified accelerate, Lightning and diffusers: they find the device, train, offload and checkpoint."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

pytestmark = [
    pytest.mark.model,
    pytest.mark.filterwarnings("default"),  # warnings of other packages are not ours to fix
]


def _model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def _batches() -> Any:
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(16, 4)), batch_size=4)


@pytest.mark.parametrize("precision", ["no", "fp16", "bf16"])
def test_accelerator_trains_on_the_device(precision: str, tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate")
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(True)
    accelerator = accelerate.Accelerator(mixed_precision=precision, gradient_accumulation_steps=2)
    assert accelerator.device.type == "npu", "another device was chosen"
    model = _model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    model, optimizer, batches, schedule = accelerator.prepare(model, optimizer, _batches(), schedule)
    losses = []
    for _ in range(6):
        for (x,) in batches:
            with accelerator.accumulate(model):
                loss = model(x).square().mean()
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
        losses.append(accelerator.gather(loss).item())
    assert losses[-1] < losses[0]
    accelerator.save_state(str(tmp_path))
    before = [p.clone() for p in model.parameters()]
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    accelerator.load_state(str(tmp_path))
    for mine, theirs in zip(model.parameters(), before):
        assert torch.equal(mine, theirs)


def test_models_in_parts_and_offloaded(device: torch.device, tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate")
    model, x = _model(), torch.randn(3, 4)
    want = model(x)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    name = str(device)
    with accelerate.init_empty_weights():
        empty = _model()
    made = [
        accelerate.dispatch_model(copy.deepcopy(model), {"0": name, "1": name, "2": "cpu"}, main_device=name),
        accelerate.cpu_offload(copy.deepcopy(model), execution_device=device),
        accelerate.disk_offload(copy.deepcopy(model), str(tmp_path / "disk"), execution_device=device),
        accelerate.load_checkpoint_and_dispatch(empty, str(tmp_path / "pytorch_model.bin"), {"": name}),
    ]
    for placed in made:
        torch.testing.assert_close(placed(x.to(device)).cpu(), want)
    assert {p.device for p in made[-1].parameters()} == {device}


def test_device_maps_count_the_devices_memory() -> None:
    accelerate = pytest.importorskip("accelerate")
    from accelerate.utils import get_max_memory

    assert set(get_max_memory()) == {*range(torch.npu.device_count()), "cpu"}  # type: ignore[attr-defined]
    assert dict(accelerate.infer_auto_device_map(_model())) == {"": 0}


def test_lightning_trainer(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model, self.seen = _model(), set()

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            loss: torch.Tensor = self.model(batch[0]).square().mean()
            self.seen.add((batch[0].device.type, loss.device.type, self.device.type))
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=0.05)

    module = Module()
    before = copy.deepcopy(module.model)
    trainer = lightning.Trainer(
        accelerator="npu", devices=1, max_epochs=3, logger=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=str(tmp_path),
    )  # fmt: skip
    trainer.fit(module, _batches())
    assert module.seen == {("npu", "npu", "npu")}
    assert not torch.equal(before[0].weight, module.model[0].weight.cpu())
    trainer.save_checkpoint(tmp_path / "module.ckpt")
    again = Module.load_from_checkpoint(tmp_path / "module.ckpt", map_location="npu:0")
    assert torch.equal(again.model[0].weight.cpu(), module.model[0].weight.cpu())
    with pytest.raises(lightning.pytorch.utilities.exceptions.MisconfigurationException, match="npu device"):
        lightning.Trainer(accelerator="npu", devices=99, logger=False)


def test_diffusion_step(device: torch.device) -> None:
    diffusers = pytest.importorskip("diffusers")
    model = diffusers.UNet2DConditionModel(
        sample_size=8, layers_per_block=1, block_out_channels=(8, 16), cross_attention_dim=16, norm_num_groups=4,
        attention_head_dim=4, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )  # fmt: skip
    schedule = diffusers.DDPMScheduler()
    schedule.set_timesteps(3)
    t, sample, text = schedule.timesteps[0], torch.randn(1, 4, 8, 8), torch.randn(1, 3, 16)
    there = copy.deepcopy(model).to(device)
    want = model(sample, t, text).sample
    got = there(sample.to(device), t.to(device), text.to(device)).sample
    torch.testing.assert_close(got.cpu(), want, rtol=1e-3, atol=1e-4)
    generator = torch.Generator(device).manual_seed(0)
    stepped = schedule.step(got, t, sample.to(device), generator=generator).prev_sample
    assert stepped.device == device
    noisy = schedule.add_noise(sample.to(device), torch.randn_like(stepped), t[None].to(device))
    there(noisy, t.to(device), text.to(device)).sample.square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in there.parameters())


def test_launched_processes_meet_over_gloo(monkeypatch: pytest.MonkeyPatch) -> None:
    from accelerate.state import DistributedType, PartialState

    monkeypatch.setenv("LOCAL_RANK", "0")
    state: Any = object.__new__(PartialState)
    assert state._prepare_backend() == ("gloo", DistributedType.MULTI_NPU)
