"""Random numbers: distributions by Kolmogorov-Smirnov and chi-square tests, seeds, states, generators, dropout."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from conftest import assert_same, to
from scipy import stats
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

N = 20_000
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
CHANCE = 1e-4
"""A right generator fails a test with this chance; seeds are fixed, so it fails never or always."""

CONTINUOUS: dict[str, tuple[Callable[[torch.Tensor], Any], Any]] = {
    "uniform": (lambda x: x.uniform_(-1, 3), stats.uniform(-1, 4)),
    "normal": (lambda x: x.normal_(2, 3), stats.norm(2, 3)),
    "log_normal": (lambda x: x.log_normal_(0.5, 0.25), stats.lognorm(0.25, scale=math.exp(0.5))),
    "exponential": (lambda x: x.exponential_(2.0), stats.expon(scale=0.5)),
    "cauchy": (lambda x: x.cauchy_(1, 2), stats.cauchy(1, 2)),
    "gamma": (lambda x: torch._standard_gamma(torch.full_like(x, 2.5)), stats.gamma(2.5)),
    "gamma below 1": (lambda x: torch._standard_gamma(torch.full_like(x, 0.5)), stats.gamma(0.5)),
}
COUNTS: dict[str, tuple[Callable[[torch.Tensor], Any], Any]] = {
    "bernoulli": (lambda x: x.bernoulli_(0.3), stats.bernoulli(0.3)),
    "bernoulli of a tensor": (lambda x: torch.bernoulli(torch.full_like(x, 0.3)), stats.bernoulli(0.3)),
    "geometric": (lambda x: x.geometric_(0.2), stats.geom(0.2)),
    "random": (lambda x: x.random_(3, 11), stats.randint(3, 11)),
    "poisson": (lambda x: torch.poisson(torch.full_like(x, 3.0)), stats.poisson(3)),
    "poisson by rejection": (lambda x: torch.poisson(torch.full_like(x, 25.0)), stats.poisson(25)),
    "binomial": (lambda x: torch.binomial(torch.full_like(x, 9), torch.full_like(x, 0.7)), stats.binom(9, 0.7)),
    "binomial by rejection": (
        lambda x: torch.binomial(torch.full_like(x, 90), torch.full_like(x, 0.3)),
        stats.binom(90, 0.3),
    ),
}


def _draw(name: str, table: Any, device: Any, dtype: torch.dtype = torch.float32) -> np.ndarray[Any, Any]:
    torch.manual_seed(2024)
    return table[name][0](torch.empty(N, device=device, dtype=dtype)).cpu().double().numpy()


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_distribution(name: str, device: torch.device) -> None:
    assert stats.kstest(_draw(name, CONTINUOUS, device), CONTINUOUS[name][1].cdf).pvalue > CHANCE


@pytest.mark.parametrize("name", ["uniform", "normal", "exponential"])
def test_continuous_distribution_in_float64(name: str, device: torch.device) -> None:
    found = _draw(name, CONTINUOUS, device, torch.float64)
    assert stats.kstest(found, CONTINUOUS[name][1].cdf).pvalue > CHANCE
    assert len(set(found)) == N  # 53 bits, not 24


def _count_fit(found: np.ndarray[Any, Any], law: Any) -> float:
    """p-value of a chi-square test; values that are too rare are put together."""
    values = np.arange(int(law.ppf(1e-3)), int(law.ppf(1 - 1e-3)) + 1)
    seen = np.array([(found == v).sum() for v in values], float)
    expected = law.pmf(values) * len(found)
    rest = len(found) - np.array([seen.sum(), expected.sum()])
    if rest[1] > 1:
        seen, expected = np.append(seen, rest[0]), np.append(expected, rest[1])
    return float(stats.chisquare(seen, expected * seen.sum() / expected.sum()).pvalue)


@pytest.mark.parametrize("name", COUNTS)
def test_discrete_distribution(name: str, device: torch.device) -> None:
    assert _count_fit(_draw(name, COUNTS, device), COUNTS[name][1]) > CHANCE


def test_large_counts_keep_their_spread(device: torch.device) -> None:
    """Weights of large counts are differences of large numbers; a careless form widens the law."""
    torch.manual_seed(6)
    like = torch.full((N,), 1e6, device=device)
    binomial = torch.binomial(like, torch.full_like(like, 0.3))
    laws = {stats.poisson(1e6): torch.poisson(like), stats.binom(1e6, 0.3): binomial}
    for law, made in laws.items():
        found = made.cpu().double()
        assert abs(found.mean().item() - law.mean()) < 5 * law.std() / N**0.5
        assert 0.97 < found.std().item() / law.std() < 1.03


def test_the_fits_notice_a_wrong_law(device: torch.device) -> None:
    assert stats.kstest(_draw("normal", CONTINUOUS, device), stats.norm(2.2, 3).cdf).pvalue < CHANCE
    assert _count_fit(_draw("poisson", COUNTS, device), stats.poisson(3.2)) < CHANCE


@pytest.mark.parametrize("dtype", FLOATS)
def test_halves_draw_the_same_numbers_rounded(dtype: torch.dtype, device: torch.device) -> None:
    torch.manual_seed(1)
    want = torch.randn(1000, device=device)
    torch.manual_seed(1)
    found = torch.randn(1000, device=device, dtype=dtype)
    if dtype != torch.float64:
        torch.testing.assert_close(found.cpu(), want.cpu().to(dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform_never_gives_its_upper_bound(dtype: torch.dtype, device: torch.device) -> None:
    x = torch.empty(200_000, device=device, dtype=dtype).uniform_(1, 2).cpu()
    assert x.min() >= 1
    assert x.max() < 2


@pytest.mark.parametrize("n", [0, 1, 3, 4, 5, 63, 64, 65, 127, 128, 129, 1000, 70_001])
def test_numbers_do_not_depend_on_the_count(n: int, device: torch.device) -> None:
    torch.manual_seed(5)
    long = torch.rand(70_001, device=device)
    torch.manual_seed(5)
    short = torch.rand(n, device=device)
    torch.testing.assert_close(short, long[:n], rtol=0, atol=0)


def test_philox_reference_vector(device: torch.device) -> None:
    """Known answer of Philox4x32-10 for counter 0 and key 0 (Random123)."""
    torch.manual_seed(0)
    words = torch.empty(4, device=device, dtype=torch.int64).random_(0, 2**32).cpu().tolist()
    assert words == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def test_devices_agree() -> None:
    found = []
    for device in ("npu:0", f"npu:{torch.npu.device_count() - 1}"):
        torch.manual_seed(11)
        x = torch.empty(5000, device=device)
        found.append([f(x.clone()).cpu() for f, _ in [*CONTINUOUS.values(), *COUNTS.values()]])
    torch.testing.assert_close(found[0], found[1], rtol=2e-4, atol=1e-5)


def test_seed_holds_in_another_process() -> None:
    torch.manual_seed(123)
    want = torch.rand(3, device="npu").tolist()
    code = "import torch, torch_fl; torch.manual_seed(123); print(torch.rand(3, device='npu').tolist())"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert found.stdout.strip() == str(want), found.stderr


# -- integers ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool])
def test_random_covers_the_dtype(dtype: torch.dtype, device: torch.device) -> None:
    x = torch.empty(5000, device=device, dtype=dtype).random_().cpu().double()
    top = 1 if dtype == torch.bool else torch.iinfo(dtype).max
    assert 0 <= x.min() <= top * 0.01
    assert top * 0.99 <= x.max() <= top


@pytest.mark.parametrize(("low", "high"), [(-5, 5), (0, 2**32), (0, 2**32 + 1), (-(2**62), 2**62)])
def test_randint_is_uniform(low: int, high: int, device: torch.device) -> None:
    torch.manual_seed(3)
    x = torch.randint(low, high, (N,), device=device).cpu()
    assert low <= int(x.min())
    assert int(x.max()) < high
    counts = np.histogram(x.double().numpy(), bins=5, range=(low, high))[0]
    assert stats.chisquare(counts).pvalue > CHANCE


def test_random_from_the_lowest_integer(device: torch.device) -> None:
    x = torch.empty(5000, device=device, dtype=torch.int64).random_(-(2**63), None).cpu().double()
    assert x.min() < -9e18
    assert x.max() > 9e18


@pytest.mark.parametrize("n", [0, 1, 2, 7, 1000])
def test_randperm(n: int, device: torch.device) -> None:
    x = torch.randperm(n, device=device)
    assert x.device == device
    assert sorted(x.tolist()) == list(range(n))


def test_randperm_reaches_every_order_equally(device: torch.device) -> None:
    torch.manual_seed(9)
    seen: dict[tuple[int, ...], int] = {}
    for _ in range(1200):
        order = tuple(torch.randperm(3, device=device).tolist())
        seen[order] = seen.get(order, 0) + 1
    assert len(seen) == 6
    assert stats.chisquare(list(seen.values())).pvalue > CHANCE


@pytest.mark.parametrize("replacement", [True, False])
def test_multinomial(replacement: bool, device: torch.device) -> None:
    torch.manual_seed(4)
    weights = torch.tensor([[1.0, 0.0, 3.0, 6.0]] * N)
    x = torch.multinomial(weights.to(device), 2, replacement).cpu()
    assert x.shape == (N, 2)
    first = [int((x[:, 0] == i).sum()) for i in (0, 2, 3)]
    assert int((x == 1).sum()) == 0
    assert stats.chisquare(first, [N * p for p in (0.1, 0.3, 0.6)]).pvalue > CHANCE
    same = int((x[:, 0] == x[:, 1]).sum())
    assert same == 0 if not replacement else same > 0.4 * N


def test_multinomial_of_a_vector(device: torch.device) -> None:
    x = torch.multinomial(torch.tensor([0.0, 1.0, 0.0, 0.0]).to(device), 5, replacement=True)
    assert x.tolist() == [1] * 5


@pytest.mark.parametrize(
    ("weights", "text"),
    [([-1.0, 2.0], "either `inf`, `nan` or element < 0"), ([0.0, 0.0], "sum of probabilities <= 0")],
)
def test_multinomial_refuses(weights: list[float], text: str, device: torch.device) -> None:
    with pytest.raises(RuntimeError, match=text):
        torch.multinomial(torch.tensor(weights).to(device), 1)


# -- forms ---------------------------------------------------------------------------------------------------------
def test_destination_may_have_any_strides(device: torch.device) -> None:
    base = torch.zeros(6, 8, device=device)
    base.t()[1:4].normal_()
    cpu = base.cpu()
    assert int((cpu == 0).sum()) == 5 * 6
    assert len(set(cpu[:, 1:4].flatten().tolist())) == 18


def test_like_factories_and_broadcast_parameters(device: torch.device) -> None:
    x = torch.empty(4, 5, device=device).t()
    for made in (torch.rand_like(x), torch.randn_like(x), torch.randint_like(x, 9)):
        assert made.device == device
        assert made.stride() == x.stride()
    mean = torch.tensor([[-50.0], [50.0]]).to(device)
    y = torch.normal(mean, torch.ones(300, device=device)).cpu()
    assert y.shape == (2, 300)
    assert -51 < y[0].mean() < -49 < 49 < y[1].mean() < 51
    assert torch.normal(1.0, torch.zeros(3, device=device)).tolist() == [1.0] * 3
    assert torch.normal(mean, 0.0).tolist() == mean.tolist()


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.uniform_(2, 1),
        lambda x: x.normal_(0, -1),
        lambda x: x.exponential_(0),
        lambda x: x.geometric_(1),
        lambda x: x.bernoulli_(2),
        lambda x: x.cauchy_(0, 0),
        lambda x: x.log_normal_(0, 0),
        lambda x: torch.native_dropout(x, 2.0, True),
    ],
)
def test_bad_numbers_are_refused_with_a_cached_plan(call: Any, device: torch.device) -> None:
    x = torch.empty(3, device=device)
    (
        x.uniform_(1, 2),
        x.normal_(0, 1),
        x.exponential_(1),
        x.geometric_(0.5),
        x.bernoulli_(0.5),
        x.cauchy_(),
        x.log_normal_(),
        torch.native_dropout(x, 0.5, True),
    )
    with pytest.raises(RuntimeError):
        call(x)


# -- state ---------------------------------------------------------------------------------------------------------
def test_state_roundtrip(device: torch.device) -> None:
    state = torch.npu.get_rng_state(device)
    want = torch.rand(5, device=device)
    torch.npu.set_rng_state(state, device)
    torch.testing.assert_close(torch.rand(5, device=device), want, rtol=0, atol=0)


def test_all_states(device: torch.device) -> None:
    states = torch.npu.get_rng_state_all()
    want = torch.rand(5, device=device)
    torch.npu.set_rng_state_all(states)
    torch.testing.assert_close(torch.rand(5, device=device), want, rtol=0, atol=0)
    assert len(torch.npu.default_generators) == torch.npu.device_count()
    assert torch.npu.default_generators[device.index].device == device


def test_current_device_seed() -> None:
    torch.npu.manual_seed(77)
    assert torch.npu.initial_seed() == 77
    torch.npu.seed()
    assert torch.npu.initial_seed() != 77
    torch.npu.seed_all()
    torch.manual_seed(-1)
    assert torch.npu.initial_seed() == 2**64 - 1


def test_fork_rng_restores(device: torch.device) -> None:
    torch.manual_seed(1)
    want = torch.rand(5, device=device)
    torch.manual_seed(1)
    with torch.random.fork_rng(devices=[device.index], device_type="npu"):
        torch.rand(100, device=device)
    torch.testing.assert_close(torch.rand(5, device=device), want, rtol=0, atol=0)


def test_checkpoint_repeats_dropout(device: torch.device) -> None:
    x = torch.ones(1000, device=device, requires_grad=True)
    y = checkpoint(lambda v: F.dropout(v, 0.5), x, use_reentrant=False, preserve_rng_state=True)
    y.sum().backward()
    torch.testing.assert_close(x.grad, y.detach())


# -- generators ----------------------------------------------------------------------------------------------------
def test_generator(device: torch.device) -> None:
    g = torch.Generator(device).manual_seed(3)
    assert isinstance(g, torch.Generator)
    assert g.device == device
    a = torch.rand(5, device=device, generator=g)
    state = g.get_state()
    b = torch.empty(5, device=device).normal_(generator=g)
    assert torch.rand(5, device=device, generator=torch.Generator(device).manual_seed(3)).tolist() == a.tolist()
    for twin in (copy.deepcopy(g), pickle.loads(pickle.dumps(g)), g.clone_state()):
        twin.set_state(state)
        assert torch.randn(5, device=device, generator=twin).tolist() == b.tolist()
    torch.randperm(5, device=device, generator=g)
    torch.multinomial(torch.ones(3, device=device), 1, generator=g)
    torch.randint(5, (3,), device=device, generator=g)


def test_generators_of_other_devices_are_as_before() -> None:
    g = torch.Generator()
    assert type(g) is torch._C.Generator
    assert isinstance(g, torch.Generator)
    assert issubclass(type(torch.Generator("npu")), torch.Generator)
    assert torch.Generator(device="cpu").manual_seed(1).initial_seed() == 1
    assert pickle.loads(pickle.dumps(g)).device == torch.device("cpu")


def test_cpu_generator_is_refused(device: torch.device) -> None:
    with pytest.raises(RuntimeError, match="Expected a 'npu' device type for generator but found 'cpu'"):
        torch.randn(3, device=device, generator=torch.Generator())
    with pytest.raises(RuntimeError, match="generator of npu"):
        torch.randn(3, device=device, generator=torch.Generator(f"npu:{1 - device.index}"))


def test_bad_state_is_refused() -> None:
    g = torch.Generator("npu")
    with pytest.raises(RuntimeError, match="wrong size"):
        g.set_state(torch.zeros(3, dtype=torch.uint8))
    with pytest.raises(TypeError, match="ByteTensor"):
        g.set_state(torch.zeros(16))


# -- dropout -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("n", [1, 127, 128, 129, 5000])
def test_dropout(n: int, dtype: torch.dtype, device: torch.device) -> None:
    x = torch.ones(n, device=device, dtype=dtype, requires_grad=True)
    y = F.dropout(x, 0.25)
    y.sum().backward()
    torch.testing.assert_close(x.grad, y.detach())
    values = set(y.detach().cpu().tolist())
    assert values <= {0.0, torch.tensor(1 / 0.75, dtype=dtype).item()}
    if n == 5000:
        assert 0.2 < float((y == 0).cpu().double().mean()) < 0.3


def test_native_dropout_results(device: torch.device) -> None:
    y, mask = torch.native_dropout(torch.ones(4, 6, device=device).t(), 0.5, True)
    assert mask.dtype == torch.bool
    torch.testing.assert_close(y.cpu(), mask.cpu().float() * 2, check_stride=False)
    y, mask = torch.native_dropout(torch.ones(3, device=device), 0.5, False)
    assert mask.all()
    assert y.tolist() == [1, 1, 1]
    assert F.dropout(torch.ones(3, device=device), 1.0).tolist() == [0, 0, 0]


@pytest.mark.parametrize("form", [F.dropout1d, F.dropout2d, F.dropout3d, F.feature_alpha_dropout, F.alpha_dropout])
def test_dropout_forms(form: Any, device: torch.device) -> None:
    x = torch.ones(2, 64, *[2] * (3 if form is F.dropout3d else 2 if form is not F.dropout1d else 1), device=device)
    y = form(x, 0.5, training=True).cpu()
    assert len(set(y.flatten().tolist())) == 2
    if form is not F.alpha_dropout:
        channels = y.flatten(2)
        torch.testing.assert_close(channels, channels[..., :1].expand_as(channels))


def test_rrelu(device: torch.device) -> None:
    x = torch.linspace(-2, 2, 101).to(device).requires_grad_()
    y = F.rrelu(x, 0.1, 0.3, training=True)
    y.sum().backward()
    slope = (y / x).detach().cpu()[:50]
    assert (slope >= 0.0999).all()
    assert (slope <= 0.3001).all()
    assert len(set(slope.tolist())) > 30
    torch.testing.assert_close(x.grad.cpu()[:50], slope)  # type: ignore[union-attr]
    assert_same(lambda v: F.rrelu(v, 0.1, 0.3), to(x.detach(), "cpu"), device=device)
