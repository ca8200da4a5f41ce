"""Mixed precision: autocast in its old and new spelling, GradScaler, gradient clipping, a Function of one's own."""

import warnings

import torch
from torch import nn
from torch.cuda.amp import GradScaler, autocast, custom_bwd, custom_fwd

warnings.simplefilter("ignore", FutureWarning)


class Scale(torch.autograd.Function):
    @staticmethod
    @custom_fwd(cast_inputs=torch.float32)
    def forward(ctx, x):
        assert x.dtype == torch.float32, x.dtype
        assert not torch.is_autocast_enabled()
        return x * 2

    @staticmethod
    @custom_bwd
    def backward(ctx, grad):
        return grad * 2


def main():
    assert torch.cuda.is_available()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.LayerNorm(32), nn.Linear(32, 1)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = GradScaler()
    assert scaler.is_enabled()
    x = torch.randn(64, 16, device="cuda")
    y = x.sum(1, keepdim=True)
    first = None
    for _step in range(30):
        optimizer.zero_grad(set_to_none=True)
        with autocast(dtype=torch.float16):
            assert torch.is_autocast_enabled()
            assert torch.get_autocast_gpu_dtype() == torch.float16
            out = model(x)
            assert out.dtype == torch.float16, out.dtype
            out = Scale.apply(out)
            loss = nn.functional.mse_loss(out.float(), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        scaler.step(optimizer)
        scaler.update()
        first = first or loss.item()
    assert loss.item() < first / 3, (first, loss.item())

    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert model(x).dtype == torch.bfloat16
        with torch.autocast(device_type=x.device.type, enabled=False):
            assert model(x).dtype == torch.float32
    with torch.amp.autocast("cuda"):
        assert model(x).dtype == torch.float16
    assert model(x).dtype == torch.float32
    new_scaler = torch.amp.GradScaler("cuda")
    new_scaler.load_state_dict(scaler.state_dict())
    assert new_scaler.get_scale() == scaler.get_scale()
    print("loss", first, "->", loss.item())


if __name__ == "__main__":
    main()
