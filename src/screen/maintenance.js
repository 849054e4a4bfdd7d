// Maintenance: the doctor, the check with its repairs, and the sweep.
import { op, optional, session } from './api.js';
import { num, text, write, brief } from './exact_numbers.js';
import {
    h,
    a,
    act,
    action,
    bytes,
    card,
    code,
    duration,
    facts,
    grouped,
    live,
    note,
    plural,
    state,
    table,
} from './dom.js';

const SWEEP_CONFIRM =
    'Work of dead processes is completed or undone, and expired documents are removed. A server does this every minute.';
async function sweep() {
    const reply = await act('truceSweep');
    return `Swept: ${['undone', 'finished', 'cleaned', 'expired', 'pruned', 'released'].map((name) => `${num(reply[name])} ${name}`).join(', ')}.${reply.more ? ' Others remain; sweep again.' : ''}`;
}

// A finding that the check cannot repair says why: "none: inspect the document by hand".
const isRepairable = (one) => !one.repaired && !/^(none|nothing)\b/.test(text(one.repair));

function repairButton(one, result) {
    const where = one.id === undefined ? text(one.ns) : `${text(one.ns)} ${write(one.id)}`;
    return action(
        'Repair',
        async () => {
            const { rule, ns, id } = one;
            const reply = await act('truceCheck', { repair: true, finding: { rule, ns, id } });
            checkResult(reply, result);
            return num(reply.repaired)
                ? 'The finding is repaired.'
                : 'Nothing was repaired: the finding is gone, or a process works on it.';
        },
        {
            may: 'maintain',
            confirm: `${text(one.rule)} at ${where.slice(0, 200)}. The repair: ${text(one.repair)}. The store is checked again first.`,
        },
    );
}

function checkResult(reply, result) {
    const found = num(reply.found),
        repairable = reply.findings.filter(isRepairable);
    result.replaceChildren(
        note(
            found ? 'warn' : 'good',
            `Checked ${plural(num(reply.documents), 'document')} of ${plural(num(reply.collections), 'collection')}: ${plural(found, 'finding')}${num(reply.repaired) ? `, ${num(reply.repaired)} repaired` : ''}.`,
        ),
    );
    if (!found) return;
    result.append(
        table(
            'Findings of the check',
            [
                { name: 'Rule', cell: (one) => h('code.id', text(one.rule)) },
                {
                    name: 'Where',
                    cell: (one) => [
                        text(one.ns),
                        one.id !== undefined && [' ', code(brief(one.id, 80))],
                    ],
                },
                { name: 'Finding', cell: (one) => text(one.text) },
                {
                    name: 'Repair',
                    cell: (one) => (one.repaired ? state('done') : text(one.repair)),
                },
                {
                    name: 'Action',
                    cell: (one) => isRepairable(one) && repairButton(one, result),
                },
            ],
            reply.findings.slice(0, 200),
        ),
    );
    if (found > 200) result.append(h('p.muted', `${plural(found - 200, 'finding')} more.`));
    if (repairable.length > 1)
        result.append(
            action(
                `Repair all ${plural(repairable.length, 'finding')}`,
                async () => {
                    checkResult(await act('truceCheck', { repair: true }), result);
                    return 'The repair is finished.';
                },
                {
                    primary: true,
                    may: 'maintain',
                    confirm: `The store is checked again, and what can be repaired is repaired: ${[...new Set(repairable.map((one) => text(one.repair)))].slice(0, 5).join('; ')}.`,
                },
            ),
        );
}

// The database and the collection that a finding names: "students", or "school.students" in another database.
async function placeOf(subject) {
    const { databases } = (await optional(
            op('listDatabases', { nameOnly: true }, { database: 'admin' }),
        )) ?? { databases: [] }, // a user of one database sees this one only
        own = session.access.database,
        other = databases.find(({ name }) => name !== own && subject.startsWith(`${name}.`)),
        database = other?.name ?? own,
        collection = other ? subject.slice(database.length + 1) : subject;
    const { cursor } = await op(
        'listCollections',
        { filter: { name: collection }, cursor: {} },
        { database },
    );
    if (!cursor.firstBatch.length) throw new Error(`There is no collection ${subject}.`);
    return [database, collection];
}

// The changes of the doctor that an operation of the server makes.
function doctorButton(one) {
    const subject = text(one.subject),
        change = text(one.change),
        index =
            /^create the (unique )?index \{([^{}]+)\}(?: with ((?:(?:sparse|unique): true(?: and )?)+))?/.exec(
                change,
            );
    if (/^run truce sweep\b/.test(change))
        return action('Sweep', sweep, { may: 'maintain', confirm: SWEEP_CONFIRM });
    if (/truce queue redrive/.test(change)) return a(['dead'], 'Dead letters');
    if (/^truce queue resume/.test(change)) return a(['queues', subject], 'The queue');
    if (!index) return undefined;
    const [, unique, fields, options = ''] = index,
        key = Object.fromEntries(fields.split(', ').map((field) => [field.replace(/: 1$/, ''), 1])),
        name = Object.keys(key)
            .map((field) => `${field}_1`)
            .join('_'),
        kind = Object.fromEntries(
            [...options.matchAll(/(\w+): true/g)].map((one) => [one[1], true]),
        );
    if (unique) kind.unique = true;
    return action(
        'Create the index',
        async () => {
            const [database, collection] = await placeOf(subject);
            await act(
                'createIndexes',
                { collection, indexes: [{ key, name, ...kind }] },
                { database },
            );
            return 'The index is created.';
        },
        { confirm: `The index ${name} of ${subject} is built while the collection is in use.` },
    );
}

function doctor(reply) {
    const order = ['error', 'warning', 'note'],
        list = [...reply.findings].sort(
            (x, y) => order.indexOf(text(x.level)) - order.indexOf(text(y.level)),
        );
    const { file, wal, space, filesystem, sqlite, writer, writes, path, store, pins, archive } =
        reply.facts ?? {};
    return [
        card(
            'Doctor',
            list.length
                ? table(
                      'Findings of the doctor',
                      [
                          { name: 'Level', cell: (one) => state(text(one.level)) },
                          { name: 'Subject', cell: (one) => text(one.subject) },
                          { name: 'Finding', cell: (one) => text(one.text) },
                          { name: 'Change', cell: (one) => text(one.change) },
                          { name: 'Action', cell: doctorButton },
                      ],
                      list,
                  )
                : note('good', 'The doctor recommends no change.'),
        ),
        card(
            'Store',
            facts([
                ['Kind', text(store)],
                ['Path', path && code(text(path))],
                ['Size', file && bytes(num(file.bytes))],
                ['Log', wal && bytes(num(wal.bytes))],
                ['Free space', space && bytes(num(space.free))],
                ['File system', filesystem && text(filesystem.name)],
                ['SQLite', sqlite && text(sqlite)],
                [
                    'Writing now',
                    writer &&
                        `process ${text(writer.process)}, for ${duration(num(writer.held_ms))}`,
                ],
                ['Writes', writes && grouped(writes.operations)],
                ['Syncs', writes && grouped(writes.syncs)],
                [
                    'Writes in a sync',
                    writes &&
                        num(writes.syncs) > 0 &&
                        (num(writes.operations) / num(writes.syncs)).toFixed(2),
                ],
                ['truce', session.access.version],
            ]),
        ),
        pins?.length > 0 &&
            card(
                'Open reads',
                table(
                    'Processes with open reads',
                    [
                        { name: 'Process', kind: 'num', cell: (one) => text(one.process) },
                        { name: 'Open reads', kind: 'num', cell: (one) => grouped(one.reads) },
                        { name: 'Oldest', cell: (one) => duration(num(one.age_ms)) },
                        {
                            name: 'Log kept for it',
                            kind: 'num',
                            cell: (one) => bytes(num(one.bytes)),
                        },
                    ],
                    pins,
                ),
            ),
        archive &&
            card(
                'Archive',
                facts([
                    ['Archiver', num(archive.process) ? `process ${text(archive.process)}` : 'died'],
                    ['Behind', duration(num(archive.behind_ms))],
                    ['Not archived yet', bytes(num(archive.behind_bytes))],
                    ['Last commit', text(archive.commit)],
                    ['Generation', text(archive.generation)],
                    [
                        'Its target fails',
                        num(archive.failing_ms) > 0 && `for ${duration(num(archive.failing_ms))}`,
                    ],
                    ['The log', archive.pins === false && 'is not kept for it'],
                ]),
            ),
    ];
}

export function show({ head }) {
    const result = h('div', { role: 'status' });
    return [
        head('Maintenance'),
        card(
            'Check',
            h(
                'p.muted',
                'The check examines every document for consistency while the store is in use. It changes nothing.',
            ),
            h(
                'div.row',
                action(
                    'Check the store',
                    async () => {
                        checkResult(await act('truceCheck'), result);
                        return null;
                    },
                    { may: 'monitor', primary: true },
                ),
                action('Sweep', sweep, { may: 'maintain', confirm: SWEEP_CONFIRM }),
            ),
            result,
        ),
        session.access.monitor
            ? live(() => op('truceDoctor'), doctor, 15000, undefined, true)
            : note('', 'The doctor needs the role clusterMonitor.'),
    ];
}
