// Overview: what needs attention, and each queue and ledger at a glance.
import { op, count, find, optional, remember, session } from './api.js';
import { num, text } from './exact_numbers.js';
import {
    h,
    a,
    live,
    capped,
    grouped,
    duration,
    bytes,
    empty,
    href,
    money,
    state,
    plural,
    noun,
} from './dom.js';
import { queues, lastHour, hourChart, workers, stateLinks, isStopped } from './work.js';

const doctor = async () =>
    session.access.monitor ? ((await optional(op('truceDoctor'))) ?? {}) : {};

// Adds up the accounts of the first ledgers, once a minute, whatever happens on the screen. `pages` is the number of
// replies of 1,000 accounts that all of them together may take.
const BOOKS = 12,
    PAGES = 12;
async function addUp(one, budget) {
    const ledger = text(one._id),
        sums = new Map();
    const pending = await optional(op('truceLedgerPending', { ledger, limit: 100 }));
    let count = 0,
        more = true,
        after;
    while (more && budget.pages-- > 0) {
        const reply = await optional(op('truceLedgerAccounts', { ledger, after, limit: 1000 }));
        if (!reply) return { name: ledger };
        for (const { currency, balance } of reply.accounts) {
            const sum = sums.get(currency) ?? { all: 0n, credit: 0n },
                value = BigInt(text(balance));
            sum.all += value;
            if (value > 0n) sum.credit += value;
            sums.set(currency, sum);
        }
        count += reply.accounts.length;
        more = reply.more;
        after = reply.accounts.at(-1)?.account;
    }
    return { name: ledger, digits: one.currencies ?? {}, count, more, pending, sums: [...sums] };
}
const books = () =>
    remember('books', 55000, async () => {
        const budget = { pages: PAGES },
            all = [];
        const found = await find('truce_ledgers', { limit: BOOKS + 1, sort: { _id: 1 } });
        for (const one of found.slice(0, BOOKS)) all.push(await addUp(one, budget));
        return [...all, ...found.slice(BOOKS)];
    });

// The number of queues with a card.
const QUEUES = 60;
async function readAll() {
    const [all, hour, busy, conflicts, commits, rejects, brokers] = await Promise.all([
        queues(),
        optional(lastHour()),
        optional(workers()),
        count('truce_conflicts', { state: 'open' }),
        count('truce_commits', { state: { $in: ['pending', 'committed'] } }),
        count('truce_rejects', {}),
        op('truceConsumers'),
    ]);
    return {
        all,
        hour: hour && [...hour].map(([queue, one]) => [queue, [...one]]),
        busy,
        conflicts,
        commits,
        rejects,
        consumers: brokers.consumers,
    };
}
// Two regions show parts of the result.
const read = () => remember('overview', 1000, readAll);

const tile = (value, label, link, kind) =>
    h(
        link ? `a${kind}` : `div${kind}`,
        link ? { href: link } : {},
        h('b', value),
        h('span', label),
    );

function tiles({ all, conflicts, commits, rejects, consumers }) {
    const sum = (name) => all.reduce((total, one) => total + num(one[name]), 0),
        working = consumers.filter((one) => !isStopped(one)).length;
    const undone = sum('ready') + sum('running') + sum('delayed') + sum('waiting') + sum('blocked'),
        dead = sum('dead');
    return h(
        'div.tiles',
        tile(capped(undone), noun(undone, 'live job'), href(['jobs']), ''),
        tile(capped(dead), noun(dead, 'dead letter'), href(['dead']), dead ? '.bad' : ''),
        tile(
            capped(conflicts),
            noun(conflicts, 'open conflict'),
            href(['conflicts']),
            conflicts ? '.warn' : '',
        ),
        tile(
            capped(commits),
            noun(commits, 'commit in flight', 'commits in flight'),
            href(['commits']),
            '',
        ),
        consumers.length > 0 &&
            tile(
                `${working} of ${consumers.length}`,
                noun(consumers.length, 'consumer runs', 'consumers run'),
                href(['consumers']),
                working < consumers.length ? '.warn' : '',
            ),
        rejects > 0 &&
            tile(
                capped(rejects),
                noun(rejects, 'rejected message of a broker', 'rejected messages of brokers'),
                href(['consumers']),
                '.warn',
            ),
    );
}

function healthTiles({ errors, warnings, facts = {} }) {
    const { file, wal, writes, writer, archive } = facts,
        findings = num(errors) + num(warnings);
    if (errors === undefined) return undefined;
    return h(
        'div.tiles',
        tile(
            findings,
            noun(findings, 'finding of the doctor', 'findings of the doctor'),
            href(['maintenance']),
            num(errors) ? '.bad' : findings ? '.warn' : '',
        ),
        file &&
            tile(
                bytes(num(file.bytes)),
                `store, and ${bytes(num(wal?.bytes))} log`,
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
        num(writer?.held_ms) > 2000 &&
            tile(
                duration(num(writer.held_ms)),
                `process ${text(writer.process)} holds the lock to write`,
                href(['maintenance']),
                '.warn',
            ),
        archive &&
            tile(
                duration(num(archive.behind_ms)),
                !num(archive.process)
                    ? 'behind: the archiver died'
                    : num(archive.failing_ms)
                    ? 'behind: the archive fails'
                    : `behind: the archive, ${bytes(num(archive.behind_bytes))}`,
                href(['maintenance']),
                num(archive.failing_ms) || !num(archive.process) ? '.bad' : '',
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

function bookCard({ name, digits = {}, count, more, pending, sums = [] }) {
    const wrong = sums.filter(([, sum]) => sum.all !== 0n);
    return h(
        'section.card.queue',
        h('h2', a(['ledgers', name], name)),
        h(
            'ul.counts',
            h(
                'li',
                h('b', `${grouped(count ?? 0)}${more ? '+' : ''}`),
                ` ${noun(count, 'account')}`,
            ),
            h(
                'li',
                h('b', pending?.more ? '100+' : (pending?.transactions.length ?? 0)),
                ' pending',
            ),
            !more &&
                sums.map(([currency, sum]) =>
                    h('li', h('b', money(sum.credit, num(digits[currency]))), ` ${currency}`),
                ),
        ),
        count === undefined
            ? h('p.muted', 'Your user may not read this ledger.')
            : more
              ? h('p.muted', 'Too many accounts to add up here.')
              : h(
                    'p.muted',
                    h(
                        'span.state',
                        { 'data-state': wrong.length ? 'error' : 'ok' },
                        wrong.length
                            ? `The balances in ${wrong.map(([currency]) => currency).join(', ')} do not sum to 0`
                            : 'Credits equal debits',
                    ),
                ),
    );
}

export function show({ head }) {
    return [
        head('Overview', { sub: `Database ${session.database}` }),
        live(read, tiles),
        live(doctor, healthTiles, 10000, undefined, true),
        live(read, (data) => {
            const hours =
                data.hour && new Map(data.hour.map(([queue, one]) => [queue, new Map(one)]));
            return [
                h('h2', 'Queues'),
                data.all.length
                    ? h(
                          'div.grid',
                          data.all
                              .slice(0, QUEUES)
                              .map((one) =>
                                  queueCard(one, hours ? hours.get(one.queue) : null, data.busy),
                              ),
                      )
                    : empty('There are no queues in this database.'),
                data.all.length > QUEUES &&
                    h('p', a(['queues'], `All ${plural(data.all.length, 'queue')}`)),
            ];
        }),
        live(
            books,
            (all) =>
                all.length > 0 && [
                    h('h2', 'Ledgers'),
                    h('div.grid', all.slice(0, BOOKS).map(bookCard)),
                    all.length > BOOKS && h('p', a(['ledgers'], 'All ledgers')),
                ],
            60000,
        ),
    ];
}
