// Conflicts: edits that a merge could not resolve, with both sides and their base.
import { op, find, missing } from './api.js';
import { keyIn, parse, parseInput, text, time, write, brief } from './exact_numbers.js';
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
    LIST_MAX,
} from './dom.js';
import { isId, oid } from './work.js';

const open = () =>
    find('truce_conflicts', {
        filter: { state: 'open' },
        projection: { collection: 1, id: 1, at: 1, 'conflicts.path': 1 },
        sort: { at: 1, _id: 1 },
        limit: LIST_MAX + 1,
    });

function list(head) {
    return [
        head('Conflicts', { sub: 'Edits that a merge could not resolve, the oldest first.' }),
        live(open, (all) =>
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
                LIST_MAX,
            ),
        ),
    ];
}

// Sets a field, also one with the name "__proto__".
const put = (at, key, value) =>
    Object.defineProperty(at, key, { value, enumerable: true, configurable: true, writable: true });
// Sets a value at a path such as "a.b".
function withPath(document, path, value) {
    const copy = parse(write(document)),
        parts = path.split('.'),
        last = parts.pop();
    let at = copy;
    for (const part of parts) {
        const key = keyIn(at, part);
        if (!Object.hasOwn(at, key)) put(at, key, {});
        at = at[key];
        if (at === null || typeof at !== 'object') return copy;
    }
    if (value === undefined) delete at[keyIn(at, last)];
    else put(at, keyIn(at, last), value);
    return copy;
}
const shown = (value) =>
    value === undefined ? h('span.muted', 'absent') : code(brief(value, 2000));

async function one(collection, id, head) {
    if (!isId(id))
        throw missing(`"${id}" is not the id of a conflict: expected 24 hexadecimal digits.`);
    const [{ conflicts }, all] = await Promise.all([
        op('truceConflicts', { collection, conflict: oid(id) }),
        open(),
    ]);
    if (!conflicts) throw missing(`No open conflict has the id ${id} in ${collection}.`);
    const [conflict] = conflicts,
        at = all.findIndex((each) => text(each._id) === id),
        before = all[at - 1],
        after = all[at + 1],
        address = (other) =>
            href(other ? ['conflicts', text(other.collection), text(other._id)] : ['conflicts']);
    const later = () => {
        location.hash = address(after ?? before);
    };
    const resolve = async (body) => {
        const reply = await act('truceResolve', {
            collection,
            conflict: conflict._id,
            seen: { version: conflict.version },
            ...body,
        });
        if (reply.outcome === 'conflict') {
            window.dispatchEvent(new HashChangeEvent('hashchange'));
            throw new Error(
                'The document changed in the meantime. The page now shows the conflict with its current value.',
            );
        }
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
                before &&
                    h('a', { href: address(before), 'data-previous': true }, 'Previous conflict'),
                h(
                    'a',
                    { href: address(after), 'data-next': true },
                    after ? 'Next conflict' : 'All conflicts',
                ),
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
                    () =>
                        ask('Edit the document', {
                            confirm: 'Save',
                            fields: [
                                {
                                    name: 'document',
                                    label: 'The whole document',
                                    rows: 16,
                                    value: write(combined(), 2),
                                },
                            ],
                            run: ({ document }) =>
                                resolve({
                                    take: 'document',
                                    document: parseInput(document, 'The document'),
                                }),
                        }),
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
