// Maintenance: the doctor, the check with its repairs, and the sweep.
import { op, session } from './api.js';
import { num, text, write } from './exact.js';
import {
    h,
    act,
    action,
    bytes,
    card,
    code,
    facts,
    grouped,
    live,
    note,
    plural,
    state,
    table,
} from './dom.js';

function checkResult(reply, result) {
    const found = num(reply.found),
        repairable = reply.findings.filter((one) => one.repair && !one.repaired);
    result.replaceChildren(
        note(
            found ? 'warn' : 'good',
            `${grouped(reply.documents)} documents of ${plural(num(reply.collections), 'collection')} were checked: ${plural(found, 'finding')}${num(reply.repaired) ? `, ${num(reply.repaired)} repaired` : ''}.`,
        ),
    );
    if (!found) return;
    result.append(
        table(
            'Findings of the check',
            [
                { name: 'Rule', cell: (one) => code(text(one.rule)) },
                {
                    name: 'Where',
                    cell: (one) => [
                        text(one.ns),
                        one.id !== undefined && [' ', code(write(one.id).slice(0, 80))],
                    ],
                },
                { name: 'Finding', cell: (one) => text(one.text) },
                {
                    name: 'Repair',
                    cell: (one) =>
                        one.repaired ? state('done') : one.repair ? text(one.repair) : 'by hand',
                },
            ],
            reply.findings.slice(0, 200),
        ),
    );
    if (repairable.length)
        result.append(
            action(
                `Repair ${plural(repairable.length, 'finding')}`,
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

function doctor(reply) {
    const order = ['error', 'warning', 'note'],
        list = [...reply.findings].sort(
            (x, y) => order.indexOf(text(x.level)) - order.indexOf(text(y.level)),
        );
    const { file, wal, space, filesystem, sqlite, writes, path, store } = reply.facts ?? {};
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
                action(
                    'Sweep',
                    async () => {
                        const reply = await act('truceSweep');
                        return `Swept: ${['undone', 'finished', 'cleaned', 'expired', 'pruned'].map((name) => `${num(reply[name])} ${name}`).join(', ')}.${reply.more ? ' Others remain; sweep again.' : ''}`;
                    },
                    {
                        may: 'maintain',
                        confirm:
                            'Work of dead processes is completed or undone, and expired documents are removed. A server does this every minute.',
                    },
                ),
            ),
            result,
        ),
        session.access.monitor
            ? live(() => op('truceDoctor'), doctor, 60000)
            : note('', 'The doctor needs the role clusterMonitor.'),
    ];
}
