// Queues, and the loop of a worker.
import { hostname } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";

import { changesOf } from "./index.js";
import { refuseUnknown } from "./options.js";
import { Expired, TruceError, isLost } from "./errors.js";

// A claimed job. Expired: another worker has it by now, and its changes are not made.
export class Job {
  #send;
  constructor(truce, queue, document) {
    this.#send = (command, fields, by = truce) =>
      by.command(command, queue, { id: document._id, token: document.token, ...fields });
    this.document = document;
    this.id = document._id;
    this.token = document.token;
    this.payload = document.payload;
    this.attempt = document.attempt;
    this.ended = false;
    this.lost = false; // the server refused a heartbeat, because another worker has the job
  }
  async #end(command, fields, by) {
    if (this.ended) throw new Expired(`job ${this.id} was ended`, { code: 125 });
    await this.#send(command, fields, by);
    this.ended = true;
  }
  // `by`: bound to a transaction, the end of the job and the other changes are one commit.
  done(result, by) {
    return this.#end("truceDone", { result }, by);
  }
  commit(changes, result) {
    return this.#end("truceJobCommit", { changes: changesOf(changes), result });
  }
  fail(error, delayMS) {
    return this.#end("truceFail", { error: String(error?.message || error), delayMS });
  }
  snooze(delayMS = 0) {
    return this.#end("truceSnooze", { delayMS });
  }
  async heartbeat(progress) {
    return (await this.#send("truceHeartbeat", { progress })).leaseMS;
  }
}

export class Queue {
  #truce;
  constructor(truce, name) {
    this.#truce = truce;
    this.name = name;
  }

  // The options are the fields of truceEnqueue. With `id` it is added once.
  async add(payload, options = {}) {
    const once = options.id !== undefined;
    return (await this.#truce.command("truceEnqueue", this.name, { payload, ...options }, { once })).id;
  }
  async addMany(payloads, options = {}) {
    return (await this.#truce.command("truceEnqueue", this.name, { payloads, ...options })).ids;
  }
  // The jobs of the queue, the oldest first, a page at a time: all of them, or at most `limit`.
  async jobs({ limit, after, ...which } = {}) {
    const all = [];
    for (;;) {
      const page = limit && Math.min(limit - all.length, 1000);
      const { jobs, more } = await this.#truce.command("truceJobs", this.name, { ...which, limit: page, after });
      all.push(...jobs);
      if (!more || (limit && all.length >= limit)) return all;
      after = all.at(-1)._id;
    }
  }
  #act(action, fields = {}) {
    return this.#truce.command("truceQueue", this.name, { action, ...fields });
  }
  async cancel(id) {
    return (await this.#act("cancel", { id })).status === "ok";
  }
  async retry(id) {
    return (await this.#act("retry", { id })).status === "ok";
  }
  async discard(id) {
    return (await this.#act("discard", { id })).status === "ok";
  }
  async pause() {
    await this.#act("pause");
  }
  async resume() {
    await this.#act("resume");
  }
  async redrive(limit) {
    return (await this.#act("redrive", { limit })).count;
  }
  async claim(options = {}) {
    const { jobs = [] } = await this.#truce.command("truceClaim", this.name, options);
    return jobs.map((document) => new Job(this.#truce, this.name, document));
  }

  // for await (const job of mail.work({signal})): claims jobs, and keeps their leases while the
  // loop has them. A job that the loop has not ended is done when the loop comes back. If the loop
  // breaks or throws, its job is requeued at once, with those that were claimed with it. Ends when
  // the signal is aborted, after the job that is at work, or, untilEmpty, when no job is left.
  async *work(options = {}) {
    const { signal, most = 1, leaseMS = 30000, waitMS = 2000, worker = `${hostname()}:${process.pid}`,
      untilEmpty = false, onError = () => {}, ...rest } = options;
    refuseUnknown(rest, "work");
    let held = [];
    const heart = setInterval(() => held.forEach((job) => beat(job, onError)), leaseMS / 3);
    try {
      while (!signal?.aborted) {
        held = await this.#claimOrWait({ most, leaseMS, waitMS: untilEmpty ? 0 : waitMS, worker }, onError, signal);
        if (!held.length && untilEmpty) return;
        while (held.length && !signal?.aborted) {
          if (!held[0].lost) {
            yield held[0];
            await finish(held[0], onError);
          }
          held.shift();
        }
      }
    } finally {
      clearInterval(heart);
      await Promise.all(held.map(giveBack));
    }
  }

  // The loop waits for a server that is away.
  async #claimOrWait(options, onError, signal) {
    try {
      return await this.claim(options);
    } catch (error) {
      if (!isLost(error)) throw error;
      onError(error);
      await sleep(1000, undefined, { signal }).catch(() => {});
      return [];
    }
  }

  // Runs handler(job) for each job, until the signal is aborted, or SIGTERM or SIGINT comes; the
  // job that is at work is finished. The object that the handler returns is the result; an error
  // that it throws fails the job, which is tried again.
  async run(handler, { signal, signals = ["SIGTERM", "SIGINT"], onError = () => {}, ...how } = {}) {
    const stop = new AbortController();
    const end = () => stop.abort();
    if (signal?.aborted) return;
    signal?.addEventListener("abort", end);
    signals.forEach((name) => process.on(name, end));
    try {
      for await (const job of this.work({ ...how, onError, signal: stop.signal })) await handle(job, handler, onError);
    } finally {
      signals.forEach((name) => process.off(name, end));
      signal?.removeEventListener("abort", end);
    }
  }
}

async function handle(job, handler, onError) {
  try {
    const result = await handler(job);
    if (!job.ended) await job.done(result && typeof result === "object" ? result : undefined);
  } catch (error) {
    onError(error, job);
    if (error instanceof Expired || job.ended) job.ended = true;
    else await job.fail(error).catch((why) => {
      onError(why, job);
      job.ended = true;
      if (!(why instanceof Expired) && !isLost(why)) throw why;
    });
  }
}

async function beat(job, onError) {
  if (job.ended || job.lost) return;
  try {
    await job.heartbeat();
  } catch (error) {
    if (error instanceof Expired) job.lost = !job.ended;
    else onError(error, job);
  }
}

async function finish(job, onError) {
  if (job.ended) return;
  try {
    await job.done();
  } catch (error) {
    if (!(error instanceof Expired) && !isLost(error)) throw error;
    onError(error, job);
  }
}

async function giveBack(job) {
  if (job.ended || job.lost) return;
  await job.snooze(0).catch((error) => {
    if (!(error instanceof TruceError) && !isLost(error)) throw error;
  });
}
