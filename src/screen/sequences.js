// Sequences and their last numbers.
import { op } from './api.js';
import { text, whole } from './exact_numbers.js';
import { act, action, ask, grouped, live, table, LIST_MAX } from './dom.js';

export function show({ head }) {
    return [
        head('Sequences'),
        live(
            () => op('truceSequences', { limit: LIST_MAX + 1 }),
            ({ sequences }) =>
                table(
                    'Sequences',
                    [
                        { name: 'Sequence', cell: (one) => text(one._id) },
                        { name: 'Last number', kind: 'num', cell: (one) => grouped(one.value) },
                        {
                            name: 'Action',
                            cell: (one) =>
                                action('Raise', () =>
                                    ask(`Raise ${text(one._id)}`, {
                                        confirm: 'Raise',
                                        body: [
                                            'Numbers up to this one are no longer allocated. This cannot be undone.',
                                        ],
                                        fields: [
                                            { name: 'raise', label: 'Number', type: 'number' },
                                        ],
                                        run: async (given) => {
                                            await act('truceSequence', {
                                                sequence: one._id,
                                                raise: whole(given.raise),
                                            });
                                            return 'Raised.';
                                        },
                                    }),
                                ),
                        },
                    ],
                    sequences,
                    'There are no sequences in this database.',
                    LIST_MAX,
                ),
        ),
    ];
}
