// A web shop on one file: `node shop.mjs shop.truce 8080`.
//
//   GET  /products, /products/:id     a product with its version
//   PUT  /products/:id                saves an edited product: {document, version}
//   POST /orders                      {product, count, to}, with an Idempotency-Key
//   GET  /orders/:id
//   GET  /sales                       the balance of the ledger
import { pathToFileURL } from "node:url";
import express from "express";
import * as truce from "truce-db";

const KEEP = 20; // versions of a product, so that late edits can be merged

export async function prepare(db) {
    await db.ledgerOpen("books", { currency: "EUR", digits: 2 });
    for (const account of ["customers", "sales"])
        await db.ledgerOpen("books", { currency: "EUR", account });
    if (await db.collection("stock").findOne()) return;
    await db.revision("products", {
        keep: KEEP,
        save: { _id: "tea", name: "Green tea", price: 450, since: new Date() },
    });
    await db.collection("stock").insertOne({ _id: "tea", n: 3 });
}

// The stock, the order, the ledger, and the mail change together, or not at all.
async function order(db, { product, count, to }, key) {
    const item = await db.collection("products").findOne({ _id: product });
    if (!item) throw new truce.NotFound(`no product ${product}`);
    const total = item.price * count,
        _id = key;
    return db.commit((c) => {
        c.require("products", product, { where: { price: item.price } });
        c.update("stock", product, { $inc: { n: -count } }, { where: { n: { $gte: count } } });
        c.insert("orders", { _id, product, count, to, total });
        c.ledgerPost("books", {
            id: `order ${_id}`,
            entries: [
                { account: "customers", value: -total },
                { account: "sales", value: total },
            ],
        });
        c.enqueue("mail", { payload: { to, order: _id } });
    });
}

export function shop(db) {
    const app = express();
    app.use(express.json());

    app.get("/products", async (req, res) => {
        res.json(await db.collection("products").find().sort({ name: 1 }).toArray());
    });
    app.get("/products/:id", async (req, res) => {
        const { status, document, version } = await db.revision("products", { get: req.params.id });
        if (status === "not found") return res.status(404).json({ error: "no such product" });
        res.json({ document, version });
    });
    app.put("/products/:id", async (req, res) => {
        const { document, version } = req.body ?? {};
        if (document?._id !== req.params.id || !Number.isInteger(version))
            return res.status(400).json({ error: "the body must be {document, version}" });
        const saved = await db.collection("products").merge(document, { version, keep: KEEP });
        res.json({ document: saved.document, version: saved.version });
    });

    app.post("/orders", async (req, res) => {
        const key = req.get("Idempotency-Key"),
            { product, count, to } = req.body ?? {};
        if (
            !key ||
            typeof product !== "string" ||
            typeof to !== "string" ||
            !Number.isInteger(count) ||
            count < 1
        )
            return res
                .status(400)
                .json({ error: "an order needs an Idempotency-Key, product, count, and to" });
        const earlier = await db.collection("orders").findOne({ _id: key });
        if (
            earlier &&
            (earlier.product !== product || earlier.count !== count || earlier.to !== to)
        )
            return res.status(422).json({ error: "the Idempotency-Key is that of another order" });
        if (!earlier) await order(db, { product, count, to }, key);
        res.status(earlier ? 200 : 201).json(await db.collection("orders").findOne({ _id: key }));
    });
    app.get("/orders/:id", async (req, res) => {
        const found = await db.collection("orders").findOne({ _id: req.params.id });
        res.status(found ? 200 : 404).json(found ?? { error: "no such order" });
    });
    app.get("/sales", async (req, res) => {
        res.json({ cents: (await db.ledgerBalance("books", { account: "sales" })).balance });
    });

    app.use((error, req, res, next) => {
        if (error instanceof truce.Conflict)
            res.status(409).json({
                error: "another save changed the same field",
                conflicts: error.conflicts,
            });
        else if (error instanceof truce.NotFound)
            res.status(404).json({ error: "no such product" });
        else if (error instanceof truce.Refused)
            res.status(409).json({ error: "sold out, or the price has changed" });
        else if (error instanceof truce.Duplicate)
            res.status(409).json({ error: "the order is being placed" });
        else if (error.expose)
            // such as a body that is not JSON
            res.status(error.status).json({ error: error.message });
        else next(error);
    });
    return app;
}

export const send = async (job) => {
    console.log(`to ${job.payload.to}: your order ${job.payload.order}`);
    return { sent: true };
};

// The shop with its worker, until SIGTERM or SIGINT.
async function main(file = "shop.truce", port = 8080) {
    const db = await truce.open(file);
    await prepare(db);
    const server = shop(db).listen(port, () =>
        console.log(`http://127.0.0.1:${server.address().port}`),
    );
    await new truce.Worker(db, "mail", send, { concurrency: 4 }).run();
    await new Promise((closed) => server.close(closed));
    await db.close();
}

if (import.meta.url === pathToFileURL(process.argv[1]).href)
    await main(process.argv[2], Number(process.argv[3] ?? 8080));
