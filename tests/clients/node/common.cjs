// The package by require, and by import: the same classes, and the same names.
"use strict";
const assert = require("node:assert/strict");
const truce = require("truce-db");
const testing = require("truce-db/testing");

(async () => {
  const imported = await import("truce-db");
  const { default: whole, ...names } = imported;
  assert.equal(whole, truce);
  assert.deepEqual(Object.keys(names).sort(), Object.keys(truce).sort());
  for (const name of Object.keys(names)) assert.equal(names[name], truce[name], name);
  const { default: none, ...helpers } = await import("truce-db/testing");
  assert.deepEqual([none, Object.keys(helpers).sort()], [undefined, Object.keys(testing).sort()]);
  const db = await truce.open("memory:");
  await db.collection("x").insertOne({ _id: 1 });
  assert.deepEqual(await db.collection("x").findOne(), { _id: 1 });
  await db.close();
  console.log("module-node: require and import: 1 passed, 0 failed");
})();
