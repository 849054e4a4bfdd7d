"""pytest finds the fixtures of the installed package. Each test gets an empty database."""
import os

import pytest
import truce


@pytest.mark.parametrize("number", [1, 2])
def test_database_is_empty(truce_db, number):
    assert truce_db["x"].count_documents() == 0
    truce_db["x"].insert_one({"_id": number})
    assert truce_db["x"].find_one() == {"_id": number}


@pytest.mark.parametrize("number", [1, 2])
def test_file_is_empty(truce_file_db, number):
    assert truce_file_db["x"].count_documents() == 0
    truce_file_db["x"].insert_one({"_id": number})


@pytest.mark.skipif("TRUCE_PROGRAM" not in os.environ, reason="TRUCE_PROGRAM is not set")
@pytest.mark.parametrize("number", [1, 2])
def test_server_is_empty(truce_server, number):
    with truce.connect(truce_server) as db:
        assert db["x"].count_documents() == 0
        db["x"].insert_one({"_id": number})
