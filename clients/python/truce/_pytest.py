"""The fixtures for pytest, which finds them by the package's entry point."""
from __future__ import annotations

from typing import Iterator

import pytest

import truce
from truce import testing


@pytest.fixture
def truce_db() -> Iterator[truce.Database]:
    """An empty database in memory."""
    with truce.open("memory:") as db:
        yield db


@pytest.fixture
def truce_file_db() -> Iterator[truce.Database]:
    """An empty database in a temporary file."""
    with testing.open_temporary() as db:
        yield db


@pytest.fixture
def truce_server() -> Iterator[str]:
    """The URI of an empty private server. It needs the program truce (TRUCE_PROGRAM)."""
    with testing.start_server() as uri:
        yield uri
