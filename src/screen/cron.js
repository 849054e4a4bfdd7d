// Cron entries: when they fire, and changes of them.
import { op } from './api.js';
import { parse, text, time, write } from './exact.js';
import { a, act, action, ago, ask, code, h, live, state, table } from './dom.js';

const DAYS = [
    'Sunday',
    'Monday',
    'Tuesday',
    'Wednesday',
    'Thursday',
    'Friday',
    'Saturday',
    'Sunday',
];
// Says common lines in words; the line itself otherwise.
function words(line) {
    if (line.startsWith('@every ')) return `every ${line.slice(7)}`;
    if (line.startsWith('@')) return line.slice(1);
    const [minute, hour, day, month, weekday, extra] = line.split(/\s+/);
    if (extra !== undefined || month !== '*') return line;
    const at =
        /^\d+$/.test(minute) && /^\d+$/.test(hour)
            ? `at ${hour.padStart(2, '0')}:${minute.padStart(2, '0')}`
            : undefined;
    if (hour === '*' && day === '*' && weekday === '*')
        return minute === '*'
            ? 'every minute'
            : /^\*\/\d+$/.test(minute)
              ? `every ${minute.slice(2)} minutes`
              : /^\d+$/.test(minute)
                ? `every hour, at minute ${minute}`
                : line;
    if (!at) return line;
    if (day === '*' && weekday === '*') return `every day ${at}`;
    if (day === '*' && /^[0-7]$/.test(weekday)) return `every ${DAYS[weekday]} ${at}`;
    if (/^\d+$/.test(day) && weekday === '*') return `on day ${day} of each month ${at}`;
    return line;
}

// Returns the options of the jobs of an entry, as truceCronSet and truceEnqueue name them.
const jobOptions = (job) => ({
    priority: job.priority,
    attempts: job.attempts_max,
    timeoutMS: job.timeout_ms,
    keepMS: job.keep_ms,
    keepCancelledMS: job.keep?.cancelled,
    keepDiscardedMS: job.keep?.discarded,
    keepDeadMS: job.keep?.dead,
    metadata: job.metadata,
    tags: job.tags,
});

async function edit(cron) {
    const job = cron?.job ?? {};
    const given = await ask(cron ? `Edit ${text(cron._id)}` : 'New cron entry', {
        confirm: 'Save',
        fields: [
            ...(cron ? [] : [{ name: 'cron', label: 'Name' }]),
            { name: 'queue', label: 'Queue', value: text(job.queue ?? '') },
            {
                name: 'line',
                label: 'Schedule: minute hour day month weekday',
                value: text(cron?.line ?? '0 3 * * *'),
            },
            { name: 'zone', label: 'Time zone', value: text(cron?.zone ?? ''), hint: 'UTC' },
            {
                name: 'missed',
                label: 'Times that passed without a worker',
                choices: ['once', 'skip', 'all'],
                value: text(cron?.missed ?? 'once'),
            },
            { name: 'payload', label: 'Payload', rows: 5, value: write(job.payload ?? {}, 2) },
        ],
    });
    if (!given) return null;
    await act('truceCronSet', {
        cron: cron ? cron._id : given.cron,
        queue: given.queue,
        line: given.line,
        zone: given.zone || undefined,
        missed: given.missed,
        most: cron?.most,
        payload: parse(given.payload),
        ...jobOptions(job),
    });
    return 'The entry is saved.';
}

const one = (name, verb, done) => async () => {
    await act('truceCron', { cron: name, action: verb });
    return done;
};
export function show({ head }) {
    return [
        head('Cron', { side: action('New entry', () => edit()) }),
        live(
            () => op('truceCrons', { limit: 200 }),
            ({ crons }) =>
                table(
                    'Cron entries',
                    [
                        {
                            name: 'Entry',
                            cell: (cron) => [
                                h('div', text(cron._id)),
                                cron.paused && state('paused'),
                            ],
                        },
                        {
                            name: 'Schedule',
                            cell: (cron) => [
                                words(text(cron.line)),
                                h(
                                    'div.muted',
                                    code(text(cron.line)),
                                    cron.zone ? ` ${text(cron.zone)}` : ' UTC',
                                ),
                            ],
                        },
                        {
                            name: 'Queue',
                            cell: (cron) =>
                                a(['queues', text(cron.job.queue)], text(cron.job.queue)),
                        },
                        { name: 'Next', cell: (cron) => (cron.paused ? '' : ago(time(cron.next))) },
                        { name: 'Last', cell: (cron) => ago(time(cron.last)) },
                        {
                            name: 'Actions',
                            cell: (cron) =>
                                h(
                                    'div.row',
                                    action(
                                        'Run now',
                                        async () => {
                                            const job = cron.job;
                                            await act('truceEnqueue', {
                                                queue: job.queue,
                                                payload: job.payload,
                                                ...jobOptions(job),
                                            });
                                            return 'A job was added.';
                                        },
                                        {
                                            confirm: `One job is added to ${text(cron.job.queue)}. The schedule stays.`,
                                        },
                                    ),
                                    cron.paused
                                        ? action('Resume', one(cron._id, 'resume', 'Resumed.'))
                                        : action('Pause', one(cron._id, 'pause', 'Paused.'), {
                                              confirm:
                                                  'Times during the pause do not count as missed.',
                                          }),
                                    action('Edit', () => edit(cron)),
                                    action('Remove', one(cron._id, 'remove', 'Removed.'), {
                                        danger: true,
                                        confirm: `The entry ${text(cron._id)} is removed. Its jobs stay.`,
                                    }),
                                ),
                        },
                    ],
                    crons,
                    'There are no cron entries.',
                ),
        ),
    ];
}
