"""Views: what a page can ask about a run. One module a view, and one line here.

A view computes nothing itself: it asks the library, and says what it found as an `Answer`.
"""

from glassformer.studio.views import about, compare, decode, inside, layers, positions, read, training, watched
from glassformer.studio.views.view import View

VIEWS: dict[str, View] = {
    view.name: view
    for view in (
        about.VIEW,
        *read.VIEWS,
        *decode.VIEWS,
        *inside.VIEWS,
        *layers.VIEWS,
        *positions.VIEWS,
        training.VIEW,
        watched.VIEW,
        compare.VIEW,
    )
}
