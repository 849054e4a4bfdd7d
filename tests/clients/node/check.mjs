// Counts checks. A check fails if its function throws.
import assert from "node:assert/strict";

let checks = 0, failed = 0, where = "";

export const within = (place) => void (where = place);

export async function check(what, call) {
  checks++;
  try {
    await call();
  } catch (error) {
    failed++;
    console.log(`FAILED: ${where}: ${what}: ${error.stack}`);
  }
}

export async function raises(kind, call) {
  const error = await (async () => call())().then(() => undefined, (thrown) => thrown);
  assert.ok(error instanceof kind, `threw ${error}, not ${kind.name}`);
  return error;
}

export async function all(iterable) {
  const list = [];
  for await (const one of iterable) list.push(one);
  return list;
}

export async function until(condition) {
  for (const end = Date.now() + 20000; !(await condition());) {
    assert.ok(Date.now() < end, `waited too long for ${condition}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

export function end(name) {
  console.log(`module-node: ${name}: ${checks - failed} passed, ${failed} failed`);
  process.exit(failed ? 1 : 0);
}
