"""Runs each example of the installed package's README, in process, one after the other."""
import ast
import asyncio
import importlib.metadata
import inspect
import logging
import os
import re
import sys
import tempfile
from datetime import datetime, timedelta, timezone

import truce
from truce import aio

logging.getLogger("truce").setLevel(logging.CRITICAL)
message = importlib.metadata.metadata("truce-db")
readme = message.get_payload() or message["Description"]
examples = re.findall(r"```python\n(.*?)```", readme, re.S)
delivered = []


class Worker(truce.Worker):
    """The examples run until a signal; here they end when the queue is empty."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, until_empty=True, **options)


class AsyncWorker(aio.Worker):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, until_empty=True, **options)


def register(db, address):
    db.enqueue("mail", payload={"to": address})


def prepare(db):
    """Creates what the examples expect."""
    db["flights"].insert_one({"_id": "LH 17", "seats": 9})
    db["students"].insert_one({"_id": 1, "year": 2, "student_id": 2})
    db["totals"].insert_one({"_id": 1, "mails": 0})
    db.ledger_open("bank", currency="EUR", digits=2)
    for account in ("cash", "sales"):
        db.ledger_open("bank", currency="EUR", account=account)
    for number in range(7):
        db.revision("posts", save={"_id": 1, "title": f"title {number}"}, version=number or None)
    with db.edit("site", collection="pages") as edit:
        edit.put({"itemId": "home", "title": "Home"})
    db.tree("site", tag="launch")


def run(example, number, names):
    code = compile(example, f"README example {number}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(code, names))
    else:
        exec(code, names)


truce.Worker, aio.Worker = Worker, AsyncWorker
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    names = {"truce": truce, "timedelta": timedelta, "register": register, "print": lambda *_: None,
             "order": {"created": datetime.now(timezone.utc)}, "deliver": delivered.append}
    run(examples[0], 1, names)
    names["db"].close()  # the connection to a server
    names["db"] = db = truce.open("school.truce")
    prepare(db)
    for number, example in enumerate(examples[1:], 2):
        if "aio" in example:  # there, `send` is a coroutine function
            async def send(job):
                return {"sent": True}
            names["send"] = send
        run(example, number, names)
        if "with job.commit" in example:
            db.enqueue("mail", payload={"to": "eve@example.org"})
            Worker(db, "mail", names["send"]).run()
            assert db["totals"].find_one(1)["mails"] == 1
        if "def test_welcome" in example:
            names["send"] = lambda job: None
            with truce.open("memory:") as empty:
                names["test_welcome"](empty)
            with truce.open("memory:") as empty:
                names["test_welcome_inline"](empty)
    assert db["accounts"].find_one("b") == dict(db["accounts"].find_one("b"), n=5)
    assert db["flights"].find_one("LH 17")["seats"] == 8 and "ada@example.org" in delivered
    assert all(job["state"] in ("done", "delayed") for job in db.iterate_jobs("mail")), list(db.iterate_jobs("mail"))
    db.close()
    os.chdir("/")
print(f"module-python: README: {len(examples)} examples")
sys.exit(0 if len(examples) >= 9 else 1)
