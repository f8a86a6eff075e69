"""A Studio without a network: the server's application, asked directly."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from glassformer.studio.guards import Endpoint
from glassformer.studio.run_pool import RunPool
from glassformer.studio.server import create_app
from glassformer.tasks.translation import Translator

PORT = 8417
HOST = f"http://127.0.0.1:{PORT}"


@pytest.fixture(scope="session")
def client(trained: Translator) -> Iterator[TestClient]:
    """A Studio with the model that ships and a small run that copies letters."""
    assert trained.path is not None
    app = create_app(RunPool(["en-de", trained.path], "cpu"), Endpoint("127.0.0.1", PORT))
    with TestClient(app, base_url=HOST) as found:
        yield found
