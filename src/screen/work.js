// The common part of the screens of queues: reads of truce_queue, and actions on jobs.
import { op, aggregate, count, find, remember } from './api.js';
import { num } from './exact_numbers.js';
import { act, bars, capped, href, h, legend, plural, state } from './dom.js';

export const JOBS = 'truce_queue';
export const STATES = [
    'ready',
    'running',
    'delayed',
    'waiting',
    'blocked',
    'done',
    'dead',
    'cancelled',
    'discarded',
];
const LIVE = new Set(['ready', 'running', 'delayed', 'waiting', 'blocked']);
// The states that allow each action, as in the library.
export const ALLOWED = {
    retry: ['delayed', 'dead', 'cancelled', 'discarded'],
    cancel: ['ready', 'delayed', 'running', 'waiting', 'blocked'],
    discard: ['ready', 'delayed', 'waiting', 'blocked', 'dead', 'cancelled'],
};

// Returns whether a consumer of a broker has no running thread.
export const isStopped = (consumer) => !consumer.workers?.length;

export const isId = (string) => /^[0-9a-f]{24}$/.test(string ?? '');
export const oid = (id) => ({ $oid: id });
// Returns the smallest ObjectId of a time, which bounds a query by the index of _id.
const oidAt = (ms) =>
    oid(
        `${Math.floor(ms / 1000)
            .toString(16)
            .padStart(8, '0')}${'0'.repeat(16)}`,
    );

// Returns a filter that an index serves where there is one.
export function jobFilter({ queue, state: name, tag, lane, worker, path, value }) {
    const filter = {};
    if (queue && name && LIVE.has(name)) filter['undone.queue'] = queue;
    else if (queue && name === 'dead') filter['dead.queue'] = queue;
    else if (queue) filter.queue = queue;
    if (name && LIVE.has(name)) filter['undone.state'] = name;
    else if (name) filter.state = name;
    if (tag) filter.tags = tag;
    if (lane) filter['lane.name'] = lane;
    if (worker) filter['lease.worker'] = worker;
    if (path)
        filter[/^payload(\.|$)/.test(path) ? path : `payload.${path}`] =
            value === undefined || value === '' ? { $exists: true } : value;
    return filter;
}

export const queues = async () => (await op('truceQueues')).queues;

// Counts by state: the live ones and the dead ones from the statistics, the others up to a maximum.
export async function stateCounts(queue, statistics = queues()) {
    const all = (await statistics).filter((one) => !queue || one.queue === queue),
        counts = {};
    for (const name of STATES) {
        if (name === 'done' || name === 'cancelled' || name === 'discarded') continue;
        counts[name] = all.reduce((sum, one) => sum + num(one[name]), 0);
    }
    await Promise.all(
        ['done', 'cancelled', 'discarded'].map(async (name) => {
            counts[name] = await remember(`count/${queue}/${name}`, 10000, () =>
                count(JOBS, jobFilter({ queue, state: name })),
            );
        }),
    );
    return counts;
}

// Jobs that were added in the last hour, in 30 bins: Map of queue to Map of state to numbers.
const BINS = 30,
    BIN_MS = 120000;
export const lastHour = () =>
    remember('hour', 20000, async () => {
        const end = Math.ceil(Date.now() / BIN_MS),
            begin = end - BINS;
        const rows = await aggregate(JOBS, [
            { $match: { _id: { $gte: oidAt(begin * BIN_MS) } } },
            {
                $group: {
                    _id: {
                        queue: '$queue',
                        state: '$state',
                        bin: { $floor: { $divide: [{ $toLong: '$created' }, BIN_MS] } },
                    },
                    n: { $sum: 1 },
                },
            },
        ]);
        const all = new Map();
        for (const { _id, n } of rows) {
            const at = num(_id.bin) - begin;
            if (at < 0 || at >= BINS) continue;
            if (!all.has(_id.queue)) all.set(_id.queue, new Map());
            const one = all.get(_id.queue);
            if (!one.has(_id.state)) one.set(_id.state, Array(BINS).fill(0));
            one.get(_id.state)[at] += num(n);
        }
        return all;
    });
export function hourChart(label, one, options) {
    if (one === null) return h('p.muted', 'There are too many jobs to chart the last hour.');
    const series = STATES.filter((name) => one?.has(name)).map((name) => ({
        name,
        values: one.get(name),
    }));
    const total = series.reduce((sum, each) => sum + each.values.reduce((x, y) => x + y, 0), 0);
    if (!series.length) return h('p.muted', 'No job was added in the last hour.');
    const most = Math.max(
        ...series[0].values.map((_, i) => series.reduce((sum, each) => sum + each.values[i], 0)),
    );
    return [
        bars(`${label}: ${plural(total, 'job')} added in the last hour`, series, {
            ...options,
            ends: ['1 hour ago', `highest: ${plural(most, 'job')} in 2 min`, 'now'],
        }),
        options?.legend && legend(series.map(({ name }) => [name, name])),
    ];
}

export const workers = () =>
    aggregate(JOBS, [
        { $match: { 'undone.state': 'running' } },
        { $group: { _id: { queue: '$queue', worker: '$lease.worker' }, n: { $sum: 1 } } },
        { $limit: 1000 },
    ]);

export const stateLinks = (queue, counts, names = STATES) =>
    names.map((name) =>
        h(
            'li',
            h(
                'a',
                { href: href(['jobs'], { queue, state: name }) },
                state(name),
                ' ',
                h('b', capped(counts[name])),
            ),
        ),
    );

// Applies an action to jobs of several queues. Returns a message.
export async function actOn(name, jobs) {
    const byQueue = new Map();
    for (const job of jobs) byQueue.set(job.queue, [...(byQueue.get(job.queue) ?? []), job._id]);
    let done = 0,
        skipped = 0;
    for (const [queue, ids] of byQueue)
        for (let i = 0; i < ids.length; i += 500) {
            const reply = await act('truceQueue', {
                queue,
                action: name,
                ids: ids.slice(i, i + 500),
            });
            done += num(reply.count);
            skipped += num(reply.skipped);
        }
    return [done, skipped];
}
const PAST = { retry: 'retried', cancel: 'cancelled', discard: 'discarded' };
export const outcome = (name, [done, skipped]) =>
    `${plural(done, 'job')} ${PAST[name]}${skipped ? `; ${capped(skipped)} had another state by then` : ''}.`;

// Applies an action to all jobs of a filter, a part at a time, up to `most`.
export async function actOnAll(name, filter, most, progress) {
    const total = [0, 0];
    let after = oid('0'.repeat(24));
    const states = { $in: ALLOWED[name] };
    while (total[0] + total[1] < most) {
        const jobs = await find(JOBS, {
            filter: { $and: [filter, { state: states, _id: { $gt: after } }] },
            projection: { queue: 1 },
            sort: { _id: 1 },
            limit: Math.min(500, most - total[0] - total[1]),
        });
        if (!jobs.length) break;
        after = jobs.at(-1)._id;
        const [done, skipped] = await actOn(name, jobs);
        total[0] += done;
        total[1] += skipped;
        progress(total[0]);
    }
    return total;
}
