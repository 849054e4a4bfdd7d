// A worker for `truce work --keep-open`: it reads a job a line and answers it by a line, several jobs at once.
//
//     truce queue add mail '{"to": "ada@x.org"}'
//     truce work --queue mail --keep-open --at-once 10 --drain --exec node worker.js

const running = new Map(); // id and epoch -> AbortController

// What a job does: its result, and the changes that are made in one commit with its end.
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
    console.log(JSON.stringify(answer)); // nothing else goes to standard output
}

require("readline")
    .createInterface({ input: process.stdin }) // it ends when there are no more jobs
    .on("line", (line) => {
        const message = JSON.parse(line);
        if (message.cancel) running.get(`${message.cancel}/${message.epoch}`)?.abort();
        else take(message);
    });
