"""Two audio packages with real weights inside: pitch (torchcrepe) and speaker embeddings (resemblyzer)."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pytest
import torch

pytestmark = [
    pytest.mark.model,
    pytest.mark.filterwarnings("default"),  # warnings of other packages are not ours to fix
]

RATE = 16000


def _sweep() -> torch.Tensor:
    """One second that rises from 200 to 400 Hz, with an octave above it."""
    t = torch.arange(RATE) / RATE
    phase = 2 * torch.pi * (200 * t + 100 * t * t)
    return (torch.sin(phase) + 0.3 * torch.sin(2 * phase)) / 2


@pytest.fixture
def torchcrepe(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The package. It needs torchaudio to read files, which is not done here, and which must fit torch."""
    try:
        import torchaudio  # noqa: F401
    except (ImportError, OSError):
        for name in [n for n in sys.modules if n.partition(".")[0] == "torchaudio"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "torchaudio", types.ModuleType("torchaudio"))
    return pytest.importorskip(
        "torchcrepe", reason="PyPI's torchaudio, which it depends on, needs a CUDA build of torch"
    )


def test_pitch(device: torch.device, torchcrepe: Any) -> None:
    options = {"hop_length": 160, "fmin": 50.0, "fmax": 550.0, "model": "tiny", "return_periodicity": True}
    found = []
    for where in ("cpu", str(device)):
        np.random.seed(0)  # predict dithers with these numbers
        found.append(torchcrepe.predict(_sweep()[None], RATE, device=where, batch_size=64, **options))
        assert {str(p.device) for p in torchcrepe.infer.model.parameters()} == {where}
    torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-3)
    assert found[1][0][0, 10] < found[1][0][0, 90]


def test_speaker_embedding(device: torch.device) -> None:
    resemblyzer = pytest.importorskip("resemblyzer", exc_type=ImportError)
    audio = _sweep().repeat(3).numpy()
    want = resemblyzer.VoiceEncoder("cpu", verbose=False).embed_utterance(audio)
    encoder = resemblyzer.VoiceEncoder(device, verbose=False)
    assert {p.device for p in encoder.parameters()} == {device}
    got = encoder.embed_utterance(audio)
    torch.testing.assert_close(torch.from_numpy(got), torch.from_numpy(want), rtol=1e-3, atol=1e-4)
