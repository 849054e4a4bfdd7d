"""Ordered sets, revisions, items, and copies kept in step."""
import copy

from .errors import Conflict


class Set:
    """An ordered set in documents: operations in whatever order they come."""

    def __init__(self, truce, collection, **named):
        self._truce, self.collection, self._named = truce, collection, named

    def _send(self, **fields):
        return self._truce.command("truceSet", self.collection, **self._named, **fields)

    def add(self, key, element, seq, source=None, consumer=None):
        """ "applied", "stale", "duplicate" or "quarantined" """
        return self._send(key=key, add=element, seq=seq, source=source, consumer=consumer)["outcome"]

    def remove(self, key, element, seq, source=None, consumer=None):
        return self._send(key=key, remove=element, seq=seq, source=source, consumer=consumer)["outcome"]

    def apply(self, operations, consumer=None):
        """Many, of any documents: each {add or remove, key, seq, source}. The answer has `results`, and `failure`."""
        return self._send(apply=list(operations), consumer=consumer)

    def members(self, key):
        return self._send(key=key).get("members", [])

    def show(self, key):
        return self._send(key=key, show=True).get("document")

    def source(self, key, **fields):
        """start=True, idle=N, or from_=N, to=M; `key` is a key, or the names of its fields."""
        return self._truce.command("truceSetSource", self.collection, **self._named, key=key, **fields)

    def collect(self, key, collect=True):
        return self._truce.command("truceSetCollect", self.collection, **self._named, key=key, collect=collect)


class Revision(dict):
    """A document as it was read or saved, with its `version`, and the `outcome` of a write."""

    def __init__(self, answer):
        super().__init__(answer["document"])
        self.version = answer["version"]
        self.outcome = answer.get("outcome")
        self.base = copy.deepcopy(answer["document"])


class Revisions:
    """
    post = posts.get(1)
    post["title"] = "Ada"
    post = posts.save(post)

    What somebody else saved meanwhile is Conflict, with `conflicts`; `merge` merges first.
    """

    def __init__(self, truce, collection, options):
        self._truce, self.collection, self._options = truce, collection, options

    def _send(self, **fields):
        return self._truce.command("truceRevision", self.collection, **self._options, **fields)

    def get(self, id):
        answer = self._send(get=id)
        return Revision(answer) if answer["status"] == "ok" else None

    def _write(self, verb, value, read):
        version = read.version if isinstance(read, Revision) else None
        answer = self._send(**{verb: value, "version": version, "base": getattr(read, "base", None)})
        if answer.get("outcome") == "conflict":
            error = Conflict("others have saved since", 112, answer)
            error.conflicts, error.answer = answer.get("conflict", {}).get("conflicts", []), answer
            raise error
        return Revision(answer) if answer["status"] == "ok" and answer.get("document") is not None else None

    def save(self, document):
        """A Revision that get or save gave is saved by its version; another document is a new one."""
        return self._write("save", dict(document), document)

    def merge(self, document):
        return self._write("merge", dict(document), document)

    def remove(self, document):
        self._write("remove", document["_id"], document)

    def conflicts(self):
        return self._truce.command("truceConflicts", self.collection, **self._options)["conflicts"]

    def resolve(self, conflict, take, document=None):
        """`conflict` as conflicts() gave it; take: "mine", "theirs" or "document"."""
        answer = self._truce.command(
            "truceResolve", self.collection, **self._options,
            conflict=conflict["_id"], take=take, document=document, seen={"version": conflict["version"]},
        )
        return answer.get("outcome")


class Items:
    """Items of an array or a map, changed in their place. Each gives {matched, modified, added}, or None: no document."""

    def __init__(self, truce, collection, **named):
        self._truce, self.collection, self._named = truce, collection, named

    def _send(self, filter, **fields):
        answer = self._truce.command("truceItem", self.collection, **self._named, filter=filter, **fields)
        return answer if answer["status"] == "ok" else None

    def add(self, filter, item):
        return self._send(filter, add=item)

    def replace(self, filter, item, query=None):
        return self._send(filter, replace=item, query=query)

    def upsert(self, filter, item):
        return self._send(filter, upsert=item)

    def update(self, filter, query, operators):
        return self._send(filter, query=query, update=operators)

    def remove(self, filter, query):
        return self._send(filter, query=query, remove=True)


class Sync:
    """Copies kept in step."""

    def __init__(self, truce):
        self._truce = truce

    def declare(self, rule, source, dependent, reference, copies, **options):
        self._truce.command(
            "truceSyncDeclare", rule, source=source, dependent=dependent, reference=reference, copies=copies, **options
        )

    def drop(self, rule):
        return self._truce.command("truceSyncDrop", rule)["status"] == "ok"

    def update(self, collection, id, operators):
        """{changed, settled, copies}; None: there is no such document."""
        answer = self._truce.command("truceSyncUpdate", collection, id=id, update=operators)
        return answer if answer["status"] == "ok" else None

    def insert(self, collection, document):
        return self._truce.command("truceSyncInsert", collection, document=document)

    def read(self, collection, id):
        return self._truce.command("truceSyncRead", collection, id=id).get("document")

    def settle(self, collection, id):
        return self._truce.command("truceSyncSettle", collection, id=id)

    def status(self):
        return self._truce.command("truceSyncStatus", 1)["rules"]

    def repair(self, rule, dry_run=False):
        answer = self._truce.command("truceSyncRepair", rule, dry_run=dry_run)
        return answer if answer["status"] == "ok" else None
