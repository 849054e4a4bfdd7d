// Denormalized copies: the rules, their pending work, and the differences.
import { op } from './api.js';
import { num, text, time, brief } from './exact_numbers.js';
import {
    h,
    a,
    act,
    action,
    ago,
    card,
    code,
    grouped,
    live,
    note,
    plural,
    state,
    table,
} from './dom.js';

export function show({ head }) {
    const result = h('div', { role: 'status' });
    // Compares the dependents of a rule, or one of them. With `repair`, copies the values of the sources.
    const walk = (rule, { repair = false, dependent } = {}) =>
        (repair ? act : op)('truceSyncRepair', { rule, dryRun: !repair || undefined, dependent });
    const compare = async (rule) => {
        const reply = await walk(rule),
            differ = num(reply.differ),
            wrong = differ + num(reply.orphans) + num(reply.unreadable);
        const repaired = async (options) => {
            const { repaired: count } = await walk(rule, { repair: true, ...options });
            await compare(rule);
            return `${plural(num(count), 'dependent')} repaired.`;
        };
        result.replaceChildren(
            card(
                `Rule ${rule}`,
                note(
                    wrong ? 'warn' : 'good',
                    `Compared ${plural(num(reply.dependents), 'dependent')}. Different: ${grouped(differ)}; without a source: ${grouped(num(reply.orphans))}; unreadable: ${grouped(num(reply.unreadable))}.`,
                ),
                reply.findings.length > 0 &&
                    table(
                        'Findings',
                        [
                            { name: 'Divergence', cell: (one) => state(text(one.divergence)) },
                            {
                                name: 'Dependent',
                                cell: (one) => code(brief(one.dependent, 80)),
                            },
                            {
                                name: 'Source',
                                cell: (one) =>
                                    one.source !== undefined && code(brief(one.source, 80)),
                            },
                            {
                                name: 'Action',
                                cell: (one) =>
                                    one.divergence === 'differs' &&
                                    action('Repair', () => repaired({ dependent: one.dependent }), {
                                        confirm:
                                            'The values of the source are copied to this dependent, and to others of the same source if it must be raised.',
                                    }),
                            },
                        ],
                        reply.findings.slice(0, 100),
                    ),
                differ > 1 &&
                    action(`Repair all ${plural(differ, 'dependent')}`, () => repaired(), {
                        primary: true,
                        confirm:
                            'The values of the sources are copied to the dependents that differ.',
                    }),
            ),
        );
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
                                action(
                                    'Compare',
                                    async () => {
                                        await compare(text(one.rule));
                                        return null;
                                    },
                                    { may: null },
                                ),
                        },
                    ],
                    rules,
                    'No rule is declared in this database.',
                ),
        ),
        result,
    ];
}
