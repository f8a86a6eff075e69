"""Skip-gram with negative sampling: the Word2Vec of Mikolov and others (2013), from scratch.

Words that occur in similar contexts get similar vectors. For each word c, the model learns to distinguish a word o
that really occurs near it from words n that are drawn at random:

    loss = - log σ(u_o · v_c) - Σ_n log σ(-u_n · v_c)

v are the resulting vectors, u are the vectors of words as neighbours. Occurrences of frequent words are skipped at
random. Random words are drawn with probabilities proportional to count^(3/4).

B pairs in a batch, K negatives, D width, V words, N tokens, P pairs
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glassformer.errors import ConfigurationError, InputError
from glassformer.static.vectors import Vectors, make_vectors

POWER = 0.75  # of the counts, for drawing negatives
MOST, FEWEST, STEPS = 1024, 32, 2_000  # pairs in a batch at most and at least, and the steps that small texts get
Progress = Callable[[int, int], None]  # done, of how many


@dataclass(frozen=True)
class Settings:
    """The options of training, for `skip_gram` and gensim alike."""

    width: int = 100
    window: int = 5  # maximum neighbours on each side; nearer ones are used more often
    negatives: int = 5  # random words for each true neighbour
    epochs: int = 5
    least: int = 5  # minimum count of a word to get a vector
    sample: float = 1e-3  # occurrences of words above this fraction of all tokens are skipped at random; 0: never
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("width", "window", "negatives", "epochs", "least"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0 <= self.sample <= 1:
            raise ConfigurationError(f"sample must be from 0 to 1, not {self.sample}")


class SkipGram(nn.Module):
    """Two vectors for each word: one as the centre word, one as a neighbour."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width, sparse=True)
        self.neighbours = nn.Embedding(vocabulary, width, sparse=True)
        nn.init.uniform_(self.words.weight, -0.5 / width, 0.5 / width)
        nn.init.zeros_(self.neighbours.weight)

    def forward(self, centre: Tensor, near: Tensor, random: Tensor) -> Tensor:
        """The summed loss of pairs of words (B), (B) and random words (B, K)."""
        v = self.words(centre)  # (B, D)
        true = (self.neighbours(near) * v).sum(dim=1)  # (B)
        false = torch.bmm(self.neighbours(random), v.unsqueeze(2)).squeeze(2)  # (B, K)
        return -(F.logsigmoid(true).sum() + F.logsigmoid(-false).sum())


def skip_gram(
    sentences: Sequence[Sequence[str]],
    settings: Settings | None = None,
    batch: int | None = None,
    rate: float = 0.025,
    progress: Progress | None = None,
) -> Vectors:
    """Train a vector for each word on sentences; the same sentences and settings give the same vectors.

    Without a `batch`, small texts are learned in small batches: of few steps, all vectors would still point one way.
    """
    chosen = settings or Settings()
    words, counts = counted(sentences, chosen.least)
    numbers = {word: number for number, word in enumerate(words)}
    known = [[numbers[word] for word in sentence if word in numbers] for sentence in sentences]
    tokens = torch.tensor([number for sentence in known for number in sentence])  # (N)
    sentence_of = torch.tensor([number for number, sentence in enumerate(known) for _ in sentence])  # (N)
    rng = torch.Generator().manual_seed(chosen.seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(chosen.seed)
        model = SkipGram(len(words), chosen.width)
    optimiser = torch.optim.SparseAdam(model.parameters(), lr=rate)
    frequent = torch.tensor(counts, dtype=torch.float64)
    drawn = frequent.pow(POWER).cumsum(0) / frequent.pow(POWER).sum()  # (V)
    learned = 0
    for epoch in range(chosen.epochs):
        kept = torch.rand(len(tokens), generator=rng) < keep_probability(frequent, chosen.sample)[tokens]  # (N)
        centres, near = pairs(tokens[kept], sentence_of[kept], chosen.window, rng)
        order = torch.randperm(len(centres), generator=rng)
        learned += len(order)
        size = batch or min(MOST, max(FEWEST, len(order) * chosen.epochs // STEPS))
        for first in range(0, len(order), size):
            rows = order[first : first + size]  # (B)
            dots = torch.rand(len(rows), chosen.negatives, generator=rng, dtype=torch.float64)
            random = torch.searchsorted(drawn, dots).clamp_(max=len(words) - 1)  # (B, K)
            done = (epoch + (first + len(rows)) / len(order)) / chosen.epochs
            optimiser.param_groups[0]["lr"] = rate * max(1 - done, 1e-3)
            optimiser.zero_grad()
            model(centres[rows], near[rows], random).backward()
            optimiser.step()  # type: ignore[no-untyped-call]
            if progress is not None:
                progress(round(1000 * done), 1000)
    if not learned:
        raise InputError("there is too little to learn from: the random skipping left no pair of neighbours")
    return make_vectors(words, model.words.weight.detach().numpy())


def counted(sentences: Sequence[Sequence[str]], least: int) -> tuple[list[str], list[int]]:
    """The words with a count of at least `least`, most frequent first, and their counts."""
    counts = Counter(word for sentence in sentences for word in sentence)
    kept = sorted((word for word in counts if counts[word] >= least), key=lambda word: (-counts[word], word))
    if len(kept) < 2:
        raise InputError(f"there is nothing to learn from: fewer than two words occur {least} times or more")
    known = {*kept}
    if not any(sum(word in known for word in sentence) > 1 for sentence in sentences):
        raise InputError(f"there is nothing to learn from: no sentence has two words that occur {least} times or more")
    return kept, [counts[word] for word in kept]


def keep_probability(counts: Tensor, sample: float) -> Tensor:
    """The probability to keep an occurrence of each word, (V): min(1, √(s/f) + s/f), f its fraction of all tokens."""
    fraction = counts / counts.sum()
    return torch.ones_like(fraction) if sample <= 0 else ((sample / fraction).sqrt() + sample / fraction).clamp(max=1)


def pairs(tokens: Tensor, sentences: Tensor, window: int, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Centre words and their neighbours in the same sentence, (P) each; each window is drawn from 1 to `window`."""
    reach = torch.randint(1, window + 1, (len(tokens),), generator=rng)  # (N)
    longest = max(Counter(sentences.tolist()).values(), default=0)
    centres, near = [tokens[:0]], [tokens[:0]]
    for distance in range(1, min(window, longest - 1) + 1):
        left = torch.arange(len(tokens) - distance)
        right = left + distance
        together = sentences[left] == sentences[right]
        for centre, other in ((left, right), (right, left)):
            seen = together & (reach[centre] >= distance)
            centres.append(tokens[centre[seen]])
            near.append(tokens[other[seen]])
    return torch.cat(centres), torch.cat(near)  # (P)
