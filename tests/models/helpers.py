"""What the tests of models share: tiny models, and sentences for them."""

from hypothesis import strategies as st

from glassformer.models import EncoderDecoder, transformer
from glassformer.parts import PostNorm, PreNorm, Residual

VOCABULARY = 20

placements = st.sampled_from([PreNorm, PostNorm])
seeds = st.integers(0, 2**31 - 1)
sentences = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=7)
batches = st.lists(sentences, min_size=1, max_size=4)


def tiny(placement: Residual = PreNorm, *, layers: int = 2, dropout: float = 0.0) -> EncoderDecoder:
    """A model small enough for a hundred runs, in evaluation mode."""
    model = transformer(VOCABULARY, width=16, heads=2, layers=layers, hidden=24, dropout=dropout, residual=placement)
    return model.eval()
