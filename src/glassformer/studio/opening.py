"""The page when it opens: its frame, which runs there are, and what was recorded before."""

from __future__ import annotations

import json
from typing import Any

from glassformer.studio.run_pool import ASSETS, RunPool

RECORDED = "studio.json"  # in the folder of a model that ships: its answers to what the page asks first

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Glassformer Studio</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/studio.css">
</head>
<body>
<div id="studio"></div>
<noscript>The Studio needs JavaScript.</noscript>
<script type="application/json" id="start">{start}</script>
<script src="/studio.js"></script>
</body>
</html>
"""


def opening(pool: RunPool) -> str:
    """The page of a Studio that is live."""
    first = pool.folders[pool.names[0]]
    recorded = json.loads((first / RECORDED).read_text("utf-8")) if _is_recorded(pool) else []
    return PAGE.format(start=for_page({"live": True, "runs": pool.names, "recorded": recorded}))


def for_page(data: Any) -> str:
    """Data as JSON in which nothing ends a script, or opens a comment."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def _is_recorded(pool: RunPool) -> bool:
    name = pool.names[0]
    folder = pool.folders[name]
    return folder.parent == ASSETS and name == folder.name and (folder / RECORDED).is_file()
