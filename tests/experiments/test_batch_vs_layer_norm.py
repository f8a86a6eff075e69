"""What batch-vs-layer-norm does beside what it shares with the others."""

from glassformer.experiments.batch_vs_layer_norm import _longer


def test_the_smaller_the_batches_the_longer_models_learn_from_them() -> None:
    assert [_longer(160, count) for count in (1, 2, 4, 16)] == [640, 320, 160, 160]
