"""
beancount reads the output of `truce ledger export`, finds no errors in it, and agrees on every
balance. The books are made at random, with several currencies, names that beancount needs replaced,
and transactions that are pending, settled, voided, or reversed.
"""
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from decimal import Decimal

from beancount import __version__, loader
from beancount.core import realization

TRUCE = os.environ["TRUCE_TEST_PROGRAM"]
SEED = int(os.environ.get("TRUCE_TEST_SEED", random.SystemRandom().getrandbits(32)))
BOOKS = int(os.environ.get("TRUCE_LEDGER_BEANCOUNT", "3"))
DIGITS = {"EUR": 2, "JPY": 0, "X-COIN8": 8}
ACCOUNTS = ["bank", "people:ada", "people:Ada", "people:bob smith", "Expenses:rent", "straße:ä", "g:x", "7:up"]


def truce(*words, store):
    done = subprocess.run([TRUCE, *words, "--store", store], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"truce {' '.join(words)}: {done.returncode}: {done.stderr}")
    return done.stdout


def name(account, currency):
    return f"{account}:{currency.lower()}"


def draw_entries(chance):
    """Entries that sum to zero in each of one or two currencies."""
    entries = []
    for currency in chance.sample(list(DIGITS), chance.randint(1, 2)):
        accounts = chance.sample(ACCOUNTS, chance.randint(2, 4))
        units = [chance.randint(-10**6, 10**6) or 1 for _ in accounts[1:]]
        if not sum(units):
            units[0] += 1
        for account, unit in zip(accounts, [-sum(units)] + units):
            if unit:
                amount = Decimal(unit).scaleb(-DIGITS[currency])
                entries.append({"account": name(account, currency), "amount": f"{amount:f}"})
    return entries


def draw_book(chance, count):
    for currency, digits in DIGITS.items():
        yield {"currency": currency, "digits": digits}
    for account in ACCOUNTS:
        for currency in DIGITS:
            yield {"open": name(account, currency), "currency": currency}
    pending, posted = [], []
    for number in range(count):
        if pending and chance.random() < 0.3:
            of = pending.pop(chance.randrange(len(pending)))
            yield {"id": number, "kind": chance.choice(["settle", "void"]), "of": of}
        elif posted and chance.random() < 0.1:
            yield {"id": number, "kind": "reverse", "of": posted.pop(chance.randrange(len(posted)))}
        else:
            kind = chance.choice(["transfer", "transfer", "pending"])
            (pending if kind == "pending" else posted).append(number)
            yield {"id": number, "kind": kind, "entries": draw_entries(chance),
                   "date": f"20{chance.randint(10, 24)}-0{chance.randint(1, 9)}-1{chance.randint(0, 9)}",
                   "meta": {"description": 'a "b" \\ ; | ' + "é" * chance.randint(0, 3)}}


def names_of(path):
    """beancount's name of an account: ours is in the comment after it."""
    with open(path, encoding="utf-8") as file:
        return {theirs: json.loads(remark)["open"] for theirs, remark in
                re.findall(r'^\d{4}-\d\d-\d\d open (\S+).*\n\s*; truce: (\{"open".*\})$', file.read(), re.M)}


def reported_by_beancount(path):
    entries, errors, _ = loader.load_file(path)
    if errors:
        sys.exit(f"beancount: {errors[:3]}")
    names = names_of(path)
    reported = {}
    for account in realization.iter_children(realization.realize(entries)):
        for position in account.balance:
            assert position.cost is None
            reported[names[account.account]] = (position.units.number, position.units.currency)
    return reported


def reported_by_truce(store):
    rows = [json.loads(row) for row in truce("ledger", "accounts", "book", "--json", store=store).splitlines()]
    return {row["account"]: (Decimal(row["balance"]), row["currency"])
            for row in rows if row["is"] == "open" and Decimal(row["balance"])}


def compare(chance, directory, number):
    store, path = f"{directory}/{number}.truce", f"{directory}/{number}.beancount"
    with open(f"{directory}/book.ndjson", "w", encoding="utf-8") as file:
        file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in draw_book(chance, 60))
    truce("ledger", "currency", "book", "EUR", "2", store=store)
    truce("ledger", "import", "book", file.name, store=store)
    truce("ledger", "export", "book", path, store=store)
    ours, theirs = reported_by_truce(store), reported_by_beancount(path)
    differ = [(account, ours.get(account), theirs.get(account))
              for account in {*ours, *theirs} if ours.get(account) != theirs.get(account)]
    if differ or not ours:
        sys.exit(f"book {number}: {differ}")
    return len(ours)


def main():
    print(f"TRUCE_TEST_SEED={SEED}")
    chance = random.Random(SEED)
    with tempfile.TemporaryDirectory() as directory:
        balances = sum(compare(chance, directory, number) for number in range(BOOKS))
    print(f"beancount {__version__}: {BOOKS} books, {balances} balances agree")


main()
