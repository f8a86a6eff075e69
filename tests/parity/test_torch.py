"""The same weights in torch.nn.Transformer give the same logits."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glassformer.models import transformer
from glassformer.parts import PostNorm, PreNorm, Residual, pad

from .helpers import VOCABULARY, TorchTransformer, shaken

sentences = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=7)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**31 - 1),
    heads=st.integers(1, 4),
    head_width=st.sampled_from([2, 4, 8]),
    hidden=st.integers(1, 40),
    layers=st.integers(1, 3),
    decoder_layers=st.integers(1, 3),
    placement=st.sampled_from([PreNorm, PostNorm]),
    batch=st.lists(sentences, min_size=1, max_size=4),
    length=st.integers(1, 7),
)
def test_the_same_weights_give_the_logits_of_torch_nn_transformer(
    seed: int,
    heads: int,
    head_width: int,
    hidden: int,
    layers: int,
    decoder_layers: int,
    placement: Residual,
    batch: list[list[int]],
    length: int,
) -> None:
    torch.manual_seed(seed)
    width = heads * head_width
    ours = shaken(
        transformer(VOCABULARY, width, heads, layers, hidden, decoder_layers=decoder_layers, residual=placement)
    ).double()  # a norm over two features multiplies what float32 rounds
    theirs = TorchTransformer(ours, placement, heads, hidden).double().eval()
    source, mask = pad(batch)
    target = torch.randint(VOCABULARY, (len(batch), length))
    torch.testing.assert_close(ours(source, target, mask), theirs(source, target, mask), atol=1e-6, rtol=1e-6)
