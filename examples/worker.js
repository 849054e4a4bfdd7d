// A worker for `truce work --keep-open`: reads one job per line and writes one reply per line.
// It runs several jobs at once.
//
//     truce queue add mail '{"to": "ada@x.org"}'
//     truce work --queue mail --keep-open --at-once 10 --drain --exec node worker.js

// Maps the id and epoch of a running job to its AbortController.
const running = new Map();

// Runs a job. Returns its result, and the changes that one commit applies together with its end.
async function work(job, payload, signal) {
    signal.throwIfAborted();
    if (payload.to === undefined) throw new Error('the payload has no "to"');
    return {
        result: { sent: payload.to },
        changes: [{ insert: "sent", with: { _id: job, to: payload.to } }],
    };
}

async function take({ job, epoch, payload }) {
    const key = `${job}/${epoch}`;
    const controller = new AbortController();
    let answer;
    running.set(key, controller);
    try {
        answer = { done: job, epoch, ...(await work(job, payload, controller.signal)) };
    } catch (error) {
        answer = { fail: job, epoch, error: String(error.message) };
    }
    running.delete(key);
    console.log(JSON.stringify(answer)); // write nothing else to standard output
}

require("readline")
    .createInterface({ input: process.stdin }) // ends when no job is left
    .on("line", (line) => {
        const message = JSON.parse(line);
        if (message.cancel) running.get(`${message.cancel}/${message.epoch}`)?.abort();
        else take(message);
    });
