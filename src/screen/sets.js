// Ordered sets: how far each source is applied, the number it waits for, and the quarantine.
import { op, find, one as findOne, missing, optional } from './api.js';
import { num, text, time, whole, brief } from './exact_numbers.js';
import {
    h,
    a,
    act,
    action,
    ago,
    ask,
    card,
    code,
    facts,
    grouped,
    live,
    plural,
    table,
    LIST_MAX,
} from './dom.js';

// Returns the fields by which operations name the set.
function nameOf(set) {
    const id = text(set._id),
        collection = text(set.guards ?? '').split('/')[0] || id.slice(0, id.lastIndexOf('.'));
    return {
        collection,
        field: id.slice(collection.length + 1),
        name: set.name,
        deleted: set.deleted,
        seqField: set.seq,
        sourceField: set.source,
        watermark: set.watermark,
        byElement: set.layout === 'element' || undefined,
        key: (set.key ?? []).join(','),
    };
}

function list(head) {
    return [
        head('Ordered sets', { sub: 'Sets whose operations may arrive in any order.' }),
        live(
            () => find('truce_sets', { sort: { _id: 1 }, limit: LIST_MAX + 1 }),
            (all) =>
                table(
                    'Ordered sets',
                    [
                        { name: 'Set', cell: (set) => a(['sets', text(set._id)], text(set._id)) },
                        {
                            name: 'Key',
                            cell: (set) => (set.key ?? []).map((field) => code(text(field))),
                        },
                        { name: 'Layout', cell: (set) => text(set.layout) },
                    ],
                    all,
                    'No set is defined in this database.',
                    LIST_MAX,
                ),
        ),
    ];
}

export async function show({ args: [id], head }) {
    if (id === undefined) return list(head);
    const set = await findOne('truce_sets', { _id: id });
    if (!set) throw missing(`There is no set "${id}".`);
    const named = nameOf(set);
    const read = async () => {
        const [progress, quarantine, consumers] = await Promise.all([
            op('truceSetCollect', named),
            optional(op('truceSetQuarantine', { ...named, limit: 100 })),
            find('truce_progress', {
                filter: { '_id.set': id },
                projection: { _id: 1 },
                limit: 500,
            }),
        ]);
        return { progress, quarantine, consumers };
    };
    const replay = (one) =>
        action('Replay', () =>
            ask('Replay the operation', {
                confirm: 'Replay',
                body: ['It is applied under a new number of its source and leaves the quarantine.'],
                fields: [{ name: 'seq', label: 'New number', type: 'number' }],
                run: async (given) => {
                    const reply = await act('truceSetReplay', {
                        ...named,
                        quarantined: one,
                        seq: whole(given.seq),
                    });
                    return `Outcome: ${reply.outcome ?? reply.status}.`;
                },
            }),
        );
    return [
        head(id, {
            crumbs: a(['sets'], 'Ordered sets'),
            side: action(
                'Remove tombstones',
                async () => {
                    const reply = await act('truceSetCollect', { ...named, collect: true });
                    return `${plural(num(reply.tombstones), 'tombstone')} of ${plural(num(reply.documents), 'document')} removed.`;
                },
                {
                    confirm:
                        'Tombstones up to the watermark are removed. No operation that is still under way needs them.',
                },
            ),
        }),
        live(read, ({ progress, quarantine, consumers }) => [
            card(
                null,
                facts([
                    ['Watermark', grouped(progress.watermark)],
                    ['Collection', a(['documents', named.collection], named.collection)],
                    ['Field', code(named.field)],
                    ['Key', code(named.key)],
                    [
                        'Consumers',
                        [...new Set(consumers.map((one) => text(one._id.consumer)))]
                            .filter((name) => name[0] !== ':') // such as those of void numbers
                            .join(', '),
                    ],
                ]),
            ),
            card(
                'Sources',
                table(
                    'Sources',
                    [
                        {
                            name: 'Source',
                            cell: (one) =>
                                text(one.source) || h('span.muted', 'numbers without a source'),
                        },
                        {
                            name: 'Applied up to',
                            kind: 'num',
                            cell: (one) => grouped(one.watermark),
                        },
                        {
                            name: 'Waits for number',
                            kind: 'num',
                            cell: (one) => (one.missing === undefined ? '' : grouped(one.missing)),
                        },
                        { name: 'Void below', kind: 'num', cell: (one) => grouped(one.floor) },
                    ],
                    progress.sources ?? [],
                    'No source has published yet.',
                ),
            ),
            card(
                'Quarantine',
                table(
                    'Quarantine',
                    [
                        {
                            name: 'Operation',
                            cell: (one) => [
                                text(one._id.verb),
                                ' ',
                                code(brief(one.element ?? one._id.name, 200)),
                            ],
                        },
                        { name: 'Number', kind: 'num', cell: (one) => grouped(one._id.seq) },
                        { name: 'Source', cell: (one) => text(one._id.source) },
                        { name: 'Reason', cell: (one) => text(one.reason) },
                        { name: 'Since', cell: (one) => ago(time(one.time)) },
                        { name: 'Action', cell: replay },
                    ],
                    quarantine?.quarantined ?? [],
                    'No operation is in quarantine.',
                ),
            ),
        ]),
    ];
}
