// Commits of the journal, and what their processes left.
import { op } from './api.js';
import { text, time, num } from './exact.js';
import {
    h,
    act,
    action,
    ago,
    card,
    code,
    filters,
    iso,
    json,
    live,
    note,
    state,
    table,
    when,
} from './dom.js';

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
                            name: 'Lease',
                            cell: (one) =>
                                (time(one.lease) ?? time(one.expires)) !== undefined &&
                                ago(time(one.lease) ?? time(one.expires)),
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
                                                        json(one),
                                                    ),
                                                );
                                                detail.scrollIntoView({ block: 'nearest' });
                                            },
                                        },
                                        'Show',
                                    ),
                                    (one.state === 'pending' || one.state === 'committed') &&
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
