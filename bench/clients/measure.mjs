// One measurement of the Node package or of MongoDB's driver: measure.mjs WHAT STORE SECONDS prints nanoseconds for each
// call: of the clock, and of the processor.
import { MongoClient } from "mongodb";
import * as truce from "truce-db";

const [what, store, seconds] = process.argv.slice(2);
const isDriver = what.startsWith("driver");
const owner = isDriver ? await new MongoClient(store).connect() : await truce.open(store);
const collection = (isDriver ? owner.db() : owner).collection("x");

for (let i = 0; i < 1000; i++)
  if ((await collection.findOne({ _id: i })).n !== i) throw new Error(`document ${i}`);
let calls = 0;
const used = process.cpuUsage(), began = process.hrtime.bigint(), end = began + BigInt(Math.round(seconds * 1e9));
while (process.hrtime.bigint() < end) {
  for (let i = 0; i < 200; i++) await collection.findOne({ _id: i });
  calls += 200;
}
const { user, system } = process.cpuUsage(used);
console.log(Math.round(Number(process.hrtime.bigint() - began) / calls), Math.round(((user + system) * 1000) / calls));
await owner.close();
