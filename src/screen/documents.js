// Documents: collections, a search with its plan, a document with its history, and changes as they happen.
import {
    op,
    find,
    one as findOne,
    missing,
    optional,
    remember,
    watch,
    session,
    count,
    COUNT_MAX,
    READ_MS,
} from './api.js';
import { num, parse, parseInput, text, time, write, brief } from './exact_numbers.js';
import {
    h,
    a,
    ago,
    bytes,
    capped,
    card,
    code,
    explainError,
    filters,
    grouped,
    href,
    idPart,
    json,
    live,
    note,
    plural,
    table,
} from './dom.js';

async function collections() {
    const all = (await op('listCollections', { cursor: {} })).cursor.firstBatch.sort((x, y) =>
        x.name < y.name ? -1 : 1,
    );
    await Promise.all(
        all.slice(0, 100).map(async (one) => {
            one.stats =
                one.type === 'view'
                    ? undefined
                    : await optional(
                          remember(`stats/${one.name}`, 15000, () =>
                              op('collStats', { collection: one.name, maxTimeMS: READ_MS }),
                          ),
                      );
        }),
    );
    return all;
}

function list(head) {
    const columns = [
        {
            name: 'Collection',
            cell: (one) => h('a.clip', { href: href(['documents', one.name]) }, one.name),
        },
        {
            name: 'Documents',
            kind: 'num',
            cell: (one) =>
                one.stats ? grouped(one.stats.count) : one.type === 'view' ? 'view' : '',
        },
        { name: 'Size', kind: 'num', cell: (one) => one.stats && bytes(num(one.stats.size)) },
        { name: 'Indexes', kind: 'num', cell: (one) => one.stats && num(one.stats.nindexes) },
        {
            name: 'Index size',
            kind: 'num',
            cell: (one) => one.stats && bytes(num(one.stats.totalIndexSize)),
        },
    ];
    return [
        head('Documents'),
        live(
            collections,
            (all) => {
                const own = all.filter((one) => one.info?.truce),
                    others = all.filter((one) => !one.info?.truce);
                return [
                    table(
                        'Collections',
                        columns,
                        others,
                        'There are no collections in this database.',
                    ),
                    own.length > 0 && [
                        h('h2', 'Collections of truce itself'),
                        table('Collections of truce', columns, own),
                    ],
                ];
            },
            15000,
        ),
    ];
}

function plan(explained) {
    const stages = [];
    for (let stage = explained.queryPlanner?.winningPlan; stage; stage = stage.inputStage)
        stages.push(`${stage.stage}${stage.indexName ? ` ${stage.indexName}` : ''}`);
    const run = explained.executionStats ?? {},
        examined = num(run.totalDocsExamined);
    return card(
        'Plan',
        h(
            'p',
            stages.map((stage, i) => [i > 0 && ' ← ', code(stage)]),
        ),
        h(
            'p.muted',
            `${plural(num(run.nReturned), 'document')} from ${plural(examined, 'document')} and ${plural(num(run.totalKeysExamined), 'key')} in ${num(run.executionTimeMillis)} ms`,
        ),
        stages.some((stage) => stage.startsWith('COLLSCAN')) &&
            examined > 1000 &&
            note(
                'warn',
                'The search examines every document. An index on the fields of the filter would help.',
            ),
        h('details', h('summary', 'The whole plan'), json(explained)),
    );
}

function changes(collection) {
    const list = h('ol.timeline', { 'aria-live': 'polite' }),
        button = h('button', { type: 'button' }, 'Watch changes');
    let controller = null;
    const stop = () => {
        controller?.abort();
        controller = null;
        button.textContent = 'Watch changes';
    };
    button.addEventListener('click', async () => {
        if (controller) {
            stop();
            return;
        }
        controller = new AbortController();
        button.textContent = 'Stop watching';
        list.replaceChildren(h('li.muted', 'Waiting for changes…'));
        try {
            await watch(
                `${encodeURIComponent(session.database)}/watch?collection=${encodeURIComponent(collection)}`,
                controller.signal,
                (kind, event) => {
                    if (!list.isConnected) {
                        stop();
                        return;
                    }
                    if (kind === 'error') {
                        list.prepend(
                            h('li', { 'data-state': 'error' }, text(event.errmsg ?? write(event))),
                        );
                        return;
                    }
                    list.querySelector('.muted')?.remove();
                    list.prepend(
                        h(
                            'li',
                            {
                                'data-state':
                                    event.operationType === 'delete'
                                        ? 'removed'
                                        : event.operationType === 'insert'
                                          ? 'added'
                                          : 'changed',
                            },
                            text(event.operationType),
                            ' ',
                            event.documentKey &&
                                a(
                                    ['documents', collection, idPart(event.documentKey._id)],
                                    code(text(event.documentKey._id).slice(0, 60)),
                                ),
                            ago(time(event.wallTime) ?? Date.now()),
                            event.updateDescription &&
                                h(
                                    'div',
                                    code(brief(event.updateDescription.updatedFields ?? {}, 300)),
                                ),
                        ),
                    );
                    while (list.children.length > 100) list.lastChild.remove();
                },
            );
        } catch (error) {
            if (error.name !== 'AbortError')
                list.replaceChildren(h('li', { 'data-state': 'error' }, explainError(error)));
        }
        if (controller) stop();
    });
    window.addEventListener('hashchange', stop, { once: true });
    return card('Live changes', h('div', button), list);
}

async function search(collection, query, head) {
    const { cursor } = await op('listCollections', {
        filter: { name: collection },
        nameOnly: true,
        cursor: {},
    });
    if (!cursor.firstBatch.length) throw missing(`There is no collection "${collection}".`);
    let filter = {},
        sort;
    const problem = [];
    try {
        if (query.filter) filter = parseInput(query.filter, 'The filter');
        if (query.sort) sort = parseInput(query.sort, 'The order');
    } catch (error) {
        problem.push(error.message);
    }
    const PAGE = 20,
        skip = Math.max(0, Math.min(100000, Number(query.skip) || 0));
    const read = async () => {
        const [rows, total] = await Promise.all([
            find(collection, { filter, sort, skip: skip || undefined, limit: PAGE + 1 }),
            count(collection, filter),
        ]);
        // A reply ends at 16 MB, so large documents have pages of fewer rows.
        const left = total > COUNT_MAX || skip + rows.length < total,
            more = rows.length > PAGE || (rows.length > 0 && left);
        return { rows, total, more };
    };
    return [
        head(collection, { crumbs: a(['documents'], 'Documents') }),
        filters(['documents', collection], query, [
            { name: 'filter', label: 'Filter', hint: '{"year": {"$gt": 2}}', wide: true },
            { name: 'sort', label: 'Order', hint: '{"year": -1}' },
            {
                name: 'explain',
                label: 'Plan',
                choices: [
                    ['', 'hidden'],
                    ['yes', 'shown'],
                ],
            },
        ]),
        problem.map((message) => note('bad', message)),
        !problem.length &&
            query.explain &&
            live(
                () =>
                    op('explain', {
                        command: { find: collection, filter, sort, limit: PAGE + 1 },
                        verbosity: 'executionStats',
                        maxTimeMS: READ_MS,
                    }),
                plan,
                0,
            ),
        !problem.length &&
            live(
                read,
                ({ rows, total, more }) => [
                    table(
                        'Documents',
                        [
                            {
                                name: '_id',
                                cell: (row) =>
                                    a(
                                        ['documents', collection, idPart(row._id)],
                                        code(text(row._id).slice(0, 80)),
                                    ),
                            },
                            {
                                name: 'Document',
                                cell: (row) => {
                                    const { _id, ...rest } = row;
                                    return h('div.clip', code(brief(rest, 400)));
                                },
                            },
                        ],
                        rows.slice(0, PAGE),
                        'No document matches.',
                    ),
                    h(
                        'div.pager',
                        total > COUNT_MAX
                            ? `more than ${capped(total)} match`
                            : `${plural(total, 'document')}`,
                        skip > 0 &&
                            h(
                                'a',
                                {
                                    href: href(['documents', collection], {
                                        ...query,
                                        skip: Math.max(0, skip - PAGE) || '',
                                    }),
                                    'data-previous': true,
                                },
                                'Previous',
                            ),
                        more &&
                            h(
                                'a',
                                {
                                    href: href(['documents', collection], {
                                        ...query,
                                        skip: skip + Math.min(PAGE, rows.length),
                                    }),
                                    'data-next': true,
                                },
                                'Next',
                            ),
                    ),
                ],
                10000,
            ),
        changes(collection),
    ];
}

async function document_(collection, id, head) {
    let key;
    try {
        key = parse(id);
    } catch {
        throw missing(`"${id}" is not an _id: expected JSON, for example "a" or {"$oid": "..."}.`);
    }
    const found = await findOne(collection, { _id: key });
    if (!found) throw missing(`There is no document with the _id ${id} in ${collection}.`);
    // An operation does not distinguish the _id null from an absent one.
    const versions =
        (key !== null &&
            (await optional(op('truceRevisionLog', { collection, id: key, limit: 50 })))
                ?.versions) ||
        [];
    return [
        head(text(key).slice(0, 200), {
            crumbs: [
                a(['documents'], 'Documents'),
                ' / ',
                a(['documents', collection], collection),
            ],
        }),
        card(null, json(found)),
        versions.length > 0 &&
            card(
                'Earlier versions',
                versions.map((version) =>
                    h(
                        'details',
                        h(
                            'summary',
                            `Version ${text(version._id.version)}, `,
                            ago(time(version.at)),
                        ),
                        json(version.document),
                    ),
                ),
            ),
        changes(collection),
    ];
}

export async function show({ args: [collection, id], query, head }) {
    if (collection === undefined) return list(head);
    return id === undefined ? search(collection, query, head) : document_(collection, id, head);
}
