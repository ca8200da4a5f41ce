"""Dense linear algebra: shapes around the panels, batches, layouts, pivots, errors, gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import assert_same

Shape = tuple[int, ...]
SQUARES: list[Shape] = [(1, 1), (3, 3), (0, 0), (2, 0, 0), (0, 3, 3), (2, 3, 5, 5), (33, 33), (2, 70, 70)]
TALL: list[Shape] = [(4, 1), (5, 3), (3, 0), (2, 5, 3), (0, 4, 2), (2, 75, 40)]


def _x(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=dtype)


def _positive(*shape: int) -> torch.Tensor:
    x = _x(*shape)
    return x @ x.mT + torch.eye(shape[-1], dtype=x.dtype)


def _layouts(x: torch.Tensor) -> list[torch.Tensor]:
    return [x, x.mT.contiguous().mT]


def _strided(x: torch.Tensor) -> torch.Tensor:
    return torch.stack([x, x], -1)[..., 1]


def _factors(a: torch.Tensor) -> Any:
    return [tuple(torch.linalg.lu_factor_ex(a)), tuple(torch.linalg.lu(a)), torch.linalg.slogdet(a)]


SQUARE_OPS: dict[str, Callable[[torch.Tensor], Any]] = {
    "lu": _factors,
    "inverse": lambda a: torch.linalg.inv(a),
    "determinant": lambda a: torch.ops.aten._linalg_det(a),
    "slogdet": lambda a: torch.ops.aten._linalg_slogdet(a),
    "solve": lambda a: torch.ops.aten._linalg_solve_ex(a, a[..., :2] + 1),
    "solve vectors": lambda a: torch.linalg.solve(a, a.sum(-1)),
    "solve from the right": lambda a: torch.linalg.solve(a, a[..., :1, :], left=False),
    "lu_solve": lambda a: [
        torch.linalg.lu_solve(*torch.linalg.lu_factor(a), a[..., :3] if left else a[..., :3, :], left=left, adjoint=t)
        for left in (True, False)
        for t in (True, False)
    ],
}  # fmt: skip


@pytest.mark.device
@pytest.mark.parametrize("name", SQUARE_OPS)
def test_square(name: str, device: torch.device) -> None:
    for shape in SQUARES:
        for a in _layouts(_x(*shape)):
            assert_same(SQUARE_OPS[name], a, device=device)
    assert_same(lambda a: SQUARE_OPS[name](_strided(a)), _x(2, 5, 5), device=device)


@pytest.mark.device
def test_lu_of_any_shape(device: torch.device) -> None:
    for shape in TALL:
        for a in (_x(*shape), _x(*shape).mT):
            assert_same(lambda a: [tuple(torch.linalg.lu_factor_ex(a)), tuple(torch.linalg.lu(a))], a, device=device)


def test_right_sides_broadcast(device: torch.device) -> None:
    for a, right in ((_x(4, 4), _x(3, 4, 2)), (_x(2, 1, 4, 4), _x(3, 4, 2)), (_x(3, 4, 4), _x(4, 1))):
        assert_same(torch.linalg.solve, a, right, device=device)
        assert_same(lambda a, b: torch.linalg.lu_solve(*torch.linalg.lu_factor(a), b), a, right, device=device)


def test_zero_pivots(device: torch.device) -> None:
    a = torch.tensor([[0.0, 2.0, 1.0], [0.0, 0.0, 3.0], [0.0, 1.0, 5.0]])
    assert_same(lambda a: [tuple(torch.linalg.lu_factor_ex(a)), torch.linalg.slogdet(a), a.det()], a, device=device)


def test_unpacked_in_part(device: torch.device) -> None:
    lu, pivots = torch.linalg.lu_factor(_x(2, 4, 3))
    for data in (True, False):
        for wanted in (True, False):
            assert_same(torch.lu_unpack, lu, pivots, data, wanted, device=device)


CHOLESKY: dict[str, Callable[[torch.Tensor], Any]] = {
    "lower": lambda a: torch.linalg.cholesky(a.tril()),
    "upper": lambda a: torch.linalg.cholesky(a.triu(), upper=True),
    "solve": lambda a: torch.cholesky_solve(a[..., :2], torch.linalg.cholesky(a)),
    "solve upper": lambda a: torch.cholesky_solve(a[..., :2], torch.linalg.cholesky(a, upper=True), upper=True),
    "inverse": lambda a: torch.cholesky_inverse(torch.linalg.cholesky(a)),
    "inverse upper": lambda a: torch.cholesky_inverse(torch.linalg.cholesky(a, upper=True), upper=True),
}


@pytest.mark.device
@pytest.mark.parametrize("name", CHOLESKY)
def test_cholesky(name: str, device: torch.device) -> None:
    for shape in SQUARES:
        for a in _layouts(_positive(*shape)):
            assert_same(CHOLESKY[name], a, device=device)
    assert_same(lambda a: CHOLESKY[name](_strided(a)), _positive(2, 5, 5), device=device)


def test_minors_that_are_not_positive(device: torch.device) -> None:
    a = _positive(3, 40, 40)
    a[0, 2, 2], a[2, 35, 35] = -1, float("nan")
    assert_same(lambda a: torch.linalg.cholesky_ex(a).info, a, device=device)


def test_ldl(device: torch.device) -> None:
    for shape in (*SQUARES, (40, 12, 12)):
        a = _x(*shape)
        a = a + a.mT
        assert_same(lambda a: tuple(torch.linalg.ldl_factor_ex(a)), a, device=device)
        right = _x(*shape[:-1], 3)
        assert_same(lambda a, b: torch.linalg.ldl_solve(*torch.linalg.ldl_factor(a), b), a, right, device=device)
    zero_pivots = torch.tensor([[0.0, 1.0, 2.0], [1.0, 0.0, 3.0], [2.0, 3.0, 0.0]])
    singular = torch.diag(torch.tensor([1.0, 0.0, 2.0]))
    for a in (zero_pivots, singular):
        assert_same(lambda a: tuple(torch.linalg.ldl_factor_ex(a)), a, device=device)


@pytest.mark.device
@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("left", [True, False])
def test_triangular(upper: bool, left: bool, device: torch.device) -> None:
    for n in (1, 5, 40):
        a = (_x(2, n, n) / n).triu() if upper else (_x(2, n, n) / n).tril()
        a.diagonal(dim1=-2, dim2=-1).add_(2)
        for layout in (*_layouts(a), a[:1]):
            for right in (_x(2, n, n), _x(3, 2, n, 3) if left else _x(3, 2, 3, n)):
                for unit in (True, False):
                    assert_same(
                        lambda a, b, unit=unit: torch.linalg.solve_triangular(
                            a, b, upper=upper, left=left, unitriangular=unit
                        ),
                        layout, right, device=device,
                    )  # fmt: skip


@pytest.mark.filterwarnings("ignore:torch.triangular_solve:UserWarning")
def test_triangular_solve(device: torch.device) -> None:
    a, right = _x(2, 4, 4) + 4 * torch.eye(4), _x(3, 2, 4, 3)
    for upper in (True, False):
        for transpose in (True, False):
            assert_same(
                lambda b, a, u=upper, t=transpose: tuple(torch.triangular_solve(b, a, u, t)), right, a, device=device
            )


QR: dict[str, Callable[[torch.Tensor], Any]] = {
    "reduced": lambda a: tuple(torch.linalg.qr(a)),
    "complete": lambda a: tuple(torch.linalg.qr(a, "complete")),
    "r": lambda a: tuple(torch.linalg.qr(a, "r")),
    "geqrf": lambda a: tuple(torch.geqrf(a)),
}


@pytest.mark.device
@pytest.mark.parametrize("name", QR)
def test_qr(name: str, device: torch.device) -> None:
    for shape in TALL:
        for a in (*_layouts(_x(*shape)), _x(*shape).mT):
            assert_same(QR[name], a, device=device)
    assert_same(lambda a: QR[name](_strided(a)), _x(2, 5, 3), device=device)


def test_reflections(device: torch.device) -> None:
    a, tau = torch.geqrf(_x(2, 5, 3))
    assert_same(torch.linalg.householder_product, a, tau, device=device)
    for left in (True, False):
        for transpose in (True, False):
            other = _x(2, 5, 4) if left else _x(2, 4, 5)
            assert_same(torch.ormqr, a, tau, other, left, transpose, device=device)


@pytest.mark.device
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_eigh(dtype: torch.dtype, device: torch.device) -> None:
    for shape in SQUARES:
        a = _positive(*shape).to(dtype)
        for uplo, half in (("L", a.tril()), ("U", a.triu())):
            values, vectors = torch.linalg.eigh(half.to(device), uplo)
            assert vectors.stride() == torch.linalg.eigh(half, uplo)[1].stride()
            torch.testing.assert_close(values.cpu(), torch.linalg.eigvalsh(a), rtol=1e-5, atol=1e-4)
            torch.testing.assert_close((vectors * values[..., None, :] @ vectors.mT).cpu(), a, rtol=1e-5, atol=1e-4)
            assert_orthogonal(vectors.cpu())
        assert_same(torch.linalg.eigvalsh, a, device=device, rtol=1e-5, atol=1e-4)


def assert_orthogonal(q: torch.Tensor) -> None:
    """Columns are orthogonal and of length 1."""
    one = torch.eye(q.shape[-1], dtype=q.dtype).expand(*q.shape[:-2], -1, -1)
    torch.testing.assert_close(q.mT @ q, one, rtol=0, atol=1000 * torch.finfo(q.dtype).eps)


def _deficient(dtype: torch.dtype) -> list[torch.Tensor]:
    rank_two = _x(2, 6, 2) @ _x(2, 2, 5)
    return [x.to(dtype) for x in (rank_two, rank_two.mT, torch.zeros(3, 4), torch.ones(4, 4), torch.diag(_x(4)))]


@pytest.mark.device
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_svd(dtype: torch.dtype, device: torch.device) -> None:
    shapes = [_x(*s).to(dtype) for s in (*SQUARES, *TALL)]
    for a in (*shapes, *(s.mT for s in shapes), *_deficient(dtype), _x(4, 4).to(dtype) * 1e30):
        for full in (True, False):
            u, s, vh = torch.linalg.svd(a.to(device), full)
            want = torch.linalg.svd(a, full)
            assert [t.stride() for t in (u, s, vh)] == [t.stride() for t in want]
            k, scale = s.shape[-1], a.abs().max().clamp(1) if a.numel() else 1
            torch.testing.assert_close(s.cpu() / scale, want[1] / scale, rtol=1e-4, atol=1e-5)
            back = (u[..., :k] * (s / scale)[..., None, :]) @ vh[..., :k, :]
            torch.testing.assert_close(back.cpu(), a / scale, rtol=1e-4, atol=1e-5)
            assert_orthogonal(u.cpu())
            assert_orthogonal(vh.mT.cpu())


def test_svdvals(device: torch.device) -> None:
    for a in (_x(5, 3), _x(2, 3, 6), _x(3, 0)):
        assert_same(torch.linalg.svdvals, a, device=device)


@pytest.mark.device
def test_matrix_exp(device: torch.device) -> None:
    batch = _x(3, 4, 4) * torch.tensor([0.01, 1.0, 8.0], dtype=torch.float64).view(3, 1, 1)
    for a in (_x(5, 5), batch, batch.mT, batch.float(), _x(2, 0, 0), _x(1, 1), torch.zeros(3, 3)):
        assert_same(torch.linalg.matrix_exp, a, device=device, rtol=1e-5, atol=1e-7)


@pytest.mark.device
@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss", None])
def test_lstsq(driver: str | None, device: torch.device) -> None:
    for a in (_x(6, 3), _x(3, 6), _x(2, 5, 5), *(_deficient(torch.float64)[:2] if driver != "gels" else [])):
        for right in (_x(*a.shape[:-1], 2), _x(*a.shape[:-1])):
            want = torch.linalg.lstsq(a, right, driver=driver)
            got = torch.linalg.lstsq(a.to(device), right.to(device), driver=driver)
            for i in (0, 2, 3):
                assert got[i].stride() == want[i].stride()
                torch.testing.assert_close(got[i].cpu(), want[i])
    assert_same(lambda a, b: torch.linalg.lstsq(a, b, driver=driver).residuals, _x(2, 6, 3), _x(2, 6, 2), device=device)


def test_pinv_and_rank(device: torch.device) -> None:
    for a in _deficient(torch.float64):
        assert_same(lambda a: [torch.linalg.pinv(a), torch.linalg.matrix_rank(a)], a, device=device)
    assert_same(lambda a: torch.linalg.pinv(a, hermitian=True), _positive(2, 4, 4), device=device)


SINGULAR: dict[str, Callable[[torch.Tensor], Any]] = {
    "inv": torch.linalg.inv,
    "inv_ex": lambda a: torch.linalg.inv_ex(a, check_errors=True),
    "solve": lambda a: torch.linalg.solve(a, a),
    "solve_ex": lambda a: torch.linalg.solve_ex(a, a, check_errors=True),
    "cholesky": torch.linalg.cholesky,
    "cholesky_ex": lambda a: torch.linalg.cholesky_ex(a, check_errors=True),
    "eigh": lambda a: torch.linalg.eigh(a * torch.nan),
    "svd": lambda a: torch.linalg.svd(a * torch.nan),
}


@pytest.mark.parametrize("name", SINGULAR)
def test_errors_are_torchs(name: str, device: torch.device) -> None:
    for a in (torch.zeros(3, 3), torch.zeros(2, 3, 3)):
        with pytest.raises(torch.linalg.LinAlgError) as want:
            SINGULAR[name](a)
        with pytest.raises(torch.linalg.LinAlgError) as got:
            SINGULAR[name](a.to(device))
        assert str(got.value).split("(error code")[0] == str(want.value).split("(error code")[0]


def test_wrong_pivots(device: torch.device) -> None:
    lu, pivots = torch.linalg.lu_factor(_x(3, 3).to(device))
    wrong = pivots + 1000
    with pytest.raises(RuntimeError, match="pivots passed to lu_unpack must be between 1"):
        torch.lu_unpack(lu, wrong)[0].cpu()
    with pytest.raises(RuntimeError, match="lu_unpack got pivots"):
        torch.lu_unpack(lu[..., :-1, :], wrong)
    assert torch.linalg.lu_solve(lu, wrong, lu).cpu().shape == (3, 3)


def test_out(device: torch.device) -> None:
    def all_of(a: torch.Tensor) -> Any:
        outs = [torch.empty_like(a) for _ in range(3)]
        into = [torch.linalg.inv(a, out=outs[0]), torch.linalg.cholesky(a, out=outs[1])]
        same = a.clone()
        return [*into, torch.linalg.solve(a, a[..., 0], out=torch.empty_like(a[..., 0])), torch.inverse(same, out=same)]

    assert_same(all_of, _positive(2, 4, 4), device=device)


GRADIENTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "inv": torch.linalg.inv,
    "det": torch.linalg.det,
    "logdet": lambda a: (a @ a.mT).logdet(),
    "solve": lambda a: torch.linalg.solve(a, a.mT + 1),
    "cholesky": lambda a: torch.linalg.cholesky(a @ a.mT),
    "qr": lambda a: tuple(torch.linalg.qr(a)),
    "eigvalsh": lambda a: torch.linalg.eigvalsh(a + a.mT),
    "svdvals": torch.linalg.svdvals,
    "matrix_exp": torch.linalg.matrix_exp,
    "pinv": torch.linalg.pinv,
    "lstsq": lambda a: torch.linalg.lstsq(a, a + 1).solution,
    "lu": lambda a: tuple(torch.linalg.lu(a)),
}


@pytest.mark.device
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str, device: torch.device) -> None:
    for shape in ((4, 4), (2, 3, 3)):
        assert_same(GRADIENTS[name], _x(*shape).requires_grad_(), device=device)
