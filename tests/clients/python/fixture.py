"""pytest finds the fixture of the installed package. Each test gets an empty database."""
import pytest


@pytest.mark.parametrize("number", [1, 2])
def test_database_is_empty(truce_db, number):
    assert truce_db["x"].count_documents() == 0
    truce_db["x"].insert_one({"_id": number})
    assert truce_db["x"].find_one() == {"_id": number}
