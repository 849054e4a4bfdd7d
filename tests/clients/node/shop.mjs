// The example of the package: orders at the same time, edits at the same time, and the mails.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import * as truce from "truce-db";
import { all, check, end, until } from "./check.mjs";

const folder = mkdtempSync(path.join(tmpdir(), "truce-shop-"));
const file = path.join(folder, "shop.truce");
const shop = spawn(process.execPath, [process.argv[2], file, "0"], { stdio: ["ignore", "pipe", "inherit"] });
const lines = [];
createInterface({ input: shop.stdout }).on("line", (line) => lines.push(line));
await until(() => lines.length > 0);
const url = lines[0];

async function call(method, where, body, headers = {}) {
  const response = await fetch(url + where, { method, body: JSON.stringify(body), headers: { "Content-Type": "application/json", ...headers } });
  return { code: response.status, body: await response.json() };
}
const order = (key, count) => call("POST", "/orders", { product: "tea", count, to: "ada@example.org" }, { "Idempotency-Key": key });

await check("orders never oversell, and are placed once", async () => {
  const replies = await Promise.all(["a", "b", "c", "d", "e"].map((key) => order(key, 1)));
  assert.deepEqual(replies.map((one) => one.code).sort(), [201, 201, 201, 409, 409]);
  const placed = replies.find((one) => one.code === 201).body;
  assert.deepEqual([(await order(placed._id, 1)).code, (await call("GET", `/orders/${placed._id}`)).body.total], [200, 450]);
  assert.equal((await order(placed._id, 2)).code, 422);
  assert.equal((await call("GET", "/sales")).body.cents, 1350);
});
await check("edits are merged, or conflict", async () => {
  const shown = (await call("GET", "/products/tea")).body;
  const edit = (fields) => call("PUT", "/products/tea", { document: { ...shown.document, ...fields }, version: shown.version });
  assert.equal((await edit({ name: "Sencha" })).code, 200);
  const { code, body } = await edit({ price: 500 });
  assert.deepEqual([code, body.document.name, body.document.price, body.version], [200, "Sencha", 500, shown.version + 2]);
  assert.deepEqual((await edit({ name: "Matcha" })).body.conflicts.map((one) => one.path), ["name"]);
});
await check("wrong requests", async () => {
  assert.equal((await call("GET", "/products/x")).code, 404);
  assert.equal((await call("PUT", "/products/tea", { document: {} })).code, 400);
  assert.equal((await call("POST", "/orders", { product: "tea" })).code, 400);
  const malformed = await fetch(`${url}/orders`, { method: "POST", body: "{", headers: { "Content-Type": "application/json" } });
  assert.deepEqual([malformed.status, typeof (await malformed.json()).error], [400, "string"]);
});
await check("a mail for each order, and the end", async () => {
  await until(() => lines.length === 4);
  shop.kill("SIGTERM");
  assert.deepEqual(await once(shop, "exit"), [0, null]);
  const db = await truce.open(file);
  assert.deepEqual((await all(db.iterateJobs("mail"))).map((job) => job.state), ["done", "done", "done"]);
  assert.ok((await db.collection("products").findOne()).since instanceof Date);
  await db.close();
});
rmSync(folder, { recursive: true });
end("example");
