"""What the families write, token for token as `generate` of `transformers`; prompts of any lengths together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

import glassformer as gf
from glassformer import interop
from glassformer.models import DecoderOnly, gpt2, llama

from .test_families import FAMILIES, VOCABULARY

transformers = pytest.importorskip("transformers")
LENGTH, PAD, END = 8, 1, 2
ENCODER_DECODERS = ("T5ForConditionalGeneration", "BartForConditionalGeneration", "MarianMTModel")
DECODERS = ("GPT2LMHeadModel", "LlamaForCausalLM")


def sharpened(model: Any) -> Any:
    """Weights large enough that no two tokens are about equally likely."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


def written(model: Any, beams: int, **inputs: Tensor) -> list[list[int]]:
    """The new tokens of `generate`, up to the end."""
    outputs = model.generate(
        **inputs,
        num_beams=beams,
        max_new_tokens=LENGTH,
        do_sample=False,
        early_stopping="never" if beams > 1 else False,
        length_penalty=1.0,
        pad_token_id=PAD,
        eos_token_id=END,
    )
    start = inputs["input_ids"].shape[1] if not model.config.is_encoder_decoder else 1
    rows = outputs[:, start:].tolist()
    return [row[: row.index(END)] if END in row else row for row in rows]


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize("name", [*ENCODER_DECODERS, *DECODERS])
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_outputs_equal_those_of_generate(
    name: str, beams: int, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    theirs, (inputs, named) = data.draw(FAMILIES[name]())
    if name.startswith("T5"):  # whose cache in `transformers` has as many layers as the encoder
        assume(theirs.config.num_decoder_layers <= theirs.config.num_layers)
    theirs, folder = sharpened(theirs), tmp_path_factory.mktemp("model")
    theirs.save_pretrained(folder)
    ours: Any = interop.load(folder)
    if name in DECODERS:
        table, keep = inputs
        limits = gf.Limits(start=None, end=END, max_length=LENGTH)
        read: tuple[Tensor, ...] = (table, keep)
        # `generate` wants prompts padded on the left, one length at a time keeps it honest
        expected = [
            written(theirs, beams, input_ids=row[real][None], attention_mask=torch.ones(1, int(real.sum())).long())[0]
            for row, real in zip(table, keep, strict=True)
        ]
    else:
        source, _, keep = inputs
        start = getattr(theirs.config, "decoder_start_token_id", theirs.config.pad_token_id)
        limits, read = gf.Limits(start=start, end=END, max_length=LENGTH), (source, keep)
        theirs.generation_config.decoder_start_token_id = start
        expected = written(theirs, beams, input_ids=named["input_ids"], attention_mask=named["attention_mask"])
    if beams == 1:
        got = [each.tokens for each in gf.greedy(ours, *read, limits=limits)]
    else:
        got = [best.tokens for best, *_ in gf.beam_search(ours, *read, limits=limits, width=beams)]
    assert got == expected


def small(kind: str) -> DecoderOnly:
    torch.manual_seed(0)
    numbers: dict[str, Any] = {"vocabulary": VOCABULARY, "width": 16, "heads": 2, "layers": 2, "length": 40}
    model = gpt2(**numbers) if kind == "gpt2" else llama(**numbers, hidden=24, key_value_heads=1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@given(st.lists(st.lists(st.integers(3, VOCABULARY - 1), min_size=1, max_size=9), min_size=1, max_size=4))
@settings(max_examples=15, deadline=None)
def test_prompts_change_nothing_for_each_other(kind: str, prompts: list[list[int]]) -> None:
    model, limits = small(kind), gf.Limits(start=None, end=END, max_length=6)
    together = gf.beam_search(model, *gf.pad(prompts, PAD), limits=limits, width=3, best=2)
    for prompt, found in zip(prompts, together, strict=True):
        (alone,) = gf.beam_search(model, torch.tensor([prompt]), limits=limits, width=3, best=2)
        assert [each.tokens for each in found] == [each.tokens for each in alone]
        whole = torch.tensor([[*prompt, *found[0].tokens, *([END] if found[0].finished else [])]])
        with torch.inference_mode():
            scores = model(whole)[0, len(prompt) - 1 : -1].log_softmax(dim=-1)
        right = whole[0, len(prompt) :, None]
        assert float(scores.gather(1, right).sum()) == pytest.approx(found[0].log_probability, abs=1e-4)


def test_bad_prompts_are_a_sentence() -> None:
    model, limits = small("gpt2"), gf.Limits(start=None, end=END, max_length=6)
    with pytest.raises(gf.InputError, match=r"the prompt holds the id 61, but the vocabulary has the ids 0 to 60"):
        gf.greedy(model, torch.tensor([[61]]), limits=limits)
    with pytest.raises(gf.InputError, match=r"position 40 is beyond the learned table"):
        gf.greedy(model, torch.full((1, 38), 5), limits=gf.Limits(start=None, end=END, max_length=9, min_length=9))
    with pytest.raises(gf.InputError, match=r"padding only"):
        gf.greedy(model, torch.tensor([[5, 6]]), torch.zeros(1, 2, dtype=torch.bool), limits=limits)
    translator = gf.transformer(30, width=16, heads=2, layers=1, hidden=16)
    with pytest.raises(gf.ConfigurationError, match=r"has no prompt: Limits\.start must be a token id, not None"):
        gf.greedy(translator, torch.tensor([[5]]), limits=limits)


def test_a_real_story_goes_on_as_it_should() -> None:
    folder = Path(__file__).parents[3] / "shared" / "weights" / "tinystories-llama-260k"
    if not folder.is_dir():
        pytest.skip("tinystories-llama-260k is not beside this checkout, under ../shared/weights")
    from safetensors.torch import load_file

    golden = load_file(folder / "golden.safetensors")
    model: Any = interop.load(folder)
    prompt, limits = golden["input_ids"], gf.Limits(start=None, end=2, max_length=40)
    (story,) = gf.greedy(model, prompt, limits=limits)
    assert story.tokens == golden["generated_greedy_40"][0, prompt.shape[1] :].tolist()
