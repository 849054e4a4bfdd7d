// Copies: the rules, their pending work, and what differs.
import { op } from './api.js';
import { num, text, time } from './exact.js';
import { h, a, act, action, ago, card, code, live, note, plural, state, table } from './dom.js';

export function show({ head }) {
    const result = h('div', { role: 'status' });
    const compare = (rule, dryRun) => async () => {
        const reply = await (dryRun ? op : act)('truceSyncRepair', {
                rule,
                dryRun: dryRun || undefined,
            }),
            wrong = num(reply.differ) + num(reply.orphans) + num(reply.unreadable);
        result.replaceChildren(
            card(
                `Rule ${rule}`,
                note(
                    wrong && dryRun ? 'warn' : 'good',
                    dryRun
                        ? `${plural(num(reply.dependents), 'dependent')} compared: ${num(reply.differ)} differ, ${num(reply.orphans)} have no source, ${num(reply.unreadable)} are unreadable.`
                        : `${plural(num(reply.repaired), 'dependent')} repaired.`,
                ),
                reply.findings.length > 0 &&
                    table(
                        'Findings',
                        [
                            { name: 'Divergence', cell: (one) => state(text(one.divergence)) },
                            { name: 'Dependent', cell: (one) => code(text(one.dependent)) },
                            { name: 'Source', cell: (one) => code(text(one.source)) },
                            { name: 'Repaired', cell: (one) => (one.repaired ? 'yes' : 'no') },
                        ],
                        reply.findings.slice(0, 100),
                    ),
                dryRun &&
                    wrong > 0 &&
                    action(`Repair ${plural(wrong, 'dependent')}`, compare(rule, false), {
                        primary: true,
                        confirm:
                            'The values of the sources are copied to the dependents that differ.',
                    }),
            ),
        );
        return dryRun ? null : 'Repaired.';
    };
    return [
        head('Copies', { sub: 'Fields that are copied from a source to its dependents.' }),
        live(
            () => op('truceSyncStatus'),
            ({ rules }) =>
                table(
                    'Rules',
                    [
                        { name: 'Rule', cell: (one) => text(one.rule) },
                        {
                            name: 'Source',
                            cell: (one) => a(['documents', text(one.source)], text(one.source)),
                        },
                        {
                            name: 'Dependent',
                            cell: (one) => [
                                a(['documents', text(one.dependent)], text(one.dependent)),
                                ' by ',
                                code(text(one.reference)),
                            ],
                        },
                        {
                            name: 'Copies',
                            cell: (one) =>
                                Object.entries(one.copies).map(([to, from]) =>
                                    h('div', code(text(from)), ' → ', code(to)),
                                ),
                        },
                        {
                            name: 'Pending',
                            kind: 'num',
                            cell: (one) => num(one.syncing) + num(one.unchecked),
                        },
                        { name: 'Oldest', cell: (one) => ago(time(one.since)) },
                        {
                            name: 'Action',
                            cell: (one) =>
                                action('Compare', compare(text(one.rule), true), { may: null }),
                        },
                    ],
                    rules,
                    'No rule is declared in this database.',
                ),
        ),
        result,
    ];
}
