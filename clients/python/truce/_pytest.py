"""The fixtures for pytest, which finds them by the package's entry point."""
from __future__ import annotations

from typing import Iterator

import pytest

import truce


@pytest.fixture
def truce_db() -> Iterator[truce.Database]:
    """An empty database in memory."""
    with truce.open("memory:") as db:
        yield db
