// Overview: what needs attention, and each queue and ledger at a glance.
import { op, count, find, optional, remember, session } from './api.js';
import { num } from './exact.js';
import { h, a, live, capped, grouped, duration, bytes, empty, href, state, plural } from './dom.js';
import { queues, lastHour, hourChart, workers, stateLinks } from './work.js';

const doctor = () =>
    session.access.monitor
        ? optional(remember('doctor', 60000, () => op('truceDoctor')))
        : undefined;

async function read() {
    const [all, hour, busy, conflicts, commits, ledgers, health] = await Promise.all([
        queues(),
        optional(lastHour()),
        optional(workers()),
        count('truce_conflicts', { state: 'open' }),
        count('truce_commits', { state: 'pending' }),
        find('truce_ledgers', { limit: 12, sort: { _id: 1 } }),
        doctor(),
    ]);
    const books = await Promise.all(
        ledgers.map(async (one) => {
            const name = one._id?.ledger ?? one.ledger ?? one._id;
            return {
                name,
                accounts: await optional(op('truceLedgerAccounts', { ledger: name, limit: 1000 })),
                pending: await optional(op('truceLedgerPending', { ledger: name, limit: 100 })),
            };
        }),
    );
    return {
        all,
        hour: hour && [...hour].map(([queue, one]) => [queue, [...one]]),
        busy,
        conflicts,
        commits,
        books,
        health,
    };
}

function tiles({ all, conflicts, commits, health }) {
    const sum = (name) => all.reduce((total, one) => total + num(one[name]), 0);
    const tile = (value, label, link, kind) =>
        h(
            link ? `a${kind}` : `div${kind}`,
            link ? { href: link } : {},
            h('b', value),
            h('span', label),
        );
    const facts = health?.facts,
        findings = health ? num(health.errors) + num(health.warnings) : 0;
    const writes = facts?.writes;
    return h(
        'div.tiles',
        tile(
            capped(
                sum('ready') + sum('running') + sum('delayed') + sum('waiting') + sum('blocked'),
            ),
            'live jobs',
            href(['jobs']),
            '',
        ),
        tile(capped(sum('dead')), 'dead letters', href(['dead']), sum('dead') ? '.bad' : ''),
        tile(capped(conflicts), 'open conflicts', href(['conflicts']), conflicts ? '.warn' : ''),
        tile(capped(commits), 'commits in flight', href(['commits']), ''),
        health &&
            tile(
                findings,
                'findings of the doctor',
                href(['maintenance']),
                num(health.errors) ? '.bad' : findings ? '.warn' : '',
            ),
        facts?.file &&
            tile(
                bytes(num(facts.file.bytes)),
                `store, and ${bytes(num(facts.wal?.bytes))} log`,
                href(['maintenance']),
                '',
            ),
        writes &&
            num(writes.syncs) > 0 &&
            tile(
                (num(writes.operations) / num(writes.syncs)).toFixed(1),
                'writes per sync',
                undefined,
                '',
            ),
    );
}

function queueCard(one, hour, busy) {
    const mine = (busy ?? []).filter((row) => row._id.queue === one.queue);
    const names = ['ready', 'running', 'delayed', 'waiting', 'blocked', 'dead'].filter(
        (name) => num(one[name]) || name === 'ready' || name === 'running',
    );
    return h(
        'section.card.queue',
        h(
            'div.row.between',
            h('h2', a(['queues', one.queue], one.queue)),
            one.paused && state('paused'),
        ),
        h(
            'ul.counts',
            stateLinks(
                one.queue,
                Object.fromEntries(names.map((name) => [name, num(one[name])])),
                names,
            ),
        ),
        hourChart(one.queue, hour),
        h(
            'p.muted',
            [
                num(one.oldest_ms) > 0 && `oldest ready job: ${duration(num(one.oldest_ms))}`,
                plural(mine.length, 'busy worker'),
            ]
                .filter(Boolean)
                .join(' · '),
        ),
    );
}

function bookCard({ name, accounts, pending }) {
    const sums = new Map(),
        list = accounts?.accounts ?? [];
    for (const one of list)
        sums.set(one.currency, (sums.get(one.currency) ?? 0) + num(one.balance));
    const balanced = !accounts?.more && [...sums.values()].every((sum) => Math.abs(sum) < 0.5);
    return h(
        'section.card.queue',
        h('h2', a(['ledgers', name], name)),
        h(
            'ul.counts',
            h('li', h('b', accounts?.more ? '1000+' : grouped(list.length)), ' accounts'),
            h(
                'li',
                h('b', pending?.more ? '100+' : (pending?.transactions.length ?? 0)),
                ' pending',
            ),
            h('li', [...sums.keys()].join(', ')),
        ),
        accounts?.more
            ? h('p.muted', 'Too many accounts to add up here.')
            : state(balanced ? 'ok' : 'error'),
        !accounts?.more &&
            h('span.muted', balanced ? ' all balances sum to 0' : ' the balances do not sum to 0'),
    );
}

export function show({ head }) {
    return [
        head('Overview', { sub: `Database ${session.database}` }),
        live(read, (data) => {
            const hours =
                data.hour && new Map(data.hour.map(([queue, one]) => [queue, new Map(one)]));
            return [
                tiles(data),
                h('h2', 'Queues'),
                data.all.length
                    ? h(
                          'div.grid',
                          data.all
                              .slice(0, 60)
                              .map((one) =>
                                  queueCard(one, hours ? hours.get(one.queue) : null, data.busy),
                              ),
                      )
                    : empty('There are no queues in this database.'),
                data.books.length > 0 && [
                    h('h2', 'Ledgers'),
                    h('div.grid', data.books.map(bookCard)),
                ],
            ];
        }),
    ];
}
