// Commits of the journal, and the state that their processes left.
import { op } from './api.js';
import { num, text, time, write, brief } from './exact_numbers.js';
import {
    h,
    a,
    act,
    action,
    ago,
    card,
    code,
    filters,
    idPart,
    iso,
    json,
    live,
    note,
    state,
    table,
    when,
} from './dom.js';

const open = (one) => one.state === 'pending' || one.state === 'committed';

const DONE = {
    insert: 'insert',
    remove: 'remove',
    set: 'change fields',
    whole: 'replace',
    hold: 'unchanged, but locked',
    free: 'unchanged, and must stay absent',
};
function intended(one) {
    if (one.op === 'set')
        return (one.changes ?? [])
            .slice(0, 50)
            .map((each) =>
                h(
                    'div',
                    code(text(each.p)),
                    each.v === undefined ? ' removed' : [' = ', code(brief(each.v, 300))],
                ),
            );
    return one.document && code(brief(one.document, 600));
}

// The documents that a commit locks, and its changes of them.
function effects(one) {
    const keyOf = (each) => `${text(each.ns)} ${write(each.id)}`,
        decided = new Map((one.post ?? []).map((each) => [keyOf(each), each])),
        list = [
            ...decided.values(),
            ...[...(one.writes ?? []), ...(one.requires ?? [])].filter(
                (each) => !decided.has(keyOf(each)),
            ),
        ];
    return table(
        'Documents of the commit',
        [
            {
                name: 'Document',
                cell: (each) =>
                    a(
                        ['documents', text(each.ns), idPart(each.id)],
                        text(each.ns),
                        ' ',
                        code(brief(each.id, 80)),
                    ),
            },
            { name: 'Change', cell: (each) => DONE[each.op] ?? 'locked; not decided yet' },
            { name: 'Intended', cell: intended },
        ],
        list,
        open(one) ? 'The commit names no document.' : 'The commit has ended: it locks nothing.',
    );
}

export function show({ query, head }) {
    const detail = h('div', { role: 'status' });
    return [
        head('Commits', { sub: 'Commits in flight, and those that are recorded under a key.' }),
        filters(['commits'], query, [
            {
                name: 'state',
                label: 'State',
                choices: [['', 'All'], ['pending', 'in flight'], 'committed', 'done', 'aborted'],
            },
            { name: 'prefix', label: 'Key begins with' },
        ]),
        live(
            () =>
                op('truceCommits', {
                    state: query.state || undefined,
                    keyPrefix: query.prefix || undefined,
                    limit: 100,
                }),
            ({ commits, more }) => [
                table(
                    'Commits',
                    [
                        { name: 'State', cell: (one) => state(text(one.state)) },
                        { name: 'Commit', cell: (one) => code(text(one.key ?? one._id)) },
                        { name: 'Begun', cell: (one) => ago(time(one.created)) },
                        {
                            name: 'Holder',
                            cell: (one) => open(one) && h('code.id', text(one.lease?.owner)),
                        },
                        {
                            name: 'Lease ends',
                            cell: (one) => open(one) && one.lease && ago(num(one.lease.until)),
                        },
                        {
                            name: 'Actions',
                            cell: (one) =>
                                h(
                                    'div.row',
                                    h(
                                        'button',
                                        {
                                            type: 'button',
                                            onclick: () => {
                                                detail.replaceChildren(
                                                    card(
                                                        text(one.key ?? one._id),
                                                        one.key_time &&
                                                            h(
                                                                'p.muted',
                                                                'requested ',
                                                                h(
                                                                    'time',
                                                                    {
                                                                        datetime: iso(
                                                                            num(one.key_time),
                                                                        ),
                                                                    },
                                                                    when(num(one.key_time)),
                                                                ),
                                                            ),
                                                        effects(one),
                                                        h(
                                                            'details',
                                                            h('summary', 'The whole commit'),
                                                            json(one),
                                                        ),
                                                    ),
                                                );
                                                detail.scrollIntoView({ block: 'nearest' });
                                            },
                                        },
                                        'Show',
                                    ),
                                    open(one) &&
                                        action(
                                            'Finish or undo',
                                            async () => {
                                                const reply = await act('truceCommitResolve', {
                                                    commit: one._id,
                                                });
                                                return reply.commit
                                                    ? `The commit is ${text(reply.commit.state)}.`
                                                    : 'The commit took no effect and was undone.';
                                            },
                                            {
                                                confirm:
                                                    'If the commit was decided, it is completed. Otherwise it is undone. A commit whose process still works on it is refused.',
                                            },
                                        ),
                                ),
                        },
                    ],
                    commits,
                    query.state || query.prefix
                        ? 'No commit matches.'
                        : 'No commit is in flight, and none is recorded.',
                ),
                more && note('', 'Only the newest 100 are shown.'),
            ],
        ),
        detail,
    ];
}
