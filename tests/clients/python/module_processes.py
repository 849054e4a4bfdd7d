"""A store in process, with forks, processes, threads, signals, garbage collection, and the end of the interpreter."""
import gc
import http.server
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import truce
from checks import check, report
from other_server import other_server


def add(path, count, start):
    with truce.open(path) as db:
        for i in range(start, start + count):
            db["numbers"].insert_one({"_id": i})


def check_processes(path, method):
    context = multiprocessing.get_context(method)
    children = [context.Process(target=add, args=(path, 25, 25 * i)) for i in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    check(f"processes by {method}", [child.exitcode for child in children] == [0] * 4)
    with truce.open(path) as db:
        check(f"nothing is lost by {method}", db["numbers"].distinct("_id") == list(range(100)))
        db["numbers"].drop()


def in_fork(call):
    """Runs `call` in a forked child. Returns whether the child ended with True."""
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        try:
            os._exit(0 if call() else 1)
        except BaseException as error:
            print(repr(error))
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def check_fork(folder):
    path = os.path.join(folder, "fork.truce")
    stop = threading.Event()
    db = truce.open(path)

    def write():
        while not stop.is_set():
            db["log"].insert_one({"n": 1})

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()

    def refused():
        try:
            db["log"].find_one()
        except truce.Invalid as error:
            return "fork" in str(error)
        return False

    def closed():
        db.close()
        return True

    def another():
        with truce.open(os.path.join(folder, f"child{os.getpid()}.truce")) as mine:
            mine["x"].insert_one({"_id": 1})
            return mine["x"].find_one() == {"_id": 1}

    for what, call in (("a store of the parent", refused), ("close in a child", closed), ("another file in a child", another)):
        for _ in range(5):
            check(what, in_fork(call))
    stop.set()
    for thread in threads:
        thread.join()
    count = db["log"].count_documents()
    db.close()
    with truce.open(path) as db:
        check("the parent's writes are stored", db["log"].count_documents() == count > 0)


def check_threads(folder):
    with truce.open(os.path.join(folder, "threads.truce")) as db:
        def count():
            for _ in range(50):
                db["x"].update_one({"_id": 1}, {"$inc": {"n": 1}}, upsert=True)

        threads = [threading.Thread(target=count) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        check("threads", db["x"].find_one()["n"] == 400)
        replies = []
        waiting = threading.Thread(target=lambda: replies.append(db.claim("q", wait_ms=500)))
        waiting.start()
        while not db._transport._store._handle.calls:
            time.sleep(0.01)
    waiting.join()
    check("close waits for the calls of other threads", [x["status"] for x in replies] == ["not found"], replies)


def check_garbage(folder):
    path = os.path.join(folder, "garbage.truce")
    db = truce.open(path)
    db["x"].insert_many([{"_id": i} for i in range(10)])
    cursor = db["x"].find(batch_size=2)
    next(cursor)
    del db
    gc.collect()
    check("a cursor keeps its store", len(list(cursor)) == 9)
    del cursor
    gc.collect()
    check("a store that is freed is closed", in_fork(lambda: truce.open(path)["x"].count_documents() == 10))


def run(program, *arguments, **options):
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60, **options)


def check_end(folder):
    path = os.path.join(folder, "end.truce")
    ended = run("import sys, truce; db = truce.open(sys.argv[1]); db['x'].insert_one({'_id': 1}); c = db['x'].find(batch_size=1)", path)
    check("an open store at the end", ended.returncode == 0 and not ended.stderr, ended.stderr)
    ended = run("import sys, threading, time, truce; db = truce.open(sys.argv[1])\n"
                "threading.Thread(target=lambda: db.claim('q', wait_ms=600000), daemon=True).start(); time.sleep(0.3)", path)
    check("a thread that waits at the end", ended.returncode == 0 and not ended.stderr, ended.stderr)
    waiting = subprocess.Popen([sys.executable, "-c", "import sys, truce\nwith truce.open(sys.argv[1]) as db:\n print('.', flush=True)\n"
                                " while True: db.claim('q', wait_ms=200)", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    waiting.stdout.readline()
    waiting.send_signal(signal.SIGINT)
    check("Ctrl-C ends a program", "KeyboardInterrupt" in waiting.communicate(timeout=30)[1])
    with truce.open(path) as db:
        check("the document is stored", db["x"].find_one() == {"_id": 1})


def check_library(folder):
    environment = {**os.environ, "TRUCE_LIBRARY": os.path.join(folder, "none.so")}
    program = "import truce\ntry: truce.open('memory:')\nexcept truce.LibraryError as error: print(error)"
    reported = run(program, env=environment).stdout
    check("a library that is missing", "none.so" in reported and "TRUCE_LIBRARY" in reported, reported)
    environment["TRUCE_LIBRARY"] = "libc.so.6"
    reported = run(program, env=environment).stdout
    check("another library", "libc.so.6 is not libtruce, or too old" in reported, reported)
    if not shutil.which("cc"):
        return
    old = environment["TRUCE_LIBRARY"] = os.path.join(folder, "old.so")
    names = ("truce_status_name", "truce_store_open", "truce_store_close", "truce_command",
             "bson_init_static", "bson_get_data", "bson_destroy")
    source = 'const char *truce_version(void) { return "0.0.9"; }' + "".join(f"void {name}(void) {{}}" for name in names)
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", old], input=source, text=True, check=True)
    reported = run(program, env=environment).stdout
    check("a library that is too old", "old.so: libtruce 0.0.9 is too old: this package needs 0.1.0 or later" in reported, reported)


def check_other_data(folder):
    """A file of a newer format, and servers that are not truce: one exception each."""
    path = os.path.join(folder, "newer.truce")
    truce.open(path).close()
    with open(path, "r+b") as file:
        file.seek(60)
        file.write(b"\0\0\1\0")  # user_version of SQLite's header
    try:
        truce.open(path)
        check("a file of a newer format", False)
    except truce.Corrupt as error:
        check("a file of a newer format", "newer" in str(error) or "format" in str(error), error)
    for wire_version in (21, 6):  # the second one is too old for the driver
        with other_server(wire_version) as uri, truce.connect(uri) as db:
            for call in (db.queues, lambda: db.enqueue("mail", payload={})):
                try:
                    call()
                    check("a server that is not truce", False)
                except truce.TruceError as error:
                    check("a server that is not truce", type(error) is truce.WrongServer and "not truce" in str(error), error)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as web:
        web.RequestHandlerClass.log_message = lambda *_: None
        threading.Thread(target=web.serve_forever, daemon=True).start()
        uri = f"mongodb://127.0.0.1:{web.server_address[1]}/x?directConnection=true&serverSelectionTimeoutMS=500&connectTimeoutMS=500"
        with truce.connect(uri) as db:
            try:
                db.queues()
                check("a server of another protocol", False)
            except truce.TruceError as error:
                check("a server of another protocol", type(error) is truce.Unreachable, repr(error))
        web.shutdown()


if __name__ == "__main__":  # the children of "spawn" import this file
    with tempfile.TemporaryDirectory() as folder:
        numbers = os.path.join(folder, "numbers.truce")
        for method in ("fork", "spawn", "forkserver"):
            check_processes(numbers, method)
        check_fork(folder)
        check_threads(folder)
        check_garbage(folder)
        check_end(folder)
        check_library(folder)
        check_other_data(folder)
        with truce.open("memory:") as db:
            try:
                db.commit_changes([{"require": "x", "id": 1}])
            except truce.NotFound as error:
                copy = pickle.loads(pickle.dumps(error))
                check("an error is pickled", type(copy) is truce.NotFound and (str(copy), copy.code) == (str(error), error.code))
    report("processes")
