import testing from "./testing.js";

export const { assertEnqueued, enqueued, inline, openTemporary, runJobs, startServer } = testing;
