// Trees: versions, differences, tags, and readers that pin versions.
import { op, find, one as findOne, missing } from './api.js';
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
    filters,
    href,
    live,
    plural,
    state,
    table,
    LIST_MAX,
} from './dom.js';

function list(head) {
    return [
        head('Trees'),
        live(
            () =>
                find('truce_trees', {
                    projection: { collection: 1, current: 1, at: 1 },
                    sort: { _id: 1 },
                    limit: LIST_MAX + 1,
                }),
            (all) =>
                table(
                    'Trees',
                    [
                        {
                            name: 'Tree',
                            cell: (tree) => a(['trees', text(tree._id)], text(tree._id)),
                        },
                        { name: 'Version', kind: 'num', cell: (tree) => text(tree.current) },
                        {
                            name: 'Items',
                            cell: (tree) =>
                                a(['documents', text(tree.collection)], text(tree.collection)),
                        },
                        { name: 'Published', cell: (tree) => ago(time(tree.at)) },
                    ],
                    all,
                    'There are no trees in this database.',
                    LIST_MAX,
                ),
        ),
    ];
}

function differences(tree, from, to) {
    return live(
        () => op('truceTreeDiff', { tree, from, to, contents: true, limit: 100 }),
        ({ changes, more }) =>
            card(
                `Changes from version ${from} to ${to}`,
                table(
                    'Changes',
                    [
                        { name: 'Change', cell: (one) => state(text(one.change)) },
                        { name: 'Item', cell: (one) => code(text(one.itemId)) },
                        {
                            name: 'Before',
                            cell: (one) => one.before && code(brief(one.before, 400)),
                        },
                        {
                            name: 'After',
                            cell: (one) => one.after && code(brief(one.after, 400)),
                        },
                    ],
                    changes,
                    'The versions do not differ.',
                ),
                more && h('p.muted', 'Others differ, too.'),
            ),
        0,
    );
}

export async function show({ args: [tree], query, head }) {
    if (tree === undefined) return list(head);
    if (!(await findOne('truce_trees', { _id: tree }, { _id: 1 })))
        throw missing(`There is no tree "${tree}".`);
    const read = async () => ({
        status: await op('truceTree', { tree }),
        log: await op('truceTreeLog', { tree, limit: 100 }),
        pins: await find('truce_tree_holds', { filter: { tree }, limit: 100 }),
    });
    const first = await read(),
        current = num(first.status.current);
    const from = query.from === undefined ? Math.max(0, current - 1) : Number(query.from) || 0,
        to = query.to === undefined ? current : Number(query.to) || 0;
    return [
        head(tree, {
            crumbs: a(['trees'], 'Trees'),
            side: [
                action('Tag a version', () =>
                    ask('Tag a version', {
                        confirm: 'Tag',
                        body: ['A tagged version is kept until the tag is removed.'],
                        fields: [
                            { name: 'tag', label: 'Tag' },
                            { name: 'version', label: 'Version', type: 'number', value: current },
                        ],
                        run: async (given) => {
                            await act('truceTree', {
                                tree,
                                tag: given.tag,
                                version: whole(given.version),
                            });
                            return 'Tagged.';
                        },
                    }),
                ),
                action(
                    'Collect',
                    async () =>
                        `${plural(num((await act('truceTree', { tree, collect: true })).removed), 'item')} removed.`,
                    { confirm: 'Items that no reader, tag, or kept version can see are removed.' },
                ),
            ],
        }),
        live(
            read,
            ({ status, log, pins }) => {
                const tags = Object.entries(status.tags ?? {});
                return [
                    card(
                        null,
                        facts([
                            ['Current version', text(status.current)],
                            ['Published', ago(time(status.at))],
                            ['Oldest kept', text(status.kept)],
                            ['Readers', text(status.readers)],
                            ['Open edits', text(status.edits)],
                            [
                                'Branches',
                                (status.branches ?? []).map((one) => [
                                    a(['trees', text(one)], text(one)),
                                    ' ',
                                ]),
                            ],
                            ['Origin', status.from && text(status.from)],
                        ]),
                    ),
                    h(
                        'div.grid.wide',
                        card(
                            'Versions',
                            table(
                                'Versions',
                                [
                                    {
                                        name: 'Version',
                                        kind: 'num',
                                        cell: (one) =>
                                            h(
                                                'a',
                                                {
                                                    href: href(['trees', tree], {
                                                        from: Math.max(0, num(one.version) - 1),
                                                        to: num(one.version),
                                                    }),
                                                },
                                                text(one.version),
                                            ),
                                    },
                                    {
                                        name: 'Message',
                                        cell: (one) => [
                                            text(one.message),
                                            tags
                                                .filter(
                                                    ([, version]) =>
                                                        num(version) === num(one.version),
                                                )
                                                .map(([tag]) => [' ', h('span.tag', tag)]),
                                        ],
                                    },
                                    { name: 'Author', cell: (one) => text(one.author) },
                                    { name: 'Published', cell: (one) => ago(time(one.at)) },
                                ],
                                log.versions,
                            ),
                        ),
                        card(
                            'Tags and readers',
                            table(
                                'Tags and readers',
                                [
                                    {
                                        name: 'Kind',
                                        cell: (one) => (one.tag !== undefined ? 'tag' : 'reader'),
                                    },
                                    {
                                        name: 'Name',
                                        cell: (one) => text(one.tag ?? one.holder ?? one._id),
                                    },
                                    {
                                        name: 'Version',
                                        kind: 'num',
                                        cell: (one) => text(one.version),
                                    },
                                    {
                                        name: 'Action',
                                        cell: (one) =>
                                            one.tag !== undefined &&
                                            action(
                                                'Remove the tag',
                                                async () => {
                                                    await act('truceTree', {
                                                        tree,
                                                        untag: one.tag,
                                                    });
                                                    return 'Removed.';
                                                },
                                                {
                                                    danger: true,
                                                    confirm: `The version may be collected without the tag ${text(one.tag)}.`,
                                                },
                                            ),
                                    },
                                ],
                                pins,
                                'Nothing pins a version.',
                            ),
                        ),
                    ),
                ];
            },
            10000,
            first,
        ),
        filters(
            ['trees', tree],
            { from: String(from), to: String(to) },
            [
                { name: 'from', label: 'From version' },
                { name: 'to', label: 'To version' },
            ],
            'Compare',
        ),
        differences(tree, from, to),
    ];
}
