"""Unmodified transformers on the device: forward, generate, Trainer and checkpoints of small random models."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

transformers = pytest.importorskip("transformers")
pytestmark = [
    pytest.mark.model,
    pytest.mark.filterwarnings("default"),  # warnings of other packages are not ours to fix
]

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


def _tokens(*shape: int) -> torch.Tensor:
    return torch.randint(3, 99, shape)


def _bert() -> tuple[Any, dict[str, torch.Tensor]]:
    config = transformers.BertConfig(vocab_size=99, **SMALL)
    inputs = {"input_ids": _tokens(2, 7), "attention_mask": torch.ones(2, 7, dtype=torch.long)}
    inputs["attention_mask"][0, 4:] = 0
    return transformers.BertForSequenceClassification(config), {**inputs, "labels": torch.tensor([0, 1])}


def _vit() -> tuple[Any, dict[str, torch.Tensor]]:
    config = transformers.ViTConfig(image_size=32, patch_size=8, **SMALL)
    return transformers.ViTForImageClassification(config), {"pixel_values": torch.randn(2, 3, 32, 32)}


def _convnext() -> tuple[Any, dict[str, torch.Tensor]]:
    config = transformers.ConvNextConfig(hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1])
    return transformers.ConvNextForImageClassification(config), {"pixel_values": torch.randn(2, 3, 64, 64)}


def _swin() -> tuple[Any, dict[str, torch.Tensor]]:
    sizes = {"embed_dim": 12, "depths": [2, 1], "num_heads": [2, 2], "image_size": 32, "window_size": 4}
    config = transformers.SwinConfig(patch_size=2, **sizes)
    return transformers.SwinForImageClassification(config), {"pixel_values": torch.randn(2, 3, 32, 32)}


def _resnet() -> tuple[Any, dict[str, torch.Tensor]]:
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 8, 8, 8], depths=[1, 1, 1, 1])
    return transformers.ResNetForImageClassification(config), {"pixel_values": torch.randn(2, 3, 64, 64)}


def _whisper() -> tuple[Any, dict[str, torch.Tensor]]:
    layers = {f"{half}_{key}": n for half in ("encoder", "decoder") for key, n in _WHISPER_LAYER.items()}
    config = transformers.WhisperConfig(
        vocab_size=99, d_model=32, max_source_positions=50, max_target_positions=40, num_mel_bins=20, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=3, suppress_tokens=None, begin_suppress_tokens=None,
        **layers,
    )  # fmt: skip
    inputs = {"input_features": torch.randn(1, 20, 100), "decoder_input_ids": torch.tensor([[3, 5, 6]])}
    return transformers.WhisperForConditionalGeneration(config), inputs


_WHISPER_LAYER = {"layers": 1, "attention_heads": 2, "ffn_dim": 64}


def _mixtral() -> tuple[Any, dict[str, torch.Tensor]]:
    config = transformers.MixtralConfig(vocab_size=99, num_key_value_heads=2, num_local_experts=4, **SMALL)
    tokens = _tokens(2, 7)
    return transformers.MixtralForCausalLM(config), {"input_ids": tokens, "labels": tokens}


def _llama() -> Any:
    config = transformers.LlamaConfig(
        vocab_size=99, num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2, **SMALL
    )
    return transformers.LlamaForCausalLM(config)


@pytest.mark.parametrize("make", [_bert, _vit, _convnext, _swin, _resnet, _whisper, _mixtral])
def test_results_and_gradients_match_the_cpu(make: Any, device: torch.device) -> None:
    model, inputs = make()
    model.eval()
    there = copy.deepcopy(model).to(device)
    want = model(**inputs)
    got = there(**{k: v.to(device) for k, v in inputs.items()})
    torch.testing.assert_close(got.logits.cpu(), want.logits, rtol=1e-3, atol=1e-4)
    want.logits.square().mean().backward()
    got.logits.square().mean().backward()
    for (name, mine), theirs in zip(there.named_parameters(), model.parameters()):
        if theirs.grad is not None:
            torch.testing.assert_close(mine.grad.cpu(), theirs.grad, rtol=1e-2, atol=1e-4, msg=lambda m, n=name: n + m)


@pytest.mark.parametrize(
    "options",
    [{}, {"num_beams": 3}, {"use_cache": False}, {"cache_implementation": "static"}],
    ids=["greedy", "beams", "no cache", "static cache"],
)
def test_llama_generates_the_cpus_tokens(options: dict[str, Any], device: torch.device) -> None:
    model, prompt = _llama().eval(), _tokens(2, 5)
    there = copy.deepcopy(model).to(device)
    arguments = {"max_new_tokens": 6, "do_sample": False, **options}
    want = model.generate(prompt, **arguments)
    assert torch.equal(there.generate(prompt.to(device), **arguments).cpu(), want)


def test_sampling_repeats_with_a_seed(device: torch.device) -> None:
    model, prompt = _llama().to(device).eval(), _tokens(2, 5).to(device)
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(model.generate(prompt, max_new_tokens=8, do_sample=True, top_k=50, top_p=0.95).tolist())
    assert found[0] == found[1] != found[2]


def test_whisper_generates_the_cpus_tokens(device: torch.device) -> None:
    model, inputs = _whisper()
    features = inputs["input_features"]
    want = model.eval().generate(features, max_new_tokens=6, do_sample=False)
    got = copy.deepcopy(model).to(device).generate(features.to(device), max_new_tokens=6, do_sample=False)
    assert torch.equal(got.cpu(), want)


class _Counting(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        tokens = torch.arange(i, i + 8) % 99
        return {"input_ids": tokens, "labels": tokens}


@pytest.mark.parametrize("precision", [{}, {"bf16": True}, {"fp16": True}], ids=["float32", "bf16", "fp16"])
def test_trainer(precision: dict[str, bool], tmp_path: Path) -> None:
    def train(steps: int, resume: bool) -> Any:
        options = transformers.TrainingArguments(
            str(tmp_path), max_steps=steps, per_device_train_batch_size=4, learning_rate=1e-2, report_to=[],
            save_steps=5, logging_steps=5, eval_strategy="steps", eval_steps=5, disable_tqdm=True,
            **precision,
        )  # fmt: skip
        assert options.device.type == "npu", "the Trainer chose another device"
        trainer = transformers.Trainer(_llama(), options, train_dataset=_Counting(), eval_dataset=_Counting())
        trainer.train(resume_from_checkpoint=resume)
        return trainer

    trainer = train(10, resume=False)
    losses = [entry["eval_loss"] for entry in trainer.state.log_history if "eval_loss" in entry]
    assert losses[-1] < losses[0] < 5
    assert {p.device.type for p in trainer.model.parameters()} == {"npu"}
    assert train(12, resume=True).state.global_step == 12
    trainer.save_model(str(tmp_path / "saved"))
    loaded = transformers.LlamaForCausalLM.from_pretrained(tmp_path / "saved", device_map="npu:0")
    for mine, theirs in zip(loaded.parameters(), trainer.model.parameters()):
        assert mine.device == theirs.device
        assert torch.equal(mine, theirs)
