"""The connection to a database, what sends commands, and the small patterns."""
import datetime
import time
from contextlib import contextmanager

import pymongo
from pymongo.errors import ConnectionFailure, PyMongoError

from . import errors

_TRIES = 4  # of what may be sent again


def _spelled(name):
    """lease_ms is leaseMS on the wire, base_of is baseOf; what has no underscore stays."""
    first, *more = name.rstrip("_").split("_")
    return first + "".join("MS" if word == "ms" else word.capitalize() for word in more)


def _sent(name, value):
    """Times are milliseconds there."""
    if name.endswith("MS") or name == "keyTime":
        if isinstance(value, datetime.timedelta):
            return round(value.total_seconds() * 1000)
        if isinstance(value, datetime.datetime):
            return round(value.timestamp() * 1000)
    return value


def connect(uri, database="test", **options):
    """A Truce of a client of its own; used in `with`, it is closed at the end."""
    return Truce(pymongo.MongoClient(uri, **options)[database], owned=True)


class Truce:
    """
    The patterns in one database of a server. It may be used from any number of threads, but one that is bound to a
    transaction by one.
    """

    def __init__(self, database, session=None, owned=False):
        self.database = database
        self.session = session
        self._owned = owned
        self._again = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Ends the client, if connect() made it."""
        if self._owned:
            self.database.client.close()

    # ---- commands ----

    def help(self, command=None):
        """What the server says of a command, or the names of all."""
        try:
            answer = self.database.command("truceHelp", *([command] if command else []))
        except PyMongoError as error:
            raise errors.of(error) from error
        return answer if command else [one["name"] for one in answer["commands"]]

    def _may_be_sent_again(self, command):
        if command not in self._again:
            try:
                self._again[command] = self.help(command)["again"]
            except errors.TruceError:  # the first error is reported
                return False
        return self._again[command]

    def command(self, command, value, /, _once=False, **fields):
        """
        Sends one command of the table, and gives its answer. Fields that are None are left out. What may be sent again is
        sent again, where its answer is lost or the server says so; `_once`: it may, whatever the table says, since
        it carries an id or a key.
        """
        document = {command: value}
        for name, field in fields.items():
            if field is not None:
                document[_spelled(name)] = _sent(_spelled(name), field)
        for left in range(_TRIES - 1, -1, -1):
            try:
                return self.database.command(document, session=self.session)
            except PyMongoError as error:
                lost = isinstance(error, ConnectionFailure)
                again = lost or error.has_error_label("RetryableWriteError")
                if not again or not left or self.session or not (_once or self._may_be_sent_again(command)):
                    raise errors.of(error) from error
                time.sleep(0.1 * (_TRIES - left) if not lost else 0.05)

    # ---- transactions ----

    def bound(self, session):
        """The same, with all commands within the transaction of that session."""
        return Truce(self.database, session)

    @contextmanager
    def transaction(self):
        """
        with school.transaction() as inner: all commands of `inner`, and what is sent with `session=inner.session`, happen at
        its end, or not at all. It is not run again after a conflict: transact does so.
        """
        with self.database.client.start_session() as session, session.start_transaction():
            yield self.bound(session)

    def transact(self, function):
        """function(inner) in a transaction, and again, if others were faster; what it gives is given."""
        with self.database.client.start_session() as session:
            return session.with_transaction(lambda inner: function(self.bound(inner)))

    # ---- commits, requests, sequences ----

    def commit(self, changes=None, key=None, key_time=None, leave=None, input=None):
        """
        Several documents, all or none: a Commit, to be used in `with`; or `changes`, as the table has them, now. With a
        `key` it happens once for ever: `key_time` is when the key was made, the same each time that it is sent.
        """
        one = Commit(self, key, key_time, leave, input)
        if changes is None:
            return one
        one.changes = list(changes)
        one.run()
        return one

    def commit_result(self, key):
        """What the commit under a key has left; None: there is none."""
        answer = self.command("truceCommitResult", key)
        return answer["result"] if answer["status"] == "ok" else None

    def commit_show(self, key):
        return self.command("truceCommitShow", key).get("commit")

    def request(self, key, name, input=None):
        """Leaves work for a program of the library, under a key."""
        self.command("truceRequest", key, name=name, input=input)

    def request_state(self, key):
        return self.command("truceRequestState", key).get("request")

    def sequence(self, name):
        return Sequence(self, name)

    # ---- the other patterns ----

    def set(self, collection, field, name, **options):
        from .documents import Set

        return Set(self, collection, field=field, name=name, **options)

    def revisions(self, collection, **options):
        from .documents import Revisions

        return Revisions(self, collection, options)

    def items(self, collection, field, identity, **options):
        from .documents import Items

        return Items(self, collection, field=field, identity=identity, **options)

    def queue(self, name):
        from .queue import Queue

        return Queue(self, name)

    def queues(self):
        return self.command("truceQueues", 1)["queues"]

    def ledger(self, collection):
        from .money import Ledger

        return Ledger(self, collection)

    def transfers(self, collection, **layout):
        from .money import Transfers

        return Transfers(self, collection, layout)

    def tree(self, name, collection=None, parent=None):
        from .tree import Tree

        return Tree(self, name, collection, parent)

    @property
    def sync(self):
        from .documents import Sync

        return Sync(self)


class Commit:
    """
    with school.commit() as change:
        change.update("accounts", "a", {"$inc": {"n": -5}}, where={"n": {"$gte": 5}})

    runs at the end, unless the block raises. `earlier`: it happened before, under the same key; `result`: what
    was left then.
    """

    def __init__(self, truce, key, key_time, leave, input):
        if (key is None) != (key_time is None):
            raise TypeError("key and key_time are given both or not at all")
        self.changes = []
        self.earlier = False
        self.result = None
        self.inserted = []
        self._truce = truce
        self._fields = {"key": key, "key_time": key_time, "leave": leave, "input": input}

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None and self.changes:
            self.run()

    def run(self):
        answer = self._truce.command(
            "truceCommit", self.changes, _once=self._fields["key"] is not None, **self._fields
        )
        self.earlier, self.result = answer["earlier"], answer.get("result")
        self.inserted = answer.get("inserted", [])  # the _ids that were made, in order

    def _add(self, verb, collection, where=None, **fields):
        self.changes.append({verb: collection, **fields, **({} if where is None else {"if": where})})

    def insert(self, collection, document):
        self._add("insert", collection, **{"with": document})

    def update(self, collection, id, operators, where=None):
        self._add("update", collection, where, id=id, **{"with": operators})

    def replace(self, collection, id, document, where=None):
        self._add("replace", collection, where, id=id, **{"with": document})

    def remove(self, collection, id, where=None):
        self._add("remove", collection, where, id=id)

    def require(self, collection, id, where=None):
        self._add("require", collection, where, id=id)

    def hold(self, collection, id, where=None):
        self._add("hold", collection, where, id=id)

    def missing(self, collection, id):
        self._add("missing", collection, id=id)

    def change(self, collection, id, old_and_new):
        """{"n": [old, new]}"""
        self._add("change", collection, id=id, **{"with": old_and_new})


class Sequence:
    """Numbers that only rise, each given once."""

    def __init__(self, truce, name):
        self._truce, self.name = truce, name

    def take(self, count=1):
        """The numbers, as a range."""
        answer = self._truce.command("truceSequence", self.name, take=count)
        return range(answer["first"], answer["last"] + 1)

    def __next__(self):
        return self.take(1)[0]

    def __iter__(self):
        return self

    @property
    def last(self):
        return self._truce.command("truceSequence", self.name)["last"]

    def raise_to(self, number):
        """Numbers up to this one will not be given any more."""
        self._truce.command("truceSequence", self.name, **{"raise_": number})
