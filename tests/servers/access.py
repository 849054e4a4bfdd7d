"""pymongo and a server that asks for passwords: both mechanisms, roles, users, and their data.

Runs at a server of tests/servers/serve whose user "truce" has the role root.
"""
import os
import sys
import uuid

import pymongo
from pymongo.errors import OperationFailure

URI = os.environ["TRUCE_TEST_MONGODB"]
PASSWORD = "correct horse, battery=staple \u00fc"
failed = 0


def check(name, condition, more=""):
    global failed
    if not condition:
        failed += 1
        print(f"FAILED: {name} {more}")


def code_of(call):
    try:
        call()
        return 0
    except OperationFailure as error:
        return error.code


def client(user=None, password=PASSWORD, **options):
    """A client at the same server as another user, or without a user."""
    given = pymongo.uri_parser.parse_uri(URI)
    keep = {key: value for key, value in given["options"].items() if key.lower().startswith("tls")}
    if user:
        options |= {"username": user, "password": password}
    nodes = [f"{host}:{port}" for host, port in given["nodelist"]]
    return pymongo.MongoClient(nodes, **keep, **options)


root = pymongo.MongoClient(URI)
database = "access_" + uuid.uuid4().hex[:8]
school = root[database]
school.x.insert_many([{"_id": i} for i in range(5)])

ROLES = {
    "read": "find list",
    "readWrite": "find list insert index",
    "dbAdmin": "list index modify",
    "userAdmin": "users",
    "dbOwner": "find list insert index modify users",
}
CALLS = {
    "find": lambda db: db.x.find_one(),
    "list": lambda db: db.list_collection_names(),
    "insert": lambda db: db.y.insert_one({}),
    "index": lambda db: db.x.create_index("a"),
    "modify": lambda db: db.command("collMod", "x", validator={}),
    "users": lambda db: db.command("usersInfo", 1),
}

for role, allowed in ROLES.items():
    school.command("createUser", "u_" + role, pwd=PASSWORD, roles=[role])
    for mechanism in ("SCRAM-SHA-1", "SCRAM-SHA-256", None) if role == "read" else (None,):
        options = {"authMechanism": mechanism} if mechanism else {}
        with client("u_" + role, authSource=database, **options) as user:
            for name, call in CALLS.items():
                code = code_of(lambda: call(user[database]))
                check(f"{role} {name}", code == (0 if name in allowed.split() else 13), code)
            check(f"{role} elsewhere", code_of(lambda: user["other" + database].x.find_one()) == 13)
            check(f"{role} users", code_of(lambda: user.admin["system.users"].find_one()) == 13)

for user, password, source in (
    ("u_read", "wrong", database),
    ("u_read", PASSWORD, "admin"),
    ("nobody", PASSWORD, database),
):
    with client(user, password, authSource=source) as wrong:
        check(f"login {user} {source}", code_of(lambda: wrong[database].x.find_one()) == 18)

with client() as nobody:
    check("ping", nobody.admin.command("ping")["ok"] == 1)
    check("nobody", code_of(lambda: nobody[database].x.find_one()) == 13)

# a user of SCRAM-SHA-1 alone, as the driver finds out by itself
school.command("createUser", "old", pwd="x", roles=["read"], mechanisms=["SCRAM-SHA-1"])
with client("old", "x", authSource=database) as old:
    check("old", old[database].x.find_one() == {"_id": 0})
with client("old", "x", authSource=database, authMechanism="SCRAM-SHA-256") as old:
    check("old by 256", code_of(lambda: old[database].x.find_one()) == 18)

# roles that come and go reach clients that are connected
with client("u_read", authSource=database) as user:
    check("before", code_of(lambda: user[database].x.insert_one({})) == 13)
    school.command("grantRolesToUser", "u_read", roles=["readWrite"])
    check("granted", code_of(lambda: user[database].x.insert_one({})) == 0)
    with user.start_session() as session:
        session.start_transaction()
        user[database].x.update_one({"_id": 0}, {"$set": {"a": 1}}, session=session)
        session.commit_transaction()
    school.command("updateUser", "u_read", roles=[])
    check("revoked", code_of(lambda: user[database].x.find_one()) == 13)
    school.command("updateUser", "u_read", pwd="another", roles=["read"])
with client("u_read", "another", authSource=database) as user:
    check("password", user[database].x.find_one({"_id": 0}) == {"_id": 0, "a": 1})
    check("databases", user.list_database_names() == [database])
    status = user.admin.command("connectionStatus", showPrivileges=True)["authInfo"]
    check("status", status["authenticatedUsers"] == [{"user": "u_read", "db": database}])
    check("roles", status["authenticatedUserRoles"] == [{"role": "read", "db": database}])
    school.command("dropUser", "u_read")
    check("dropped", code_of(lambda: user[database].x.find_one()) == 13)

check("all", school.command("dropAllUsersFromDatabase", 1)["n"] == len(ROLES))
root.drop_database(database)
print(f"pymongo {pymongo.version}: access:", "failed" if failed else "passed")
sys.exit(failed > 0)
