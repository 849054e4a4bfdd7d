// Queues: all of them, and one with its limits, workers, lanes, and times.
import { find, aggregate, optional, one as findOne, remember, missing } from './api.js';
import { num, text, time, whole } from './exact_numbers.js';
import {
    h,
    a,
    act,
    action,
    ask,
    card,
    facts,
    href,
    live,
    plural,
    state,
    table,
    capped,
    duration,
    grouped,
    ago,
    code,
    empty,
} from './dom.js';
import {
    JOBS,
    STATES,
    jobFilter,
    queues,
    stateCounts,
    stateLinks,
    lastHour,
    hourChart,
} from './work.js';

const pauseButton = (queue, paused) =>
    action(
        paused ? 'Resume the queue' : 'Pause the queue',
        async () => {
            await act('truceQueue', { queue, action: paused ? 'resume' : 'pause' });
            return paused
                ? 'The queue gives jobs to workers again.'
                : 'The queue is paused. It still accepts jobs.';
        },
        {
            confirm: paused
                ? 'Workers may claim its jobs again.'
                : 'Workers claim no further jobs. Running jobs continue.',
        },
    );

function list(head) {
    return [
        head('Queues'),
        live(queues, (all) =>
            table(
                'Queues',
                [
                    {
                        name: 'Queue',
                        cell: (one) =>
                            h('a.clip', { href: href(['queues', one.queue]) }, one.queue),
                    },
                    { name: 'State', cell: (one) => state(one.paused ? 'paused' : 'running') },
                    ...['ready', 'running', 'delayed', 'waiting', 'blocked', 'dead'].map(
                        (name) => ({
                            name,
                            kind: 'num',
                            cell: (one) =>
                                h(
                                    'a',
                                    { href: href(['jobs'], { queue: one.queue, state: name }) },
                                    capped(num(one[name])),
                                ),
                        }),
                    ),
                    {
                        name: 'Oldest',
                        kind: 'num',
                        cell: (one) => (num(one.oldest_ms) ? duration(num(one.oldest_ms)) : ''),
                    },
                ],
                all,
                'There are no queues in this database.',
            ),
        ),
    ];
}

const editLimits = (queue, limiter) =>
    ask(`Limits of ${queue}`, {
        confirm: 'Save',
        body: [
            'They hold for all processes, and take effect within a second. An empty field is no limit.',
        ],
        fields: [
            {
                name: 'running',
                label: 'Jobs that run at once',
                value: limiter?.running_max ? num(limiter.running_max) : '',
                type: 'number',
            },
            {
                name: 'rate',
                label: 'Jobs that begin…',
                value: limiter?.rate ? num(limiter.rate) : '',
                type: 'number',
            },
            {
                name: 'seconds',
                label: '…in this number of seconds',
                value: limiter?.per_ms ? num(limiter.per_ms) / 1000 : '',
                type: 'number',
            },
        ],
        run: async (given) => {
            await act('truceQueueLimit', {
                queue,
                running: given.running ? whole(given.running) : undefined,
                rate: given.rate ? whole(given.rate) : undefined,
                perMS: given.seconds ? Math.round(Number(given.seconds) * 1000) : undefined,
                pool: limiter?._id?.pool,
            });
            return 'The limits are saved.';
        },
    });

const percentile = (sorted, part) =>
    sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))];
async function times(queue) {
    const jobs = await optional(
        remember(`times/${queue}`, 20000, () =>
            find(JOBS, {
                filter: jobFilter({ queue, state: 'done' }),
                projection: { created: 1, ended: 1, lease: 1 },
                sort: { _id: -1 },
                limit: 500,
            }),
        ),
    );
    if (!jobs?.length) return undefined;
    const order = (values) => values.filter((value) => value >= 0).sort((x, y) => x - y);
    const waits = order(jobs.map((job) => time(job.lease?.since) - time(job.created))),
        runs = order(jobs.map((job) => time(job.ended) - time(job.lease?.since)));
    return {
        count: jobs.length,
        wait: [percentile(waits, 0.5), percentile(waits, 0.95)],
        run: [percentile(runs, 0.5), percentile(runs, 0.95)],
    };
}

async function read(queue) {
    const statistics = queues();
    const [all, settings, running, lanes, hour, spent, counts] = await Promise.all([
        statistics,
        findOne('truce_queues', { _id: queue }),
        find(JOBS, {
            filter: jobFilter({ queue, state: 'running' }),
            projection: { lease: 1, undone: 1, name: 1, progress: 1 },
            limit: 100,
        }),
        optional(
            aggregate(JOBS, [
                { $match: { 'undone.queue': queue, lane: { $exists: true } } },
                { $group: { _id: '$lane.name', n: { $sum: 1 }, width: { $max: '$lane.width' } } },
                { $sort: { n: -1 } },
                { $limit: 50 },
            ]),
        ),
        optional(lastHour()),
        times(queue),
        stateCounts(queue, statistics),
    ]);
    const limiter =
        settings?.limiter &&
        (await findOne('truce_queue_limiters', { _id: settings.limiter }, { begun: 0 }));
    return {
        one: all.find((each) => each.queue === queue),
        settings,
        limiter,
        running,
        lanes,
        hour: hour && [...(hour.get(queue) ?? [])],
        spent,
        counts,
    };
}

export async function show({ args: [queue], head }) {
    if (queue === undefined) return list(head);
    const first = await read(queue);
    if (!first.one && !first.settings && !Object.values(first.counts).some(Boolean))
        throw missing(`There is no queue "${queue}".`);
    return live(
        () => read(queue),
        ({ one, settings, limiter, running, lanes, hour, spent, counts }) => {
            const paused = one?.paused || settings?.paused;
            return [
                head(queue, {
                    crumbs: a(['queues'], 'Queues'),
                    side: [
                        paused && state('paused'),
                        pauseButton(queue, paused),
                        h('a', { href: href(['jobs'], { queue }) }, 'Jobs'),
                    ],
                }),
                h(
                    'section.card.queue',
                    h(
                        'ul.counts',
                        stateLinks(
                            queue,
                            counts,
                            STATES.filter(
                                (name) => counts[name] || name === 'ready' || name === 'running',
                            ),
                        ),
                    ),
                    hourChart(queue, hour ? new Map(hour) : null, {
                        width: 900,
                        height: 90,
                        legend: true,
                    }),
                ),
                h(
                    'div.grid.wide',
                    card(
                        'Limits',
                        h(
                            'div',
                            facts([
                                [
                                    'Running at once',
                                    limiter?.running_max
                                        ? `${capped(limiter._id?.pool ? num(limiter.running) : counts.running)} of ${grouped(num(limiter.running_max))}`
                                        : 'no limit',
                                ],
                                [
                                    'Rate',
                                    limiter?.rate
                                        ? `${plural(num(limiter.rate), 'job')} in ${duration(num(limiter.per_ms))}`
                                        : 'no limit',
                                ],
                                ['Pool', limiter?._id?.pool && text(limiter._id.pool)],
                            ]),
                        ),
                        h(
                            'p',
                            action('Edit the limits', () => editLimits(queue, limiter)),
                        ),
                    ),
                    card(
                        'Times',
                        spent
                            ? [
                                  facts([
                                      ['Wait, median', duration(spent.wait[0])],
                                      ['Wait, 95th percentile', duration(spent.wait[1])],
                                      ['Run, median', duration(spent.run[0])],
                                      ['Run, 95th percentile', duration(spent.run[1])],
                                  ]),
                                  h(
                                      'p.muted',
                                      `of the last ${plural(spent.count, 'job')} that ended as done`,
                                  ),
                              ]
                            : empty('No job has ended as done recently.'),
                    ),
                ),
                card(
                    'Workers',
                    table(
                        'Workers',
                        [
                            {
                                name: 'Worker',
                                cell: (job) =>
                                    h(
                                        'a',
                                        {
                                            href: href(['jobs'], {
                                                queue,
                                                worker: text(job.lease?.worker),
                                            }),
                                        },
                                        text(job.lease?.worker),
                                    ),
                            },
                            {
                                name: 'Job',
                                cell: (job) =>
                                    a(['jobs', text(job._id)], code(text(job.name ?? job._id))),
                            },
                            { name: 'Since', cell: (job) => ago(time(job.lease?.since)) },
                            { name: 'Lease ends', cell: (job) => ago(time(job.undone?.at)) },
                        ],
                        running,
                        'No worker has a job of this queue.',
                    ),
                ),
                lanes?.length > 0 &&
                    card(
                        'Lanes',
                        table(
                            'Lanes',
                            [
                                {
                                    name: 'Lane',
                                    cell: (lane) =>
                                        h(
                                            'a.clip',
                                            {
                                                href: href(['jobs'], {
                                                    queue,
                                                    lane: text(lane._id),
                                                }),
                                            },
                                            text(lane._id),
                                        ),
                                },
                                {
                                    name: 'Live jobs',
                                    kind: 'num',
                                    cell: (lane) => capped(num(lane.n)),
                                },
                                {
                                    name: 'At once',
                                    kind: 'num',
                                    cell: (lane) => num(lane.width) || 1,
                                },
                            ],
                            lanes,
                        ),
                    ),
            ];
        },
        5000,
        first,
    );
}
