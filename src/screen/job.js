// A job: its history, its payload on request, and its workflow.
import { op, one as findOne, missing, optional } from './api.js';
import { num, time, text, brief } from './exact_numbers.js';
import {
    h,
    a,
    ago,
    live,
    card,
    facts,
    state,
    code,
    json,
    action,
    act,
    graph,
    href,
    copyButton,
    duration,
    table,
    note,
    toast,
    explainError,
} from './dom.js';
import { JOBS, ALLOWED, isId, oid } from './work.js';

function timeline(job) {
    const events = [{ at: time(job.created), what: 'Added' }];
    if (job.cron) events[0].what = ['Added by the cron line ', a(['cron'], text(job.cron.name))];
    for (const error of job.errors ?? [])
        events.push({
            at: time(error.at),
            state: 'failed',
            what: [
                `Attempt ${num(error.attempt)} failed`,
                error.worker && ` on ${text(error.worker)}`,
            ],
            more: h('pre', text(error.text)),
        });
    if (job.lease?.since)
        events.push({
            at: time(job.lease.since),
            state: 'running',
            what: [`Attempt ${num(job.attempt)} claimed by `, code(text(job.lease.worker))],
            more:
                job.state === 'running' &&
                h(
                    'p.muted',
                    'lease of ',
                    duration(num(job.lease.ms)),
                    ', ends ',
                    ago(time(job.undone?.at)),
                ),
        });
    for (const [name, wait] of Object.entries(job.waits ?? {}))
        events.push({ at: time(wait.until), state: 'waiting', what: ['Waits: ', code(name)] });
    if (job.ended)
        events.push({
            at: time(job.ended),
            state: text(job.state),
            what: ['Ended as ', text(job.state)],
        });
    else if (job.state === 'delayed')
        events.push({ at: time(job.undone?.at), state: 'delayed', what: 'Next attempt' });
    events.sort((one, other) => one.at - other.at);
    return h(
        'ol.timeline',
        events.map((event) =>
            h('li', { 'data-state': event.state }, event.what, ago(event.at), event.more),
        ),
    );
}

// A part of the job that is read on request.
function hidden(title, read) {
    const part = card(title);
    part.append(
        h(
            'button',
            {
                type: 'button',
                onclick: async () => {
                    try {
                        const value = await read();
                        part.replaceChildren(
                            h('h2', title),
                            value === undefined ? h('p.muted', 'There is none.') : json(value),
                        );
                    } catch (error) {
                        toast(explainError(error), true);
                    }
                },
            },
            `Show the ${title.toLowerCase()}`,
        ),
    );
    return part;
}

export async function show({ args: [id], head }) {
    if (!isId(id)) throw missing(`"${id}" is not the id of a job: expected 24 hexadecimal digits.`);
    const read = () => findOne(JOBS, { _id: oid(id) }, { payload: 0, result: 0 });
    const first = await read();
    if (!first)
        throw missing(`No job has the id ${id}. Jobs that have ended are removed after some days.`);
    const queue = text(first.queue);
    const whole = async () => (await op('truceJobs', { queue, id: oid(id) })).jobs[0];
    const button = (name, label, options) => (job) =>
        ALLOWED[name].includes(job.state) &&
        action(
            label,
            async () => {
                await act('truceQueue', { queue, action: name, id: oid(id) });
                return `${label}: done.`;
            },
            options,
        );
    const buttons = [
        (job) =>
            button('retry', job.state === 'delayed' ? 'Run now' : 'Retry', {
                primary: true,
                confirm: 'The attempts start again from 0.',
            })(job),
        button('cancel', 'Cancel', {
            confirm: 'The job ends without success. If it is running, its effects are refused.',
        }),
        button('discard', 'Discard', {
            danger: true,
            confirm: 'The job ends as discarded. It is not retried.',
        }),
        (job) =>
            job.open &&
            job.state === 'blocked' &&
            action('Close the batch', async () => {
                await act('truceQueue', { queue, action: 'close', id: oid(id) });
                return 'Closed.';
            }),
    ];

    return [
        live(
            read,
            (job) => {
                if (!job) return [head(`Job ${id}`), note('warn', 'The job was removed.')];
                return [
                    head(job.name ? text(job.name) : `Job ${id}`, {
                        crumbs: [
                            a(['jobs'], 'Jobs'),
                            ' / ',
                            h('a', { href: href(['jobs'], { queue }) }, queue),
                        ],
                        side: [state(text(job.state)), ...buttons.map((make) => make(job))],
                    }),
                    h(
                        'div.grid.wide',
                        card('Timeline', timeline(job)),
                        card(
                            'Facts',
                            facts([
                                ['Id', [code(id), copyButton(() => id)]],
                                ['Queue', a(['queues', queue], queue)],
                                ['Attempt', `${num(job.attempt)} of ${num(job.attempts_max)}`],
                                ['Priority', num(job.priority)],
                                ['Epoch', text(job.epoch)],
                                ['Unique key', job.key && code(text(job.key))],
                                [
                                    'Lane',
                                    job.lane &&
                                        h(
                                            'a',
                                            {
                                                href: href(['jobs'], {
                                                    queue,
                                                    lane: text(job.lane.name),
                                                }),
                                            },
                                            text(job.lane.name),
                                        ),
                                ],
                                [
                                    'Tags',
                                    job.tags?.length &&
                                        job.tags.map((tag) =>
                                            h(
                                                'a.tag',
                                                { href: href(['jobs'], { queue, tag: text(tag) }) },
                                                text(tag),
                                            ),
                                        ),
                                ],
                                ['Time limit', job.timeout_ms && duration(num(job.timeout_ms))],
                                ['Kept until', job.expires && ago(time(job.expires))],
                                ['Waits for the event', job.awaits && code(text(job.awaits))],
                            ]),
                            job.metadata && [h('h3', 'Metadata'), json(job.metadata)],
                            job.progress && [h('h3', 'Progress'), json(job.progress)],
                        ),
                    ),
                    job.steps &&
                        card(
                            'Steps',
                            table(
                                'Steps',
                                [
                                    { name: 'Step', cell: ([name]) => code(name) },
                                    {
                                        name: 'Result',
                                        cell: ([, result]) => code(brief(result, 300)),
                                    },
                                ],
                                Object.entries(job.steps),
                            ),
                        ),
                    job.events &&
                        card(
                            'Events',
                            table(
                                'Events',
                                [
                                    { name: 'Event', cell: ([name]) => code(name) },
                                    {
                                        name: 'Contents',
                                        cell: ([, event]) => code(brief(event, 300)),
                                    },
                                ],
                                Object.entries(job.events),
                            ),
                        ),
                ];
            },
            5000,
            first,
        ),
        live(
            async () => (await optional(op('truceJobGraph', { job: oid(id) })))?.jobs ?? [],
            (jobs) =>
                jobs.length > 1 &&
                card(
                    'Workflow',
                    graph(
                        'Workflow',
                        jobs.map((job) => ({
                            id: text(job._id),
                            label: text(job.name ?? job._id),
                            state: text(job.state),
                            level: num(job.level),
                            after: (job.after ?? []).map(text),
                            link: href(['jobs', text(job._id)]),
                        })),
                    ),
                ),
        ),
        h(
            'div.grid.wide',
            hidden('Payload', async () => (await whole())?.payload),
            hidden('Result', async () => (await whole())?.result),
        ),
    ];
}
