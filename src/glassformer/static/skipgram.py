"""Skip-gram with negative sampling: the Word2Vec of Mikolov and others (2013), from scratch.

Words that stand among the same words get like vectors. Each word c is asked to tell the words o around it, which really
stood there, from words n that were drawn at random:

    loss = - log σ(u_o · v_c) - Σ_n log σ(-u_n · v_c)

v are the vectors that are kept, u those of words as neighbours. Frequent words are skipped now and then, and drawn less
often than they are met: by their counts to the power of 3/4.

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

POWER = 0.75  # of the counts, by which negatives are drawn
Progress = Callable[[int, int], None]  # done, of how many


@dataclass(frozen=True)
class Settings:
    """How vectors are learned, by whichever program."""

    width: int = 100
    window: int = 5  # neighbours on each side at most; nearer ones are taken more often
    negatives: int = 5  # random words for each true neighbour
    epochs: int = 5
    least: int = 5  # times that a word must occur to get a vector
    sample: float = 1e-3  # share of a text beyond which a word is skipped now and then; 0: never
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("width", "window", "negatives", "epochs", "least"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be at least 1, not {getattr(self, name)}")


class SkipGram(nn.Module):
    """Two vectors for each word: one as the word that is looked at, one as a neighbour."""

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
    batch: int = 1024,
    rate: float = 0.025,
    progress: Progress | None = None,
) -> Vectors:
    """Learn a vector for each word from sentences; the same sentences and settings give the same vectors."""
    chosen = settings or Settings()
    words, counts = counted(sentences, chosen.least)
    numbers = {word: number for number, word in enumerate(words)}
    known = [[numbers[word] for word in sentence if word in numbers] for sentence in sentences]
    tokens = torch.tensor([number for sentence in known for number in sentence])  # (N)
    places = torch.tensor([place for place, sentence in enumerate(known) for _ in sentence])  # (N)
    dice = torch.Generator().manual_seed(chosen.seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(chosen.seed)
        model = SkipGram(len(words), chosen.width)
    optimiser = torch.optim.SparseAdam(model.parameters(), lr=rate)
    frequent = torch.tensor(counts, dtype=torch.float64)
    drawn = frequent.pow(POWER).cumsum(0) / frequent.pow(POWER).sum()  # (V)
    learned = 0
    for epoch in range(chosen.epochs):
        kept = torch.rand(len(tokens), generator=dice) < keeping(frequent, chosen.sample)[tokens]  # (N)
        centres, near = pairs(tokens[kept], places[kept], chosen.window, dice)
        order = torch.randperm(len(centres), generator=dice)
        learned += len(order)
        for first in range(0, len(order), batch):
            rows = order[first : first + batch]  # (B)
            dots = torch.rand(len(rows), chosen.negatives, generator=dice, dtype=torch.float64)
            random = torch.searchsorted(drawn, dots).clamp_(max=len(words) - 1)  # (B, K)
            done = (epoch + (first + len(rows)) / len(order)) / chosen.epochs
            optimiser.param_groups[0]["lr"] = rate * max(1 - done, 1e-3)
            optimiser.zero_grad()
            model(centres[rows], near[rows], random).backward()
            optimiser.step()  # type: ignore[no-untyped-call]
            if progress is not None:
                progress(round(1000 * done), 1000)
    if not learned:
        raise InputError("there is too little to learn from: of so few words, all that stood together were skipped")
    return make_vectors(words, model.words.weight.detach().numpy())


def counted(sentences: Sequence[Sequence[str]], least: int) -> tuple[list[str], list[int]]:
    """The words that occur often enough, most frequent first, and how often they do."""
    counts = Counter(word for sentence in sentences for word in sentence)
    kept = sorted((word for word in counts if counts[word] >= least), key=lambda word: (-counts[word], word))
    if len(kept) < 2:
        raise InputError(f"there is nothing to learn from: fewer than two words occur {least} times or more")
    known = {*kept}
    if not any(sum(word in known for word in sentence) > 1 for sentence in sentences):
        raise InputError(f"there is nothing to learn from: no sentence has two words that occur {least} times or more")
    return kept, [counts[word] for word in kept]


def keeping(counts: Tensor, sample: float) -> Tensor:
    """How likely a token of each word is kept, (V): √(s/f) + s/f for a word with share f of all tokens, 1 at most."""
    share = counts / counts.sum()
    return torch.ones_like(share) if sample <= 0 else ((sample / share).sqrt() + sample / share).clamp(max=1)


def pairs(tokens: Tensor, places: Tensor, window: int, dice: torch.Generator) -> tuple[Tensor, Tensor]:
    """Words and their neighbours in the same sentence, (P) each; a word's own window is drawn, up to the widest."""
    reach = torch.randint(1, window + 1, (len(tokens),), generator=dice)  # (N)
    centres, near = [], []
    for distance in range(1, window + 1):
        left = torch.arange(max(len(tokens) - distance, 0))
        right = left + distance
        together = places[left] == places[right]
        for centre, other in ((left, right), (right, left)):
            seen = together & (reach[centre] >= distance)
            centres.append(tokens[centre[seen]])
            near.append(tokens[other[seen]])
    return torch.cat(centres), torch.cat(near)  # (P)
