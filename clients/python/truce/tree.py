"""Trees of versions."""
import datetime

from bson import ObjectId

from .errors import Conflict, NotFound


class Tree:
    """
    with site.edit("the jobs") as edit:
        edit.put({"itemId": "jobs", "up": "about", "title": "Jobs"})

    is published at the end, all at once, or Conflict: others have published since the edit began. Readers read one version
    whole: site.read() is a Snapshot.
    """

    def __init__(self, truce, name, collection=None, parent=None):
        self._truce, self.name = truce, name
        self._made = {"collection": collection, "parent": parent}

    # ---- reading ----

    def read(self, version=None, time=None, tag=None, token=None):
        """The current version, or that one. NotFound, Expired."""
        at = {"version": version, "time_ms": time, "tag": tag, "token": token}
        answer = self._truce.command("truceTreeRead", self.name, limit=1, **at)
        if answer["status"] != "ok":
            raise NotFound(f"there is no such version of the tree {self.name!r}", 125, answer)
        return Snapshot(self._truce, self.name, answer)

    def log(self, page=100):
        """The versions that are kept, the newest first."""
        before = None
        while before != 1:
            answer = self._truce.command("truceTreeLog", self.name, limit=page, before=before)
            yield from answer.get("versions", [])
            if not answer.get("more"):
                return
            before = answer["versions"][-1]["version"]

    def diff(self, from_version, to_version, contents=False, page=100):
        """{itemId, change: "added", "removed" or "changed", before, after} of each item that differs."""
        after = None
        while True:
            answer = self._truce.command(
                "truceTreeDiff", self.name, from_=from_version, to=to_version, contents=contents, after=after, limit=page
            )
            if answer["status"] != "ok":
                raise NotFound(f"there is no such version of the tree {self.name!r}", 125, answer)
            yield from answer["changes"]
            if not answer["more"]:
                return
            after = answer["changes"][-1]["itemId"]

    def status(self):
        answer = self._truce.command("truceTree", self.name)
        return answer if answer["status"] == "ok" else None

    # ---- writing ----

    def edit(self, message=None, author=None, merge=False, prefer=None, rules=None):
        """An edit of the version that stands now. `merge`: with what others publish meanwhile."""
        return Edit(self, {"message": message, "author": author, "merge": merge or None, "prefer": prefer, "rules": rules})

    def publish(self, changes=None, id=None, **options):
        """One list of changes, as the table has it; {outcome, version, token}. Conflict."""
        id = id or ObjectId()
        answer = self._truce.command(
            "truceTreePublish", self.name, _once=True, changes=changes, id=id, **{**self._made, **options}
        )
        if answer["outcome"] == "conflict":
            error = Conflict(f"others have published version {answer['version']} of the tree {self.name!r}", 112, answer)
            error.conflicts, error.answer = answer["conflicts"], answer
            raise error
        return answer

    def revert(self, version, **options):
        """Publishes what the tree was in that version."""
        return self.publish(revert=version, **options)

    # ---- what is kept, branches ----

    def _act(self, **fields):
        return self._truce.command("truceTree", self.name, **fields)

    def tag(self, name, version=None):
        """Names a version, which pins it."""
        return self._act(tag=name, version=version)["status"] == "ok"

    def untag(self, name):
        return self._act(untag=name)["status"] == "ok"

    def keep(self, versions=None, age=None):
        """What is kept at least; neither: all."""
        age_ms = round(age.total_seconds() * 1000) if isinstance(age, datetime.timedelta) else age
        keep = {"versions": versions, "ageMS": age_ms}
        self._act(keep={name: value for name, value in keep.items() if value})

    def branch(self, name, version=None):
        self._act(branch=name, version=version)
        return Tree(self._truce, name)

    def merge(self, other, **options):
        """Publishes here what a branch, or the origin, has changed: {outcome, version}. Conflict."""
        answer = self._act(merge=other.name if isinstance(other, Tree) else other, **options)
        if answer.get("outcome") == "conflict":
            error = Conflict("what both changed cannot be merged", 112, answer)
            error.conflicts, error.answer = answer["conflicts"], answer
            raise error
        return answer

    def erase(self, id):
        return self._act(erase=id).get("versions", 0)

    def collect(self):
        return self._act(collect=True)

    def drop(self):
        return self._act(drop=True)["status"] == "ok"


class Snapshot:
    """One version, whatever is published meanwhile. Expired: it was collected; a tag keeps it."""

    def __init__(self, truce, name, answer):
        self._truce, self._name = truce, name
        self.version, self.token = answer["version"], answer["token"]

    def get(self, id):
        """None: it is not in this version."""
        answer = self._truce.command("truceTreeRead", self._name, id=id, token=self.token)
        return answer.get("item")

    def find(self, filter=None, sort=None, page=100):
        """The items that match, a page at a time; by itemId without a sort."""
        behind = {}
        while True:
            answer = self._truce.command(
                "truceTreeRead", self._name, filter=filter, sort=sort, token=self.token, limit=page, **behind
            )
            items = answer.get("items", [])
            yield from items
            if not answer.get("more"):
                return
            behind = {"skip": behind.get("skip", 0) + len(items)} if sort else {"after": items[-1]["itemId"]}

    def __iter__(self):
        return self.find()


class Edit:
    """Changes that are published at the end of `with`; `version` and `outcome` are known then."""

    def __init__(self, tree, options):
        self._tree, self._options = tree, options
        self.changes, self.id = [], ObjectId()
        self.version = self.outcome = self.base = None

    def __enter__(self):
        try:
            self.base = self._tree.read()
        except NotFound:
            self.base = None
        return self

    def put(self, item):
        """The whole item, with its itemId."""
        self.changes.append({"put": item})

    def remove(self, id):
        self.changes.append({"remove": id})

    def __exit__(self, kind, *_):
        if kind is not None:
            return
        answer = self._tree.publish(
            self.changes, id=self.id, base=self.base.token if self.base else "new", **self._options
        )
        self.version, self.outcome = answer["version"], answer["outcome"]
