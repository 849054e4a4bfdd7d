"""
How long a test waits for a store: from the start to the first answer, in memory, in a temporary file, and through a private
server. It needs the installed Python package, and the program (TRUCE_PROGRAM).
"""
import contextlib
import statistics
import time

import truce
from truce.testing import open_temporary, start_server

TURNS = 15


@contextlib.contextmanager
def server():
    with start_server() as uri, truce.connect(uri) as db:
        yield db


for name, opened in (("memory", lambda: truce.open("memory:")), ("file", open_temporary), ("server", server)):
    found = []
    for _ in range(TURNS):
        began = time.perf_counter()
        with opened() as db:
            db["x"].insert_one({"_id": 1})
            assert db["x"].find_one(1) == {"_id": 1}
            found.append(1000 * (time.perf_counter() - began))
    print(f"{name:7} {statistics.median(found):6.1f} ms (least {min(found):.1f})")
