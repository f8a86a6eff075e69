"""Every family against its counterpart in `transformers`: the same logits, in and out."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from glassformer import interop

transformers = pytest.importorskip("transformers")
VOCABULARY = 61
Inputs = tuple[tuple[Any, ...], dict[str, Any]]  # for ours, and for theirs


def sizes(draw: st.DrawFn) -> tuple[int, int, int]:
    torch.manual_seed(draw(st.integers(0, 10**6)))  # the weights of the model to come
    heads = draw(st.sampled_from([1, 2, 4]))
    return heads, heads * draw(st.sampled_from([4, 8])), draw(st.integers(1, 3))


def tokens(draw: st.DrawFn, longest: int = 9) -> tuple[Tensor, Tensor]:
    """Tokens and which of them are real; padding comes last."""
    lengths = draw(st.lists(st.integers(1, longest), min_size=1, max_size=3))
    torch.manual_seed(draw(st.integers(0, 10**6)))
    table = torch.randint(5, VOCABULARY, (len(lengths), max(lengths)))
    keep = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return table.where(keep, 1), keep


@st.composite
def bert(draw: st.DrawFn, name: str) -> tuple[Any, Inputs]:
    heads, width, layers = sizes(draw)
    kind = transformers.BertConfig if name.startswith("Bert") else transformers.RobertaConfig
    config = kind(
        vocab_size=VOCABULARY,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=draw(st.integers(3, 40)),
        max_position_embeddings=20,
        type_vocab_size=2 if name.startswith("Bert") else 1,
        hidden_act=draw(st.sampled_from(["gelu", "relu", "gelu_new"])),
        layer_norm_eps=draw(st.sampled_from([1e-12, 1e-5])),
        num_labels=draw(st.integers(2, 5)) if "Classification" in name else 2,
        pad_token_id=1,
    )
    table, keep = tokens(draw)
    segments = torch.randint(config.type_vocab_size, table.shape)
    ours = (table, keep, segments)
    return getattr(transformers, name)(config), (
        ours,
        {"input_ids": table, "attention_mask": keep.long(), "token_type_ids": segments},
    )


@st.composite
def gpt2(draw: st.DrawFn) -> tuple[Any, Inputs]:
    heads, width, layers = sizes(draw)
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=width,
        n_layer=layers,
        n_head=heads,
        n_positions=20,
        n_inner=draw(st.sampled_from([None, 12])),
        activation_function=draw(st.sampled_from(["gelu_new", "relu"])),
        tie_word_embeddings=draw(st.booleans()),
    )
    table, keep = tokens(draw)
    return transformers.GPT2LMHeadModel(config), ((table, keep), {"input_ids": table, "attention_mask": keep.long()})


@st.composite
def llama(draw: st.DrawFn) -> tuple[Any, Inputs]:
    heads, width, layers = sizes(draw)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=draw(st.sampled_from([each for each in (1, 2, 4) if heads % each == 0])),
        intermediate_size=draw(st.integers(3, 40)),
        rms_norm_eps=draw(st.sampled_from([1e-6, 1e-5])),
        rope_theta=draw(st.sampled_from([10_000.0, 500.0])),
        attention_bias=draw(st.booleans()),
        mlp_bias=draw(st.booleans()),
        tie_word_embeddings=draw(st.booleans()),
    )
    table, keep = tokens(draw)
    return transformers.LlamaForCausalLM(config), ((table, keep), {"input_ids": table, "attention_mask": keep.long()})


def pair(draw: st.DrawFn) -> Inputs:
    (source, keep), (target, _) = tokens(draw), tokens(draw)
    rows = min(len(source), len(target))
    source, keep, target = source[:rows], keep[:rows], target[:rows]
    return (source, target, keep), {
        "input_ids": source,
        "attention_mask": keep.long(),
        "decoder_input_ids": target,
    }


@st.composite
def t5(draw: st.DrawFn) -> tuple[Any, Inputs]:
    heads, width, layers = sizes(draw)
    newer = draw(st.booleans())
    config = transformers.T5Config(
        vocab_size=VOCABULARY,
        d_model=width,
        d_kv=draw(st.sampled_from([4, 8])),
        d_ff=draw(st.integers(3, 40)),
        num_layers=layers,
        num_decoder_layers=draw(st.integers(1, 3)),
        num_heads=heads,
        feed_forward_proj="gated-gelu" if newer else "relu",
        tie_word_embeddings=not newer,
        relative_attention_num_buckets=draw(st.sampled_from([8, 32])),
        relative_attention_max_distance=draw(st.sampled_from([20, 128])),
    )
    model = transformers.T5ForConditionalGeneration(config)
    if newer:  # version 1.1 is not tied, though a fresh model of `transformers` is
        model.lm_head.weight = nn.Parameter(torch.randn(VOCABULARY, width))
    return model, pair(draw)


@st.composite
def bart_like(draw: st.DrawFn, name: str) -> tuple[Any, Inputs]:
    heads, width, layers = sizes(draw)
    kind = transformers.BartConfig if name.startswith("Bart") else transformers.MarianConfig
    config = kind(
        vocab_size=VOCABULARY,
        d_model=width,
        encoder_layers=layers,
        decoder_layers=draw(st.integers(1, 3)),
        encoder_attention_heads=heads,
        decoder_attention_heads=draw(st.sampled_from([1, 2, 4])),
        encoder_ffn_dim=draw(st.integers(3, 40)),
        decoder_ffn_dim=draw(st.integers(3, 40)),
        max_position_embeddings=20,
        activation_function=draw(st.sampled_from(["gelu", "relu", "swish"])),
        scale_embedding=draw(st.booleans()),
        pad_token_id=1,
        eos_token_id=2,
        bos_token_id=3,
        decoder_start_token_id=1,
        forced_eos_token_id=None,
    )
    model = getattr(transformers, name)(config)
    nn.init.normal_(model.final_logits_bias)
    return model, pair(draw)


def vision(draw: st.DrawFn) -> Any:
    heads, width, layers = sizes(draw)
    return transformers.ViTConfig(
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=draw(st.integers(3, 40)),
        image_size=8,
        patch_size=draw(st.sampled_from([2, 4])),
        num_channels=draw(st.sampled_from([1, 3])),
        num_labels=draw(st.integers(2, 5)),
    )


def pixels(draw: st.DrawFn, colours: int) -> Tensor:
    torch.manual_seed(draw(st.integers(0, 10**6)))
    return torch.randn(draw(st.integers(1, 3)), colours, 8, 8)


@st.composite
def vit(draw: st.DrawFn) -> tuple[Any, Inputs]:
    config = vision(draw)
    seen = pixels(draw, config.num_channels)
    return transformers.ViTForImageClassification(config), ((seen,), {"pixel_values": seen})


@st.composite
def captioner(draw: st.DrawFn) -> tuple[Any, Inputs]:
    config = vision(draw)
    heads, width, layers = sizes(draw)
    decoder = transformers.GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=width,
        n_layer=layers,
        n_head=heads,
        n_positions=20,
        add_cross_attention=True,
        is_decoder=True,
    )
    joint = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(config, decoder)
    seen = pixels(draw, config.num_channels)
    told = torch.randint(5, VOCABULARY, (len(seen), draw(st.integers(1, 9))))
    model = transformers.VisionEncoderDecoderModel(joint)
    return model, ((seen, told), {"pixel_values": seen, "decoder_input_ids": told})


FAMILIES: dict[str, Callable[[], st.SearchStrategy[tuple[Any, Inputs]]]] = {
    **{
        name: lambda name=name: bert(name)  # type: ignore[misc]
        for name in (
            "BertModel",
            "BertForMaskedLM",
            "BertForSequenceClassification",
            "BertForTokenClassification",
            "BertForQuestionAnswering",
            "RobertaModel",
            "RobertaForMaskedLM",
            "RobertaForSequenceClassification",
            "RobertaForTokenClassification",
            "RobertaForQuestionAnswering",
        )
    },
    "GPT2LMHeadModel": gpt2,
    "LlamaForCausalLM": llama,
    "T5ForConditionalGeneration": t5,
    "BartForConditionalGeneration": lambda: bart_like("BartForConditionalGeneration"),
    "MarianMTModel": lambda: bart_like("MarianMTModel"),
    "ViTForImageClassification": vit,
    "VisionEncoderDecoderModel": captioner,
}


UNUSED = {"VisionEncoderDecoderModel": "encoder.pooler."}  # what a captioner has no use for, and does not write


def answer(output: Any) -> Tensor:
    """What their model says, as ours says it."""
    if "start_logits" in output:
        return torch.stack((output.start_logits, output.end_logits), dim=-1)
    found: Tensor = output.logits if "logits" in output else output.last_hidden_state
    return found


def real(values: Tensor, inputs: tuple[Any, ...]) -> Tensor:
    """Only what stands at real tokens: what a model makes of padding is nobody's business."""
    keep = inputs[1] if len(inputs) > 1 and inputs[1] is not None and inputs[1].dtype == torch.bool else None
    return values if keep is None or values.dim() < 3 or values.shape[:2] != keep.shape else values[keep]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    return tmp_path_factory.mktemp("checkpoints")


@pytest.mark.parametrize("name", FAMILIES)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_logits_are_the_same_after_loading_and_after_saving(name: str, folder: Path, data: st.DataObject) -> None:
    theirs, (inputs, named) = data.draw(FAMILIES[name]())
    with torch.no_grad():
        for name_of, parameter in theirs.named_parameters():  # norms and biases that do something
            if name != "MarianMTModel" or "embed_positions" not in name_of:  # Marian's positions are waves
                parameter.add_(0.05 * torch.randn_like(parameter))
    theirs.eval().save_pretrained(folder / "theirs")
    ours = interop.load(folder / "theirs")
    with torch.inference_mode():
        expected, got = answer(theirs(**named)), ours(*inputs)
        torch.testing.assert_close(real(got, inputs), real(expected, inputs), atol=1e-5, rtol=1e-5)
        interop.save(ours, folder / "ours")
        again = getattr(transformers, name).from_pretrained(folder / "ours").eval()
        torch.testing.assert_close(real(answer(again(**named)), inputs), real(expected, inputs), atol=1e-5, rtol=1e-5)
    for key, tensor in again.state_dict().items():  # written and read back, not a bit may differ
        if not key.startswith(UNUSED.get(name, "-")):
            assert torch.equal(tensor, theirs.state_dict()[key]), key
