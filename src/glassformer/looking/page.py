"""A page that needs nothing but itself: HTML with its style inside, and pictures as SVG or PNG inside.

It refers to no other file, and its policy forbids the browser to ask the network for anything. It has no script but
those that it is given. It is light or dark as the reader's system is, and always light on paper.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
import warnings
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from glassformer.looking.style import BLACK

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLE = """
:root { color-scheme: light; --ink: #1b1f24; --quiet: #59636e; --line: #d8dee4; --paper: #fff; --panel: #f6f8fa;
  --accent: #0072b2; --wrong: #ffe2cc; --wrong-line: #d55e00; }
@media screen and (prefers-color-scheme: dark) {
  :root { color-scheme: dark; --ink: #e6e9ed; --quiet: #9aa4b0; --line: #343b44; --paper: #14171b; --panel: #1c2127;
    --accent: #56b4e9; --wrong: #55300f; --wrong-line: #e69f00; }
}
* { box-sizing: border-box; }
body { font: 16px/1.5 system-ui, "Segoe UI", "Noto Sans", sans-serif; max-width: 68rem; margin: 2.5rem auto;
  padding: 0 1.25rem; color: var(--ink); background: var(--paper); }
h1 { font-size: 1.75rem; line-height: 1.25; margin: 0 0 .5rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .75rem; padding-bottom: .3rem; border-bottom: 1px solid var(--line); }
p { margin: .5rem 0; max-width: 48rem; overflow-wrap: anywhere; }
.quiet { color: var(--quiet); }
.note { border-left: 3px solid var(--wrong-line); padding: .1rem .8rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .4rem .9rem .4rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
th { font-weight: 600; color: var(--quiet); font-size: .85rem; white-space: nowrap; }
.numbers td, .numbers th { text-align: right; white-space: nowrap; }
.numbers td:first-child, .numbers th:first-child { text-align: left; }
.numbers td.text, .numbers th.text { text-align: left; white-space: normal; padding-left: .6rem; }
.texts { width: 100%; }
.texts td { white-space: pre-wrap; overflow-wrap: break-word; }
.texts td:has(> img) { width: 4.5rem; }
mark { color: inherit; background: var(--wrong); border-bottom: 2px solid var(--wrong-line); border-radius: 2px; }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(10rem, 1fr)); gap: .75rem 1.5rem;
  margin: 1.25rem 0; }
dt { font-size: .85rem; color: var(--quiet); }
dd { margin: 0; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
figure { margin: 1rem 0; overflow-x: auto; }
figcaption { color: var(--quiet); font-size: .9rem; }
svg { display: block; max-width: 100%; height: auto; }
svg text { fill: currentColor; }
img { display: block; image-rendering: pixelated; width: 3rem; height: 3rem; object-fit: contain;
  border: 1px solid var(--line); }
pre { background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: .8rem 1rem; margin: .5rem 0;
  overflow-x: auto; font: .875rem/1.5 ui-monospace, "DejaVu Sans Mono", monospace; }
summary { cursor: pointer; color: var(--accent); padding: .3rem 0; }
@media (max-width: 40rem) { figure svg { min-width: 36rem; } }
@media print {
  body { max-width: none; margin: 0; font-size: 11pt; }
  h2 { break-after: avoid; } figure, tr { break-inside: avoid; }
  pre { white-space: pre-wrap; }
  details::details-content { content-visibility: visible; block-size: auto; }
}
"""


def page(title: str, parts: Iterable[str], scripts: Sequence[str] = ()) -> str:
    """A page with a title, which is escaped, parts, which are HTML, and scripts, which run when those are there."""
    scripts = [within_html(script) for script in scripts]
    body = "\n".join([*parts, *(f"<script>{script}</script>" for script in scripts), ""])
    text = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_policy(scripts)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<h1 dir="auto">{escape(title)}</h1>
{body}</body>
</html>
"""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def within_html(script: str) -> str:
    """A script in which nothing ends it, or opens a comment, for who reads HTML."""
    return re.sub(r"<(?=/?script|!--)", r"\\x3c", script, flags=re.IGNORECASE)


def _policy(scripts: Iterable[str]) -> str:
    """What the page may do: run its own scripts, have its own style and pictures, and nothing else."""
    allowed = " ".join(map(fingerprint, scripts)) or "'none'"
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"


def fingerprint(text: str) -> str:
    """What a policy calls a script or a style that it allows."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def paragraph(text: str, kind: str = "") -> str:
    """A text as a paragraph; `kind` is a class of the style."""
    return f"<p{_class(kind)}>{escape(text)}</p>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "numbers", last_is_text: bool = False) -> str:
    """A table of cells that are HTML already; its head is escaped."""
    width = len(head)

    def row(cells: Sequence[str], tag: str) -> str:
        classes = ["text" if last_is_text and number == width - 1 else "" for number in range(width)]
        found = (f"<{tag}{_class(each)}>{cell}</{tag}>" for cell, each in zip(cells, classes, strict=True))
        return f"<tr>{''.join(found)}</tr>"

    body = "\n".join(row(cells, "td") for cells in rows)
    names = row([escape(name) for name in head], "th")
    return f'<div class="wide"><table{_class(kind)}><thead>{names}</thead>\n<tbody>\n{body}\n</tbody></table></div>'


def svg(figure: Figure, name: str, label: str) -> str:
    """A figure as SVG inside a page; `name` makes its identifiers different from those of others, `label` describes it.

    Letters stay letters, which can be searched, in the reader's fonts. What is black has the colour of the page's
    text, and the background is the page's.
    """
    import matplotlib as mpl

    text = io.StringIO()
    settings = {"svg.fonttype": "none", "svg.hashsalt": "glassformer"}
    with mpl.rc_context(settings), warnings.catch_warnings():  # type: ignore[arg-type]
        warnings.filterwarnings("ignore", message=".*(Glyph|Matplotlib currently does not support)")
        figure.savefig(text, format="svg", dpi=150, transparent=True, metadata={"Date": None})
    drawn = text.getvalue()
    drawn = re.sub(r"<metadata>.*?</metadata>", "", drawn[drawn.index("<svg") :], flags=re.DOTALL)
    drawn = re.sub(r"<[^>]*>", lambda tag: _inside(tag[0], name), drawn)
    return drawn.replace("<svg", f'<svg role="img" aria-label="{escape(label)}"', 1).strip()


def _inside(tag: str, name: str) -> str:
    """A tag of a figure as it is inside a page."""
    tag = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", tag).replace("xlink:href=", "href=").replace(BLACK, "currentColor")
    return re.sub(r'(\bid="|\bhref="#|url\(#)', rf"\g<1>{name}-", tag)


def png(data: str, label: str) -> str:
    """A picture inside a page, of the bytes of a PNG file in base64."""
    return f'<img src="data:image/png;base64,{data}" alt="{escape(label)}">'


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
