"""The example of the package: orders at the same time, edits at the same time, and the mails."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import truce
from checks import check, report


def call(method, where, body=None, **headers):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + where, data, {"Content-Type": "application/json", **headers}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def order(key, count=1):
    return call("POST", "/orders", {"product": "tea", "count": count, "to": "ada@example.org"}, **{"Idempotency-Key": key})


def check_shop():
    with ThreadPoolExecutor(5) as pool:
        replies = list(pool.map(order, "abcde"))
    check("it never oversells", sorted(code for code, _ in replies) == [201, 201, 201, 409, 409], replies)
    placed = next(body for code, body in replies if code == 201)
    check("an order is placed once", order(placed["_id"]) == (200, placed) == call("GET", f"/orders/{placed['_id']}"))
    check("another order with its key", order(placed["_id"], 2)[0] == 422)
    check("the ledger", call("GET", "/sales") == (200, {"cents": 1350}))
    shown = call("GET", "/products/tea")[1]

    def edit(**fields):
        return call("PUT", "/products/tea", {"document": {**shown["document"], **fields}, "version": shown["version"]})

    check("an edit", edit(name="Sencha")[0] == 200)
    code, merged = edit(price=500)
    check("edits are merged", code == 200 and merged["document"]["name"] == "Sencha"
          and merged["document"]["price"] == 500 and merged["version"] == shown["version"] + 2, merged)
    code, conflict = edit(name="Matcha")
    check("a conflict", code == 409 and [one["path"] for one in conflict["conflicts"]] == ["name"], conflict)
    check("the printed URL", call("GET", "/") == call("GET", "/products"))
    check("no such product", call("GET", "/products/x")[0] == 404)
    check("another _id", call("PUT", "/products/tea", {"document": {}, "version": 1})[0] == 400)
    check("no count", call("POST", "/orders", {"product": "tea"}, **{"Idempotency-Key": "f"})[0] == 422)
    check("no key", call("POST", "/orders", {"product": "tea", "count": 1, "to": "x"})[0] == 422)


def check_all():
    check_shop()
    sent = [server.stdout.readline() for _ in range(3)]
    check("a mail for each order", all(line.startswith("to ada@example.org: your order ") for line in sent), sent)
    server.send_signal(signal.SIGINT)
    check("Ctrl-C ends it without a traceback", server.wait(30) == 0 and server.stderr.read() == "", server.returncode)
    with truce.open(file) as db:
        check("the jobs are done", [job["state"] for job in db.iterate_jobs("mail")] == ["done"] * 3)
        check("the types of the document", type(db["products"].find_one("tea")["since"]).__name__ == "datetime")


with tempfile.TemporaryDirectory() as folder:
    file = os.path.join(folder, "shop.truce")
    server = subprocess.Popen([sys.executable, "-m", "truce.examples.shop", file, "0"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
    try:
        url = server.stdout.readline().strip()
        check_all()
    finally:
        server.kill()
        server.wait()
report("example")
