"""Word2Vec by gensim: the same method as `skip_gram`, and faster for large vocabularies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from glassformer.errors import ConfigurationError
from glassformer.static.skipgram import Progress, Settings, counted
from glassformer.static.vectors import Vectors, make_vectors


def gensim_vectors(
    sentences: Sequence[Sequence[str]], settings: Settings | None = None, progress: Progress | None = None
) -> Vectors:
    """Train a vector for each word on sentences, in one thread, so that the same seed gives the same vectors."""
    try:
        from gensim.models import Word2Vec
        from gensim.models.callbacks import CallbackAny2Vec
    except ImportError:
        raise ConfigurationError("gensim is not installed: pip install 'glassformer[vectors]'") from None
    chosen = settings or Settings()
    counted(sentences, chosen.least)

    class Report(CallbackAny2Vec):  # type: ignore[misc]  # gensim has no types
        done = 0

        def on_epoch_end(self, model: Any) -> None:
            self.done += 1
            if progress is not None:
                progress(self.done, chosen.epochs)

    model = Word2Vec(
        [list(sentence) for sentence in sentences],
        vector_size=chosen.width,
        window=chosen.window,
        min_count=chosen.least,
        sample=chosen.sample,
        sg=1,
        negative=chosen.negatives,
        epochs=chosen.epochs,
        seed=chosen.seed,
        workers=1,
        callbacks=[Report()],
    )
    return make_vectors(model.wv.index_to_key, model.wv.vectors)
