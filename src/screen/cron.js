// Cron lines: when they fire, and changes of them.
import { op } from './api.js';
import { parseInput, text, time, write } from './exact_numbers.js';
import { a, act, action, ago, ask, code, h, live, state, table, LIST_MAX } from './dom.js';

const DAYS = 'Sunday Monday Tuesday Wednesday Thursday Friday Saturday Sunday'.split(' '),
    MONTHS =
        'January February March April May June July August September October November December'.split(
            ' ',
        );
const isAny = (part) => part === '*' || part === '?';
const listed = (words, last = 'and') =>
    words.length < 2 ? words.join('') : `${words.slice(0, -1).join(', ')} ${last} ${words.at(-1)}`;

// Returns a field such as "1,3-5" with the names of its numbers, or undefined if it has a step or is not valid.
function named(part, names, first) {
    const find = (word) =>
        /^\d+$/.test(word)
            ? names[Number(word) - first]
            : names.find((name) => name.slice(0, 3).toLowerCase() === word.toLowerCase());
    const words = part.split(',').map((one) => {
        const ends = one.split('-').map(find);
        return ends.length < 3 && ends.every(Boolean) ? ends.join(' to ') : undefined;
    });
    return words.every(Boolean) ? listed(words) : undefined;
}
const numbers = (part) =>
    named(
        part,
        Array.from({ length: 100 }, (_, i) => String(i)),
        0,
    );

function timeWords(minute, hour) {
    const step = /^(?:\*|0)\/(\d+)$/,
        every = step.exec(minute)?.[1],
        hours = step.exec(hour)?.[1],
        minutes = numbers(minute);
    if (/^\d+$/.test(minute) && /^\d+(,\d+)*$/.test(hour))
        return `at ${listed(hour.split(',').map((one) => `${one.padStart(2, '0')}:${minute.padStart(2, '0')}`))}`;
    const often = isAny(minute)
        ? 'every minute'
        : every
          ? every === '1'
              ? 'every minute'
              : `every ${every} minutes`
          : minutes && `at minute ${minutes}`;
    if (!often) return undefined;
    if (isAny(hour)) return minutes ? `every hour ${often}` : often;
    if (hours) return minutes && `every ${hours === '1' ? 'hour' : `${hours} hours`} ${often}`;
    return numbers(hour) && `${often} in the hours ${numbers(hour)}`;
}

// Returns a cron line in words. A line that is too complicated is returned unchanged.
function words(line) {
    if (line.startsWith('@every ')) return `every ${line.slice(7)}`;
    if (line.startsWith('@')) return line.slice(1);
    const [minute, hour, day, month, weekday, extra] = line.split(/\s+/);
    const at = weekday !== undefined && extra === undefined && timeWords(minute, hour);
    if (!at || (!isAny(day) && !isAny(weekday))) return line;
    const parts = [
        at,
        !isAny(weekday) && (named(weekday, DAYS, 0) ?? 0),
        !isAny(day) && (numbers(day) ?? 0),
        !isAny(month) && (named(month, MONTHS, 1) ?? 0),
    ];
    if (parts.includes(0)) return line;
    const [, weekdays, days, months] = parts;
    const when = weekdays
        ? `${/[ ,]/.test(weekdays) ? 'on' : 'every'} ${weekdays}`
        : days
          ? `on day ${days} of ${months || 'each month'}`
          : /^at \d/.test(at)
            ? 'every day'
            : '';
    const order = at.startsWith('every') ? [at, when] : [when, at];
    return [...order, months && !days && `in ${months}`].filter(Boolean).join(' ');
}

// Returns the options of the jobs of a line, as truceCronSet and truceEnqueue name them.
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

function edit(cron) {
    const job = cron?.job ?? {};
    return ask(cron ? `Edit ${text(cron._id)}` : 'New cron line', {
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
        run: async (given) => {
            await act('truceCronSet', {
                cron: cron ? cron._id : given.cron,
                queue: given.queue,
                line: given.line,
                zone: given.zone || undefined,
                missed: given.missed,
                most: cron?.most,
                payload: parseInput(given.payload, 'The payload'),
                ...jobOptions(job),
            });
            return 'The line is saved.';
        },
    });
}

const one = (name, verb, done) => async () => {
    await act('truceCron', { cron: name, action: verb });
    return done;
};
export function show({ head }) {
    return [
        head('Cron', { side: action('New cron line', () => edit()) }),
        live(
            () => op('truceCrons', { limit: LIST_MAX + 1 }),
            ({ crons }) =>
                table(
                    'Cron lines',
                    [
                        {
                            name: 'Line',
                            cell: (cron) => [
                                h('div', text(cron._id)),
                                cron.paused && state('paused'),
                            ],
                        },
                        {
                            name: 'Schedule',
                            kind: 'wide',
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
                                        confirm: `The line ${text(cron._id)} is removed. Its jobs stay.`,
                                    }),
                                ),
                        },
                    ],
                    crons,
                    'There are no cron lines.',
                    LIST_MAX,
                ),
        ),
    ];
}
