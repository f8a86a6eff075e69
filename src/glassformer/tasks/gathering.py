"""Gathering: stretches of a long row of tokens, side by side.

B stretches, S their length
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def gathered(
    flat: NDArray[Any], starts: NDArray[np.int64], lengths: NDArray[np.int64], pad: int, more: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Stretches of a flat array as padded rows (B, S) with `more` places at the end, and which places are filled."""
    places = np.arange(int(lengths.max()) + more)
    mask = places < lengths[:, None]
    index = np.minimum(starts[:, None] + places, len(flat) - 1)
    return np.where(mask, flat[index].astype(np.int64), pad), mask
