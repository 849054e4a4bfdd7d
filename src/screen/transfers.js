// Transfers in two phases.
import { op, find, one as findOne, missing } from './api.js';
import { text, time, write, brief } from './exact_numbers.js';
import {
    h,
    a,
    act,
    action,
    ago,
    card,
    code,
    filters,
    json,
    live,
    state,
    table,
    LIST_MAX,
} from './dom.js';

export async function show({ args: [collection], query, head }) {
    if (collection === undefined)
        return [
            head('Transfers'),
            live(
                () =>
                    find('truce_transfers', {
                        filter: { accounts: { $exists: true } },
                        sort: { _id: 1 },
                        limit: LIST_MAX + 1,
                    }),
                (all) =>
                    table(
                        'Books of transfers',
                        [
                            {
                                name: 'Transfers',
                                cell: (one) => a(['transfers', text(one._id)], text(one._id)),
                            },
                            {
                                name: 'Accounts',
                                cell: (one) =>
                                    a(['documents', text(one.accounts)], text(one.accounts)),
                            },
                            { name: 'Field', cell: (one) => code(text(one.field)) },
                        ],
                        all,
                        'There are no transfers in this database.',
                        LIST_MAX,
                    ),
            ),
        ];
    if (!(await findOne('truce_transfers', { _id: collection }, { _id: 1 })))
        throw missing(`There are no transfers in a collection "${collection}".`);
    const detail = h('div', { role: 'status' });
    const open = (one) => !['done', 'canceled'].includes(text(one.state));
    return [
        head(collection, { crumbs: a(['transfers'], 'Transfers') }),
        filters(['transfers', collection], query, [
            {
                name: 'state',
                label: 'State',
                choices: [
                    ['', 'All'],
                    'initial',
                    'pending',
                    'committed',
                    'applied',
                    'done',
                    'canceling',
                    'canceled',
                ],
            },
        ]),
        live(
            () => op('truceTransfers', { collection, state: query.state || undefined, limit: 100 }),
            ({ transfers, more }) => [
                table(
                    'Transfers',
                    [
                        { name: 'State', cell: (one) => state(text(one.state)) },
                        { name: 'Transfer', cell: (one) => code(brief(one._id, 80)) },
                        { name: 'From', cell: (one) => text(one.source) },
                        { name: 'To', cell: (one) => text(one.destination) },
                        { name: 'Amount', kind: 'num', cell: (one) => text(one.value) },
                        { name: 'Changed', cell: (one) => ago(time(one.lastModified)) },
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
                                                    card(write(one._id), json(one)),
                                                );
                                                detail.scrollIntoView({ block: 'nearest' });
                                            },
                                        },
                                        'Show',
                                    ),
                                    open(one) &&
                                        action(
                                            'Complete',
                                            async () => {
                                                await act('truceTransferResume', {
                                                    collection,
                                                    id: one._id,
                                                });
                                                return 'Completed.';
                                            },
                                            { confirm: 'The transfer is completed now.' },
                                        ),
                                    open(one) &&
                                        action(
                                            'Cancel',
                                            async () => {
                                                await act('truceTransferCancel', {
                                                    collection,
                                                    id: one._id,
                                                });
                                                return 'Canceled.';
                                            },
                                            {
                                                danger: true,
                                                confirm:
                                                    'The transfer is canceled permanently if it is not decided.',
                                            },
                                        ),
                                ),
                        },
                    ],
                    transfers,
                    'No transfer matches.',
                ),
                more && h('p.muted', 'Only the first 100 are shown.'),
            ],
        ),
        detail,
    ];
}
