// Conflicts: edits that a merge could not resolve, with both sides and their base.
import { op, find, missing } from './api.js';
import { parse, text, time, write } from './exact.js';
import {
    h,
    a,
    act,
    action,
    ago,
    ask,
    card,
    code,
    href,
    json,
    live,
    note,
    plural,
    table,
} from './dom.js';

const CONFLICTS = 'truce_conflicts';
const open = (filter = {}) =>
    find(CONFLICTS, {
        filter: { state: 'open', ...filter },
        projection: { collection: 1, id: 1, at: 1, 'conflicts.path': 1 },
        sort: { at: 1 },
        limit: 200,
    });

function list(head) {
    return [
        head('Conflicts', { sub: 'Edits that a merge could not resolve, the oldest first.' }),
        live(
            () => open(),
            (all) =>
                table(
                    'Conflicts',
                    [
                        {
                            name: 'Document',
                            cell: (one) =>
                                a(
                                    ['conflicts', text(one.collection), text(one._id)],
                                    text(one.collection),
                                    ' ',
                                    code(text(one.id).slice(0, 60)),
                                ),
                        },
                        {
                            name: 'Paths in conflict',
                            cell: (one) =>
                                (one.conflicts ?? []).map((each) => h('span.tag', text(each.path))),
                        },
                        { name: 'Since', cell: (one) => ago(time(one.at)) },
                    ],
                    all,
                    'No conflict is open.',
                ),
        ),
    ];
}

// Sets a value at a path such as "a.b".
function withPath(document, path, value) {
    const copy = parse(write(document)),
        parts = path.split('.'),
        last = parts.pop();
    let at = copy;
    for (const part of parts) {
        if (at === null || typeof at !== 'object') return copy;
        at = at[part] ??= {};
    }
    if (value === undefined) delete at[last];
    else at[last] = value;
    return copy;
}
const shown = (value) =>
    value === undefined ? h('span.muted', 'absent') : code(write(value).slice(0, 2000));

async function one(collection, id, head) {
    const { conflicts } = await op('truceConflicts', { collection });
    const at = conflicts.findIndex((each) => text(each._id) === id);
    if (at < 0) throw missing(`No open conflict has the id ${id} in ${collection}.`);
    const conflict = conflicts[at],
        next = conflicts[at + 1] ?? conflicts[at - 1];
    const later = () => {
        location.hash = next
            ? href(['conflicts', collection, text(next._id)])
            : href(['conflicts']);
    };
    const resolve = async (body) => {
        const reply = await act('truceResolve', {
            collection,
            conflict: conflict._id,
            seen: { version: conflict.version },
            ...body,
        });
        if (reply.outcome === 'conflict')
            return 'The document changed in the meantime: the conflict is compared with it again.';
        later();
        return 'Resolved.';
    };
    const paths = conflict.conflicts ?? [],
        chosen = new Map(paths.map((each) => [text(each.path), 'theirs']));
    const side = (each, name) => {
        const path = text(each.path),
            input = h('input', {
                type: 'radio',
                name: `side-${path}`,
                onchange: () => chosen.set(path, name),
            });
        input.checked = name === 'theirs';
        return h('label', input, ' ', shown(each[name]));
    };
    const combined = () =>
        [...chosen].reduce(
            (document, [path, name]) =>
                withPath(document, path, paths.find((each) => text(each.path) === path)?.[name]),
            conflict.theirs,
        );
    return [
        head(text(conflict.id), {
            crumbs: [a(['conflicts'], 'Conflicts'), ' / ', collection],
            sub: `${plural(paths.length, 'path')} in conflict`,
            side: [
                h('button', { type: 'button', 'data-next': true, onclick: later }, 'Next conflict'),
            ],
        }),
        card(
            'Choose for each path',
            table(
                'Paths in conflict',
                [
                    { name: 'Path', cell: (each) => code(text(each.path)) },
                    { name: 'Base', cell: (each) => shown(each.base) },
                    { name: 'Mine', cell: (each) => side(each, 'mine') },
                    { name: 'Theirs (stored)', cell: (each) => side(each, 'theirs') },
                ],
                paths,
            ),
            h(
                'div.row',
                action(
                    'Save the choices',
                    () => resolve({ take: 'document', document: combined() }),
                    { primary: true, after: () => {} },
                ),
                action('Take mine', () => resolve({ take: 'mine' }), {
                    confirm: 'Where both differ, the stored values are replaced by mine.',
                    after: () => {},
                }),
                action('Take theirs', () => resolve({ take: 'theirs' }), {
                    confirm: 'Where both differ, the stored values stay.',
                    after: () => {},
                }),
                action(
                    'Edit…',
                    async () => {
                        const given = await ask('Edit the document', {
                            confirm: 'Save',
                            fields: [
                                {
                                    name: 'document',
                                    label: 'The whole document',
                                    rows: 16,
                                    value: write(combined(), 2),
                                },
                            ],
                        });
                        return given
                            ? resolve({ take: 'document', document: parse(given.document) })
                            : null;
                    },
                    { after: () => {} },
                ),
            ),
        ),
        h(
            'div.compare',
            card('Mine', json(conflict.mine)),
            card('Base', conflict.base ? json(conflict.base) : note('', 'There is no base.')),
            card('Theirs', json(conflict.theirs)),
        ),
    ];
}

export async function show({ args: [collection, id], head }) {
    if (collection === undefined || id === undefined) return list(head);
    return one(collection, id, head);
}
