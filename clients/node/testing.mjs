import testing from "./testing.js";

export const { assertEnqueued, enqueued, openTemporary, runJobs, startServer } = testing;
