// The types of the installed package: compiled by tsc --strict, never run.
import truceDefault, * as truce from "truce-db";
import { assertEnqueued, openTemporary, runJobs, startServer } from "truce-db/testing";

interface Mail {
  to: string;
}

export async function main(): Promise<void> {
  const db: truce.Database = await truce.open("school.truce", { readOnly: true });
  await truceDefault.open("memory:");
  const reply = await db.enqueue("mail", { payload: { to: "ada" }, delayMS: 5, keyTime: undefined } as truce.EnqueueOptions);
  const state: "ok" | "not found" = reply.status;
  await db.enqueue("mail", { payload: { to: state } });
  const balance = await db.ledgerBalance("bank", { account: "cash" });
  // @ts-expect-error the account may not exist
  balance.balance;
  if (balance.status === "ok") balance.balance.toFixed(2);
  else balance.reason.toUpperCase();
  // @ts-expect-error an unknown option
  await db.enqueue("mail", { payload: {}, delayMs: 5 });
  // @ts-expect-error a wrong type
  await db.enqueue("mail", { payload: {}, priority: "high" });
  // @ts-expect-error a word that the operation does not have
  await db.revisionPatch("posts", { id: 1, patch: {}, kind: "yaml" });
  // @ts-expect-error a patch is not merged
  await db.revisionPatch("posts", { id: 1, patch: {}, inbox: true });
  await db.resolve("posts", { conflict: "6926d0c1e4a1a1a1a1a1a1a1", take: "mine" });
  // @ts-expect-error an option that is needed
  await db.ledgerPost("bank", { entries: [] });
  // @ts-expect-error no target
  await db.enqueue({ payload: {} });
  // @ts-expect-error an unknown option
  await truce.open("memory:", { mustExits: true });
  // @ts-expect-error an unknown operation
  await db.enqueu("mail", {});

  const students = db.collection<{ _id: number; name: string }>("students");
  const found = await students.findOne({ _id: 1 });
  const name: string | undefined = found?.name;
  for await (const one of students.find({ name }).sort({ name: 1 })) one.name.toUpperCase();
  await students.insertOne({ _id: 1, name: "Ada" });
  // @ts-expect-error an unknown option
  students.find({}, { limits: 1 });
  await students.merge({ _id: 1 }, { version: 1, keep: 5 });
  // @ts-expect-error the version is needed
  await students.merge({ _id: 1 }, { keep: 5 });

  const done = await db.commit((c) => {
    const number: number = c.enqueue("mail", { payload: {} });
    c.update("students", number, { $set: { n: 1 } }, { where: { n: 2 } });
    // @ts-expect-error claims cannot be a part of a commit
    c.claim("mail");
  }, { key: "k", keyTime: new Date() });
  const earlier: boolean = done.earlier;
  // @ts-expect-error a key needs its time
  await db.commit(() => {}, { key: "k" });
  // @ts-expect-error a time needs its key
  await db.commit(() => {}, { keyTime: 5 });
  await db.commit(() => {}, { input: { n: 1 } });
  await db.transact(async (tx) => {
    await tx.collection("x").updateOne({ earlier }, { $set: { n: 1 } });
    // @ts-expect-error transactions do not nest
    await tx.transact(async () => 1);
  });
  const worker = new truce.Worker<Mail>(db, "mail", async (job) => {
    await fetch(job.payload.to, { signal: job.signal });
  }, { concurrency: 2 });
  // @ts-expect-error an unknown option
  new truce.Worker(db, "mail", () => {}, { untilempty: true });
  await worker.start().stop();
  try {
    await db.edit("site", (edit) => edit.put({ itemId: 1 }), { message: "a" });
  } catch (error) {
    if (error instanceof truce.Conflict) error.conflicts.map((one) => one.path);
  }
  const temporary = await openTemporary();
  await runJobs<Mail>(temporary, "mail", (job) => job.payload.to);
  const { uri, close } = await startServer({ file: "a.truce" });
  await assertEnqueued(await truce.connect(uri), "mail", { count: 1 });
  await close();
  const id: truce.ObjectId = new truce.ObjectId();
  await db.jobs("mail", { id });
  await db.jobs(1, { id });
  const limited: truce.Database = db.withSignal(AbortSignal.timeout(1000));
  await limited.jobs("mail", { id });
  // @ts-expect-error not a signal
  db.withSignal(1000);
  const { jobs } = await db.flow("mail", { jobs: [{ name: "get", delayMS: 5 }, { name: "mail", after: ["get"], runAtMS: new Date() }] });
  await db.enqueue("mail", { payload: {}, after: [jobs[0].id, "0123456789abcdef01234567"] });
  // @ts-expect-error an unknown option of a job
  await db.flow("mail", { jobs: [{ name: "get", delay: 5 }] });
  const entries = [{ account: "a", value: 5 }, { account: "b", value: -5n }];
  await db.ledgerPost("book", { id: 1, entries });
  await db.ledgerPostMany("book", { transactions: [{ id: 2, entries, expiresMS: new Date() }] });
  // @ts-expect-error a misspelled field of an entry
  await db.ledgerPost("book", { id: 1, entries: [{ acount: "a", value: 5 }] });
  // @ts-expect-error the queue of a claim is needed
  await db.claim(1);
}
