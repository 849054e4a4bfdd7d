// Consumers of message brokers: their counts, their workers, and the messages that they rejected.
import { op, find } from './api.js';
import { num, text, time, brief } from './exact_numbers.js';
import {
    h,
    a,
    ago,
    bytes,
    card,
    code,
    grouped,
    idPart,
    live,
    state,
    table,
    LIST_MAX,
} from './dom.js';
import { isStopped } from './work.js';

const rate = (value) =>
    `${num(value) < 10 ? num(value).toFixed(1) : grouped(Math.round(num(value)))}/s`;
const counted = (name, field) => ({ name, kind: 'num', cell: (one) => grouped(one[field]) });

const columns = [
    {
        name: 'Consumer',
        kind: 'wide',
        cell: (one) => [
            text(one.consumer),
            ' ',
            state(isStopped(one) ? 'stopped' : 'running'),
            h('div.muted', text(one.source), ' → ', text(one.into)),
        ],
    },
    { name: 'Rate', kind: 'num', cell: (one) => rate(one.rate) },
    counted('Waiting', 'waiting'),
    counted('Applied', 'applied'),
    counted('Duplicate', 'duplicate'),
    counted('Stale', 'stale'),
    counted('Rejected', 'rejected'),
    counted('Quarantined', 'quarantined'),
    counted('Reconnects', 'reconnects'),
    { name: 'Last message', cell: (one) => ago(time(one.lastMessage)) },
];

const workers = (all) =>
    table(
        'Workers',
        [
            { name: 'Worker', cell: ({ worker }) => code(text(worker.worker)) },
            { name: 'Consumer', cell: ({ consumer }) => text(consumer) },
            { name: 'Started', cell: ({ worker }) => ago(time(worker.started)) },
            { name: 'Last report', cell: ({ worker }) => ago(time(worker.updated)) },
            { name: 'Rate', kind: 'num', cell: ({ worker }) => rate(worker.rate) },
            { name: 'Waiting', kind: 'num', cell: ({ worker }) => grouped(worker.waiting) },
        ],
        all.flatMap(({ consumer, workers: own }) =>
            (own ?? []).map((worker) => ({ consumer, worker })),
        ),
        'No worker is running.',
        LIST_MAX,
    );

const rejects = (all) =>
    table(
        'Rejected messages',
        [
            {
                name: 'Message',
                cell: (one) =>
                    a(['documents', 'truce_rejects', idPart(one._id)], code(brief(one._id, 80))),
            },
            { name: 'Rejected', cell: (one) => ago(time(one.time)) },
            { name: 'Size', kind: 'num', cell: (one) => bytes(num(one.size)) },
            { name: 'Reason', cell: (one) => h('div.clip', text(one.reason).slice(0, 300)) },
        ],
        all,
        'No message was rejected.',
        50,
    );

export function show({ head }) {
    return [
        head('Consumers', {
            sub: 'Consumers of message brokers in all processes. The counts are totals.',
        }),
        live(
            async () => ({
                consumers: (await op('truceConsumers')).consumers,
                rejected: await find('truce_rejects', {
                    projection: { reason: 1, time: 1, size: 1 },
                    sort: { time: -1 },
                    limit: 51,
                }),
            }),
            ({ consumers, rejected }) => [
                table(
                    'Consumers',
                    columns,
                    consumers,
                    'No consumer has reported to this database.',
                    LIST_MAX,
                ),
                consumers.length > 0 && card('Workers', workers(consumers)),
                card(
                    'Rejected messages',
                    rejects(rejected),
                    rejected.length > 0 &&
                        h(
                            'p.muted',
                            'After the cause is repaired, start the consumer with --replay. ',
                            a(['documents', 'truce_rejects'], 'All rejected messages'),
                        ),
                ),
            ],
        ),
    ];
}
