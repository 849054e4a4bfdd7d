"""
A web shop with FastAPI on one file:

    pip install truce-db fastapi uvicorn
    python -m truce.examples.shop shop.truce 8080

- `GET /` redirects to the products.
- `GET /products` and `GET /products/ID` return products. The second one has the version.
- `PUT /products/ID` saves an edited product: {document, version}.
- `POST /orders` places an order: {product, count, to}. It needs the header Idempotency-Key.
- `GET /orders/ID` returns an order.
- `GET /sales` returns the balance of the ledger.

An order changes the stock, the ledger, and the list of orders, and enqueues a mail, in one commit:
the shop never sells what is not there. Two people may edit a product at the same time: their
changes are merged, or the second one gets the conflict.

FastAPI runs `def` functions in threads, and any number of threads can use one database.
"""
from __future__ import annotations

import datetime
import socket
import sys
from contextlib import asynccontextmanager
from typing import Any, AsyncIterator, Dict

import truce
import uvicorn
from bson import ObjectId
from fastapi import FastAPI, Header, HTTPException, Request, Response
from fastapi.encoders import jsonable_encoder
from fastapi.responses import JSONResponse, RedirectResponse
from pydantic import BaseModel, Field

KEEP = 20  # versions of a product, so that late edits can be merged


class Order(BaseModel):
    product: str
    count: int = Field(ge=1)
    to: str


class Edit(BaseModel):
    document: Dict[str, Any]
    version: int


def plain(value: Any) -> Any:
    """Returns a value as JSON has it. truce adds an ObjectId to documents that commits write."""
    return jsonable_encoder(value, custom_encoder={ObjectId: str})


def prepare(db: truce.Database) -> None:
    """Creates the accounts and a product. A repetition changes nothing."""
    db.ledger_open("books", currency="EUR", digits=2)
    for account in ("customers", "sales"):
        db.ledger_open("books", currency="EUR", account=account)
    if db["stock"].find_one() is None:
        since = datetime.datetime.now(datetime.timezone.utc)
        tea = {"_id": "tea", "name": "Green tea", "price": 450, "since": since}
        db.revision("products", save=tea, keep=KEEP)
        db["stock"].insert_one({"_id": "tea", "n": 3})


def place(db: truce.Database, order: Order, key: str) -> None:
    """Places an order: the stock, the order, the ledger, and the mail change, or nothing does."""
    item = db["products"].find_one(order.product)
    if item is None:
        raise truce.NotFound(f"no product {order.product}")
    total = item["price"] * order.count
    enough = {"n": {"$gte": order.count}}
    entries = [{"account": "customers", "value": -total}, {"account": "sales", "value": total}]
    with db.commit() as c:
        c.require("products", order.product, where={"price": item["price"]})
        c.update("stock", order.product, {"$inc": {"n": -order.count}}, where=enough)
        c.insert("orders", {"_id": key, "total": total, **order.model_dump()})
        c.ledger_post("books", id=f"order {key}", entries=entries)
        c.enqueue("mail", payload={"to": order.to, "order": key})


def send(job: truce.Job) -> Dict[str, Any]:
    print(f"to {job.payload['to']}: your order {job.payload['order']}", flush=True)
    return {"sent": True}


def shop(path: str) -> FastAPI:
    """Returns the application. Its worker sends mails as long as it runs."""
    db = truce.open(path)
    prepare(db)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        worker = truce.Worker(db, "mail", send, concurrency=4)
        worker.start()
        yield
        worker.stop()
        worker.join()
        db.close()

    app = FastAPI(lifespan=lifespan)

    @app.get("/")
    def start() -> RedirectResponse:
        return RedirectResponse("/products")

    @app.get("/products")
    def products() -> Any:
        return plain(db["products"].find(sort="name").to_list())

    @app.get("/products/{id}")
    def product(id: str) -> Any:
        found = db.revision("products", get=id)
        if found["status"] == "not found":
            raise HTTPException(404, "no such product")
        return plain({"document": found["document"], "version": found["version"]})

    @app.put("/products/{id}")
    def edit(id: str, edit: Edit) -> Any:
        if edit.document.get("_id") != id:
            raise HTTPException(400, "the document has another _id")
        saved = db["products"].merge(edit.document, version=edit.version, keep=KEEP)
        return plain({"document": saved["document"], "version": saved["version"]})

    @app.post("/orders")
    def order(order: Order, response: Response, idempotency_key: str = Header()) -> Any:
        stored = db["orders"].find_one(idempotency_key)
        if stored is not None:
            if any(stored[name] != value for name, value in order.model_dump().items()):
                raise HTTPException(422, "the Idempotency-Key is that of another order")
            return plain(stored)
        place(db, order, idempotency_key)
        response.status_code = 201
        return plain(db["orders"].find_one(idempotency_key))

    @app.get("/orders/{id}")
    def placed(id: str) -> Any:
        found = db["orders"].find_one(id)
        if found is None:
            raise HTTPException(404, "no such order")
        return plain(found)

    @app.get("/sales")
    def sales() -> Dict[str, int]:
        return {"cents": db.ledger_balance("books", account="sales")["balance"]}

    @app.exception_handler(truce.TruceError)
    def refused(request: Request, error: truce.TruceError) -> JSONResponse:
        if isinstance(error, truce.Conflict):
            text = "another save changed the same field"
            return JSONResponse(plain({"error": text, "conflicts": error.conflicts}), 409)
        if isinstance(error, truce.NotFound):
            return JSONResponse({"error": "no such product"}, 404)
        if isinstance(error, truce.Refused):
            return JSONResponse({"error": "sold out, or the price has changed"}, 409)
        if isinstance(error, truce.Duplicate):
            return JSONResponse({"error": "the order is being placed"}, 409)
        raise error

    return app


def main(path: str = "shop.truce", port: str = "8080") -> None:
    listener = socket.create_server(("127.0.0.1", int(port)))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(shop(path), log_level="warning")
    try:
        uvicorn.Server(config).run(sockets=[listener])
    except KeyboardInterrupt:
        pass  # uvicorn has ended, and sends itself the signal again


if __name__ == "__main__":
    main(*sys.argv[1:])
