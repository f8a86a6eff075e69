"""A beam search in tensors of fixed shapes: a step of it needs nothing from the host.

Of each step it keeps the candidates that it considered, each with its parent, and which of them are the next beams. A
finished output is a place in these tables: its tokens are found by following the parents back (`hypotheses`).

B sentences, k beams, C candidates, V vocabulary, N finished outputs, t steps, H tokens that rules look back at
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from glassformer.decoding.hypotheses import Record, hypotheses
from glassformer.decoding.largest import largest
from glassformer.decoding.limits import Limits, Scorer
from glassformer.decoding.loop import Rows
from glassformer.decoding.paths import Expansion, Paths
from glassformer.decoding.protocol import Hypothesis
from glassformer.decoding.tables import Tables, empty_history
from glassformer.errors import ConfigurationError

EarlyStopping = Literal["never", "estimated", "filled"]


@dataclass(frozen=True)
class Rules:
    """What a search is told: how many beams, how many finished outputs it collects, and when it stops."""

    scorer: Scorer
    width: int
    collected: int
    length_penalty: float
    early_stopping: EarlyStopping
    watchers: tuple[Callable[[Expansion], None], ...] = ()

    @property
    def limits(self) -> Limits:
        """Which outputs are allowed."""
        return self.scorer.limits

    @property
    def candidates(self) -> int:
        """How many continuations of a sentence are considered in a step."""
        return (1 + len(self.limits.ends)) * self.width

    def penalties(self, steps: int) -> list[tuple[float, float]]:
        """After each step: length^α, and reach^α, where no beam can score above s / reach^α, or is taken not to."""
        alpha, most = self.length_penalty, self.limits.max_length
        pairs = []
        for length in range(1, min(steps, most) + 1):
            reach = length
            if self.early_stopping == "never":
                reach = most if alpha > 0 else length + 1
            pairs.append((math.pow(length, alpha), math.pow(reach, alpha)))
        return pairs + [(1.0, 1.0)] * (steps - len(pairs))


@dataclass
class Beams(Tables):
    """The search of some sentences."""

    axes: ClassVar[Mapping[str, int | None]] = {
        **dict.fromkeys(("step", "bounds"), None),
        **dict.fromkeys(("tokens", "scores", "done", "broken", "best_scores", "best_places", "history"), 0),
        **dict.fromkeys(("codes", "each", "totals", "ranks"), 1),
    }
    steps: ClassVar[tuple[str, ...]] = ("codes", "each", "totals", "ranks")

    rules: Rules
    sentences: list[int]
    step: Tensor  # (1): how many steps were taken
    bounds: Tensor  # (2): the least and the most tokens
    penalties: Tensor  # (t, 2): see `Rules.penalties`
    tokens: Tensor  # (B, k): what the beams read next
    scores: Tensor  # (B, k): the sum of log-probabilities; -inf: no beam
    done: Tensor  # (B)
    broken: Tensor  # (B): had a score that is not a number
    best_scores: Tensor  # (B, N): of the finished outputs, best first; -inf: none
    best_places: Tensor  # (B, N): step * C + rank of the candidate that each of them is
    codes: Tensor  # (t, B, C): token * k + parent of each candidate
    each: Tensor  # (t, B, C): the log-probability of its token
    totals: Tensor  # (t, B, C): and of all its tokens
    ranks: Tensor  # (t, B, k): the candidates that are the next beams
    history: Tensor  # (B, k, H): what rules that look back read, the latest last
    paths: Paths | None = None  # the beams with all their tokens, where somebody needs them

    @classmethod
    def begin(cls, rules: Rules, tokens: Tensor, history: Tensor, steps: int = 0) -> Beams:
        """The search before its first step, which reads tokens (B, 1), or (B, k) where it has all its beams already."""
        (rows, width), device = tokens.shape, tokens.device
        scores = torch.full((rows, width), -torch.inf, device=device)
        scores[:, 0] = 0.0
        flags = torch.zeros(2, rows, dtype=torch.bool, device=device)
        precise = torch.float32 if device.type == "mps" else torch.float64  # as Python's numbers, where possible
        best = torch.full((rows, rules.collected), -torch.inf, dtype=precise, device=device)
        table = torch.zeros(steps, rows, rules.candidates, device=device)
        return cls(
            rules=rules,
            sentences=list(range(rows)),
            step=torch.zeros(1, dtype=torch.long, device=device),
            bounds=torch.tensor([rules.limits.min_length, rules.limits.max_length]).to(device),
            penalties=torch.tensor(rules.penalties(steps), dtype=precise).view(steps, 2).to(device),
            tokens=tokens,
            scores=scores,
            done=flags[0],
            broken=flags[1],
            best_scores=best,
            best_places=torch.zeros_like(best, dtype=torch.long),
            codes=table.long(),
            each=table,
            totals=table.clone(),
            ranks=table[..., : rules.width].long(),
            history=history,
            paths=Paths.empty(rows, device) if rules.watchers or rules.scorer.prefix is not None else None,
        )

    def check(self, vocabulary: int) -> None:
        """Refuse what this vocabulary does not allow."""
        if self.rules.width > vocabulary:
            raise ConfigurationError(f"the beam width {self.rules.width} is above the vocabulary size {vocabulary}")
        self.rules.scorer.check(vocabulary)

    # --- one step

    def advance(self, logits: Tensor) -> tuple[Beams, Tensor]:
        """The search after one step, given the logits (B, k, V); and which beams the next ones continue, (B, k)."""
        rules, width, many = self.rules, self.rules.width, self.rules.candidates
        each, tokens = self._likeliest(logits)  # (B, k, C)
        totals, chosen = (self.scores[:, :, None] + each).flatten(1).topk(min(many, each[0].numel()), dim=-1)  # (B, C)
        parents = chosen // each.shape[-1]
        tokens, each = tokens.flatten(1).gather(1, chosen), each.flatten(1).gather(1, chosen)
        last = self.step == self.bounds[1] - 1  # (1)
        closing = rules.scorer.ending(tokens) | last
        finished = (closing & (totals > -torch.inf))[:, :width]  # only these: the others were never among the k best
        scores, ranks = totals.masked_fill(closing, -torch.inf).topk(width, dim=-1)  # (B, k)
        self._write(codes=tokens * width + parents, each=each, totals=totals, ranks=ranks)
        now = self.penalties.index_select(0, self.step)  # (1, 2); in float64, and so is what is divided by it
        best_scores, best_places = self._collected(totals[:, :width] / now[:, :1], finished)
        paths = self._followed(totals, parents, tokens, each, finished, scores, ranks)
        after = replace(
            self,
            step=self.step + 1,
            tokens=(going_on := tokens.gather(1, ranks)),
            scores=scores,
            done=self.done | self.settled(best_scores[:, -1], scores[:, 0] / now[:, 1]) | last,
            broken=self.broken | (totals[:, 0].isnan() & ~self.done),
            best_scores=best_scores,
            best_places=best_places,
            history=_continued(self.history, beams := parents.gather(1, ranks), going_on),
            paths=paths,
        )
        return after, beams

    def _likeliest(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probabilities and tokens of the likeliest continuations of each beam, (B, k, C) each."""
        scorer, count = self.rules.scorer, self.rules.candidates
        if scorer.prefix is not None and self.paths is not None:
            return largest(scorer(logits, self.paths.tokens, self.sentences), count)
        return scorer.likeliest(logits, self.step, self.bounds, self.history, count)

    def _write(self, **new: Tensor) -> None:
        """Keep what was considered in this step; a vocabulary may have fewer tokens than the tables have columns."""
        for name, values in new.items():
            table: Tensor = getattr(self, name)
            missing = table.shape[2] - values.shape[1]
            table.index_copy_(0, self.step, (F.pad(values, (0, missing)) if missing else values)[None])

    def _collected(self, new: Tensor, finished: Tensor) -> tuple[Tensor, Tensor]:
        """Scores and places of the best finished outputs, (B, N) each, among them those of this step, (B, k)."""
        if not new.is_cuda and not bool(finished.any()):  # on a CPU, asking is cheaper than sorting
            return self.best_scores, self.best_places
        new = new.masked_fill(~finished | self.done[:, None], -torch.inf)
        ranks = torch.arange(new.shape[1], device=new.device)
        places = (self.step * self.rules.candidates + ranks).expand_as(new)
        scores, order = torch.cat((self.best_scores, new), dim=1).sort(dim=1, descending=True, stable=True)
        order = order[:, : self.rules.collected]
        return scores[:, : self.rules.collected], torch.cat((self.best_places, places), dim=1).gather(1, order)

    def settled(self, worst: Tensor, highest: Tensor) -> Tensor:
        """Whether each search stops, (B), given its worst finished output (-inf: too few) and what a beam may reach."""
        full = worst > -torch.inf
        if self.rules.early_stopping != "filled":
            full = full & (worst >= highest)
        return full | (highest == -torch.inf)

    def _followed(
        self,
        totals: Tensor,
        parents: Tensor,
        tokens: Tensor,
        each: Tensor,
        finished: Tensor,
        scores: Tensor,
        ranks: Tensor,
    ) -> Paths | None:
        """The next beams with all their tokens, where somebody needs them; watchers are told of all candidates."""
        if self.paths is None:
            return None
        candidates = self.paths.extend(totals, parents, tokens, each)
        if self.rules.watchers:
            ended = F.pad(finished, (0, totals.shape[1] - finished.shape[1]))
            kept = torch.zeros_like(ended).scatter(1, ranks, scores.isfinite())
            step = Expansion(self.sentences, candidates, ended, kept, ranks, self.rules.length_penalty)
            for tell in self.rules.watchers:
                tell(step)
        paths = candidates.select(ranks)
        paths.scores = scores  # -inf for paths that have ended
        return paths

    # --- sentences that leave, and other memory

    def keep(self, rows: Tensor, sentences: list[int]) -> Beams:
        kept = super().keep(rows, sentences)
        return kept if kept.paths is None else replace(kept, paths=kept.paths.of(rows))

    def reserve(self, steps: int) -> Beams:
        roomier = super().reserve(steps)
        return roomier if roomier is self else replace(roomier, penalties=self._penalties(len(roomier.codes)))

    def _penalties(self, steps: int) -> Tensor:
        return torch.tensor(self.rules.penalties(steps), dtype=self.penalties.dtype).to(self.penalties.device)

    @property
    def key(self) -> tuple[Any, ...] | None:
        """What captured steps depend on; None: a step needs the host."""
        rules = self.rules
        if self.paths is not None:
            return None
        return "beams", rules.width, rules.collected, rules.early_stopping == "filled", rules.scorer.key

    def empty(self, sentences: int, steps: int) -> Beams:
        """A search by the same rules for so many sentences and steps, which has all its beams already."""
        tokens = torch.zeros(sentences, self.rules.width, dtype=torch.long, device=self.tokens.device)
        return Beams.begin(self.rules, tokens, empty_history(self, tokens, steps), steps)

    def load(self, other: Beams) -> None:
        width = self.tokens.shape[1]
        if other.rules is not self.rules:
            self.penalties.copy_(other._penalties(len(self.penalties)))
            self.rules = other.rules
        if len(other.done) < len(self.done):
            self.done.fill_(True)
        if other.tokens.shape[1] < width:  # before the first step there is one beam
            missing = (0, width - 1)
            scores = F.pad(other.scores, missing, value=-torch.inf)
            past = other.history.expand(-1, width, -1)
            other = replace(other, tokens=other.tokens.expand(-1, width), scores=scores, history=past)
        super().load(other)

    def prepare(self, rows: Rows, length: int, steps: int) -> None:
        """Nothing: a step needs nothing from the host."""

    # --- what the host reads

    def outputs(self, rows: list[int], length: int) -> list[list[Hypothesis]]:
        """The finished outputs of some rows after so many steps, best first."""
        chosen = torch.tensor(rows).to(self.tokens.device)
        some = [x.index_select(0, chosen) for x in (self.best_scores, self.best_places)]
        some += [x[:length].index_select(1, chosen) for x in (self.codes, self.each, self.totals, self.ranks)]
        scores, places, codes, each, totals, ranks = (x.cpu().numpy() for x in some)
        record = Record(scores, places, codes, each, totals, ranks, self.rules.width)
        return hypotheses(record, self.rules.limits.ends)


def _continued(history: Tensor, beams: Tensor, tokens: Tensor) -> Tensor:
    """The histories (B, k, H) of the next beams: those that they continue, and a token each, (B, k)."""
    if not history.shape[-1]:
        return history.expand(-1, beams.shape[1], -1)
    past = history.gather(1, beams[:, :, None].expand(-1, -1, history.shape[-1]))
    return torch.cat((past[..., 1:], tokens[..., None]), dim=-1)
