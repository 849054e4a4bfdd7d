"""Ledgers, and transfers in two phases."""


class Ledger:
    """Double entry: transactions of several accounts, posted whole, once under their id. Amounts in the smallest unit."""

    def __init__(self, truce, collection):
        self._truce, self.collection = truce, collection

    def open(self, currency, account=None, **rules):
        """open("EUR", digits=2), then open("EUR", "cash", min=0)."""
        self._truce.command("truceLedgerOpen", self.collection, currency=currency, account=account, **rules)

    def post(self, id, entries=None, **options):
        """entries: {account: amount}, or the table's [{account, value, type}]. False: it was posted before."""
        if isinstance(entries, dict):
            entries = [{"account": account, "value": value} for account, value in entries.items()]
        answer = self._truce.command("truceLedgerPost", self.collection, id=id, entries=entries or [], **options)
        return not answer["exists"]

    def balance(self, account, **moment):
        answer = self._truce.command("truceLedgerBalance", self.collection, account=account, **moment)
        return answer if answer["status"] == "ok" else None

    def statement(self, account, after=None, page=100):
        """All lines of an account, in their order, a page at a time."""
        while True:
            answer = self._truce.command(
                "truceLedgerStatement", self.collection, account=account, after=after, limit=page
            )
            lines = answer.get("lines", [])
            yield from lines
            if not lines:
                return
            after = lines[-1]["number"]


class Transfers:
    """Changes of several documents that hold none of them meanwhile. Refused: it is canceled, and stays so."""

    def __init__(self, truce, collection, layout):
        self._truce, self.collection, self._layout = truce, collection, layout

    def start(self, id, source=None, destination=None, amount=None, entries=None, **options):
        """False: it was started before, and is done."""
        answer = self._truce.command(
            "truceTransfer", self.collection, id=id, source=source, destination=destination, amount=amount,
            entries=entries, **self._layout, **options,
        )
        return not answer["exists"]

    def show(self, id):
        return self._truce.command("truceTransferShow", self.collection, id=id).get("transfer")

    def _end(self, command, id):
        return self._truce.command(command, self.collection, id=id, **self._layout).get("state")

    def resume(self, id):
        """ "done"; None: there is none """
        return self._end("truceTransferResume", id)

    def cancel(self, id):
        return self._end("truceTransferCancel", id)

    def list(self, state=None, page=100):
        """All of them, what changed last first, a page at a time."""
        skip = 0
        while True:
            answer = self._truce.command("truceTransfers", self.collection, state=state, limit=page, skip=skip)
            yield from answer["transfers"]
            if not answer["more"]:
                return
            skip += len(answer["transfers"])
