// Workflows: the jobs that others wait for. The graph is on the page of each job.
import { find } from './api.js';
import { text, time } from './exact_numbers.js';
import { a, ago, code, live, plural, state, table } from './dom.js';
import { JOBS } from './work.js';

export function show({ head }) {
    return [
        head('Workflows', {
            sub: 'The newest jobs that begin a workflow. Each leads to its graph.',
        }),
        live(
            () =>
                find(JOBS, {
                    filter: {
                        after: { $exists: false },
                        $or: [{ then: { $exists: true } }, { notified: { $exists: true } }],
                    },
                    projection: { name: 1, queue: 1, state: 1, then: 1, notified: 1, created: 1 },
                    sort: { _id: -1 },
                    limit: 50,
                }),
            (jobs) =>
                table(
                    'Workflows',
                    [
                        { name: 'State', cell: (job) => state(text(job.state)) },
                        {
                            name: 'First job',
                            cell: (job) =>
                                a(
                                    ['jobs', text(job._id)],
                                    job.name ? text(job.name) : code(text(job._id)),
                                ),
                        },
                        {
                            name: 'Queue',
                            cell: (job) => a(['queues', text(job.queue)], text(job.queue)),
                        },
                        {
                            name: 'Releases',
                            cell: (job) => plural((job.then ?? job.notified ?? []).length, 'job'),
                        },
                        { name: 'Added', cell: (job) => ago(time(job.created)) },
                    ],
                    jobs,
                    'No job waits for another job.',
                ),
            10000,
        ),
    ];
}
