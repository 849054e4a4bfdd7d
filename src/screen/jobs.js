// Jobs: a list with filters and actions. A single job is in job.js.
import { find, count, optional, COUNT_MAX, session } from './api.js';
import { parse, num, time, text } from './exact_numbers.js';
import {
    h,
    a,
    ago,
    live,
    table,
    filters,
    href,
    state,
    code,
    capped,
    plural,
    card,
    toast,
    ask,
    explainError,
    refresh,
    note,
    duration,
} from './dom.js';
import {
    JOBS,
    STATES,
    ALLOWED,
    jobFilter,
    queues,
    stateCounts,
    lastHour,
    hourChart,
    actOn,
    actOnAll,
    outcome,
    isId,
    oid,
} from './work.js';

const PAGE = 50;
const FIELDS = {
    queue: 1,
    state: 1,
    name: 1,
    tags: 1,
    lane: 1,
    attempt: 1,
    attempts_max: 1,
    created: 1,
    ended: 1,
    undone: 1,
    lease: 1,
    priority: 1,
    errors: { $slice: -1 },
};

// Returns the value of a filter by payload: JSON, or otherwise a string.
function readValue(string) {
    try {
        return parse(string);
    } catch {
        return string;
    }
}

function bulk(selected, filter, total) {
    const bar = h('div.bulk');
    let everything = false;
    const buttons = [
        ['retry', 'Retry or run now'],
        ['cancel', 'Cancel'],
        ['discard', 'Discard'],
    ].map(([name, label]) =>
        h(
            `button${name === 'discard' ? '.danger' : ''}`,
            { type: 'button', onclick: () => run(name, label) },
            label,
        ),
    );
    const words = h('span', { role: 'status' });
    const all = h('button.quiet', {
        type: 'button',
        onclick: () => {
            everything = !everything;
            draw();
        },
    });
    async function run(name, label) {
        const amount = everything ? total() : selected.size;
        if (
            (await ask(`${label}: ${plural(amount, 'job')}`, {
                confirm: label,
                danger: name !== 'retry',
                body: [
                    `This applies to jobs that are ${ALLOWED[name].join(', ')}. Jobs in other states stay as they are.`,
                    name === 'cancel'
                        ? 'Running jobs lose their claim: their effects are refused.'
                        : '',
                ].filter(Boolean),
            })) === null
        )
            return;
        for (const button of buttons) button.disabled = true;
        try {
            const result = everything
                ? await actOnAll(name, filter, 1e6, (n) => {
                      words.textContent = `${capped(n)} so far…`;
                  })
                : await actOn(name, [...selected.values()]);
            toast(outcome(name, result));
            selected.clear();
            everything = false;
        } catch (error) {
            toast(explainError(error), true);
        }
        refresh();
        draw();
    }
    function draw() {
        words.textContent = everything
            ? `All ${plural(total(), 'job')} of this filter`
            : selected.size
              ? `${plural(selected.size, 'job')} selected`
              : 'Select jobs to act on them';
        all.disabled = !total(); // unknown yet, or no job
        all.textContent = everything ? 'Only the selected' : `Select all ${capped(total())}`;
        for (const button of buttons) {
            button.disabled = !session.access.write || (!everything && !selected.size);
            if (!session.access.write) button.title = 'Your user may only read here.';
        }
    }
    bar.append(words, all, ...buttons);
    draw();
    return { bar, draw };
}

export async function show(context) {
    const { args, query, head } = context;
    if (args.length) return (await import('./job.js')).show(context);
    const value =
        query.value === undefined || query.value === '' ? undefined : readValue(query.value);
    const filter = jobFilter({ ...query, value });
    if (isId(query.id)) filter._id = oid(query.id);
    const oldest = query.order === 'oldest',
        page = { ...filter };
    if (isId(query.before))
        page._id = oldest ? { $gt: oid(query.before) } : { $lt: oid(query.before) };
    const names = (await queues()).map((one) => one.queue);
    if (query.queue && !names.includes(query.queue)) names.push(query.queue);
    const selected = new Map();
    let matching = 0;
    const { bar, draw } = bulk(selected, filter, () => matching);

    const choose = (job, box) => {
        if (box.checked) selected.set(text(job._id), job);
        else selected.delete(text(job._id));
        draw();
    };
    const wholePage = h('input', {
        type: 'checkbox',
        'aria-label': 'Select all of this page',
        onchange: (event) => {
            for (const box of document.querySelectorAll('td.check input'))
                if (box.checked !== event.target.checked) box.click();
        },
    });
    const columns = [
        {
            name: wholePage,
            kind: 'check',
            cell: (job) => {
                const box = h('input', {
                    type: 'checkbox',
                    'aria-label': `Select job ${text(job._id)}`,
                    onchange: () => choose(job, box),
                });
                box.checked = selected.has(text(job._id));
                return box;
            },
        },
        { name: 'State', cell: (job) => state(text(job.state)) },
        {
            name: 'Job',
            cell: (job) => [
                a(['jobs', text(job._id)], h('code.id', text(job._id))),
                job.name && h('div.clip', text(job.name)),
            ],
        },
        {
            name: 'Queue',
            cell: (job) =>
                h('a.clip', { href: href(['queues', text(job.queue)]) }, text(job.queue)),
        },
        {
            name: 'Attempt',
            kind: 'num',
            cell: (job) => `${num(job.attempt)} of ${num(job.attempts_max)}`,
        },
        { name: 'Added', cell: (job) => ago(time(job.created)) },
        {
            name: 'Details',
            cell: (job) => [
                job.state === 'delayed' && ['due ', ago(time(job.undone?.at))],
                job.state === 'running' && [
                    text(job.lease?.worker),
                    ', since ',
                    ago(time(job.lease?.since)),
                ],
                job.ended &&
                    h(
                        'span.muted',
                        `took ${duration(time(job.ended) - (time(job.lease?.since) ?? time(job.created)))}`,
                    ),
                job.lane && h('span.tag', 'lane ', text(job.lane.name)),
                Array.isArray(job.tags) && job.tags.map((tag) => h('span.tag', text(tag))),
                job.errors?.length > 0 &&
                    job.state !== 'done' &&
                    h('div.muted.clip', text(job.errors.at(-1).text).slice(0, 300)),
            ],
        },
    ];

    const read = async () => {
        const [rows, total] = await Promise.all([
            find(JOBS, {
                filter: page,
                projection: FIELDS,
                sort: { _id: oldest ? 1 : -1 },
                limit: PAGE + 1,
            }),
            count(JOBS, filter),
        ]);
        return { rows, total };
    };
    const list = live(read, ({ rows, total }) => {
        matching = total;
        draw();
        const more = rows.length > PAGE,
            shown = rows.slice(0, PAGE);
        wholePage.checked = shown.length > 0 && shown.every((job) => selected.has(text(job._id)));
        return [
            table('Jobs', columns, shown, 'No job matches this filter.'),
            h(
                'div.pager',
                total > COUNT_MAX
                    ? `more than ${capped(total)} match`
                    : `${plural(total, 'job')} match${total === 1 ? 'es' : ''}`,
                query.before &&
                    h(
                        'a',
                        {
                            href: href(['jobs'], { ...query, before: '' }),
                            'data-previous': true,
                        },
                        'First page',
                    ),
                more &&
                    h(
                        'a',
                        {
                            href: href(['jobs'], { ...query, before: text(shown.at(-1)._id) }),
                            'data-next': true,
                        },
                        oldest ? 'Newer' : 'Older',
                    ),
            ),
        ];
    });
    return [
        head(query.queue ? `Jobs of ${query.queue}` : 'Jobs'),
        filters(['jobs'], query, [
            { name: 'queue', label: 'Queue', choices: [['', 'All queues'], ...names] },
            {
                name: 'order',
                label: 'Order',
                choices: [
                    ['', 'Newest first'],
                    ['oldest', 'Oldest first'],
                ],
            },
            { name: 'tag', label: 'Tag' },
            { name: 'lane', label: 'Lane' },
            { name: 'worker', label: 'Worker' },
            { name: 'path', label: 'Payload field', hint: 'user.id' },
            { name: 'value', label: 'has the value', hint: '17 or ada' },
        ]),
        live(
            () => stateCounts(query.queue),
            (counts) =>
                h(
                    'nav.chips',
                    { 'aria-label': 'States' },
                    [undefined, ...STATES].map((name) =>
                        h(
                            'a',
                            {
                                href: href(['jobs'], { ...query, before: '', state: name }),
                                'aria-current':
                                    (query.state || undefined) === name ? 'true' : undefined,
                            },
                            name ? state(name) : 'All states',
                            name && h('b', capped(counts[name])),
                        ),
                    ),
                ),
        ),
        live(
            async () => {
                const hour = await optional(lastHour());
                return hour && [...hour].map(([queue, one]) => [queue, [...one]]);
            },
            (rows) => {
                const sum = rows ? new Map() : null;
                for (const [queue, one] of rows ?? [])
                    if (!query.queue || queue === query.queue)
                        for (const [name, values] of one)
                            sum.set(
                                name,
                                values.map((n, i) => n + (sum.get(name)?.[i] ?? 0)),
                            );
                const count = (one) => [...one.values()].flat().reduce((x, y) => x + y, 0),
                    each = (rows ?? [])
                        .map(([queue, one]) => [queue, new Map(one)])
                        .sort(([, one], [, other]) => count(other) - count(one));
                return card(
                    'Added in the last hour, by current state',
                    hourChart(query.queue ?? 'all queues', sum, {
                        width: 900,
                        height: 90,
                        legend: true,
                    }),
                    !query.queue &&
                        each.length > 1 &&
                        h(
                            'details',
                            h('summary', 'By queue'),
                            h(
                                'div.grid',
                                each
                                    .slice(0, 12)
                                    .map(([queue, one]) =>
                                        h(
                                            'div.queue',
                                            h('h3', a(['queues', queue], queue)),
                                            hourChart(queue, one),
                                        ),
                                    ),
                            ),
                        ),
                );
            },
            30000,
        ),
        query.path &&
            value === undefined &&
            note('', 'The filter finds jobs that have the field ', code(query.path), ' at all.'),
        bar,
        list,
    ];
}
