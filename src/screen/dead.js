// Dead letters, grouped by queue and last error.
import { aggregate } from './api.js';
import { num, text, time } from './exact_numbers.js';
import { h, a, act, action, ago, capped, code, href, live, plural, table } from './dom.js';
import { JOBS, queues } from './work.js';

const byError = () =>
    aggregate(JOBS, [
        { $match: { 'dead.queue': { $exists: true } } },
        { $sort: { 'dead.queue': 1, 'dead.at': 1 } },
        { $limit: 10001 },
        {
            $group: {
                _id: { queue: '$queue', error: { $arrayElemAt: ['$errors.text', -1] } },
                n: { $sum: 1 },
                newest: { $max: '$ended' },
                job: { $last: '$_id' },
            },
        },
        { $sort: { n: -1 } },
        { $limit: 100 },
    ]);

async function read() {
    const [groups, all] = await Promise.all([byError(), queues()]);
    return { groups, dead: all.filter((one) => num(one.dead)) };
}

export function show({ head }) {
    return [
        head('Dead letters', {
            sub: 'Jobs that failed for the last time, by queue and error. A retry begins their attempts again.',
        }),
        live(read, ({ groups, dead }) => {
            return [
                dead.length > 0 &&
                    table(
                        'Queues',
                        [
                            {
                                name: 'Queue',
                                cell: ({ queue }) =>
                                    h(
                                        'a.clip',
                                        { href: href(['jobs'], { queue, state: 'dead' }) },
                                        queue,
                                    ),
                            },
                            {
                                name: 'Dead letters',
                                kind: 'num',
                                cell: (one) => capped(num(one.dead)),
                            },
                            {
                                name: 'Action',
                                cell: ({ queue, dead: n }) =>
                                    action(
                                        'Retry all',
                                        async () => {
                                            let count = 0,
                                                reply;
                                            do {
                                                reply = await act('truceQueue', {
                                                    queue,
                                                    action: 'redrive',
                                                });
                                                count += num(reply.count);
                                            } while (reply.more);
                                            return `${plural(count, 'job')} retried.`;
                                        },
                                        {
                                            confirm: `${plural(num(n), 'dead letter')} of ${queue} will be retried.`,
                                        },
                                    ),
                            },
                        ],
                        dead,
                    ),
                table(
                    'Dead letters',
                    [
                        { name: 'Jobs', kind: 'num', cell: (group) => capped(num(group.n)) },
                        {
                            name: 'Queue',
                            cell: (group) =>
                                h(
                                    'a.clip',
                                    {
                                        href: href(['jobs'], {
                                            queue: text(group._id.queue),
                                            state: 'dead',
                                        }),
                                    },
                                    text(group._id.queue),
                                ),
                        },
                        {
                            name: 'Last error',
                            cell: (group) => h('div.clip', code(text(group._id.error))),
                        },
                        { name: 'Newest', cell: (group) => ago(time(group.newest)) },
                        {
                            name: 'Example',
                            cell: (group) =>
                                a(['jobs', text(group.job)], h('code.id', text(group.job))),
                        },
                    ],
                    groups,
                    'There are no dead letters.',
                ),
            ];
        }),
    ];
}
