// The frame: the bar, the navigation, the address, and the login. Each screen is a module whose
// show(context) returns {title, parts}.
import { op, session, hooks, setLogin, hasLogin, OfflineError } from './api.js';
import {
    h,
    add,
    href,
    ask,
    toast,
    note,
    empty,
    refresh,
    forget,
    isPaused,
    setPaused,
    explainError,
} from './dom.js';

// [name in the address, label, module, collections whose changes it shows]. '*' means the collection in the address.
const SCREENS = [
    [
        '',
        [
            [
                'overview',
                'Overview',
                'overview',
                'truce_queue truce_queues truce_conflicts truce_commits truce_consumers',
            ],
        ],
    ],
    [
        'Work',
        [
            ['jobs', 'Jobs', 'jobs', 'truce_queue'],
            ['dead', 'Dead letters', 'dead', 'truce_queue'],
            ['queues', 'Queues', 'queue', 'truce_queue truce_queues truce_queue_limiters'],
            ['workflows', 'Workflows', 'workflows', 'truce_queue'],
            ['cron', 'Cron', 'cron', 'truce_queue_crons'],
            ['consumers', 'Consumers', 'consumers', 'truce_consumers truce_rejects'],
        ],
    ],
    [
        'Data',
        [
            ['documents', 'Documents', 'documents', '*'],
            ['ledgers', 'Ledgers', 'ledger', 'truce_ledgers *'],
            ['conflicts', 'Conflicts', 'conflicts', 'truce_conflicts *'],
            ['sets', 'Ordered sets', 'sets', 'truce_sets truce_progress truce_quarantine'],
            ['trees', 'Trees', 'trees', 'truce_trees truce_tree_holds'],
            ['sync', 'Copies', 'sync', ''],
            ['sequences', 'Sequences', 'sequences', 'truce_sequences'],
        ],
    ],
    [
        'Store',
        [
            ['commits', 'Commits', 'commits', 'truce_commits'],
            ['transfers', 'Transfers', 'transfers', 'truce_transfers *'],
            ['maintenance', 'Maintenance', 'maintenance', ''],
        ],
    ],
];
const MODULES = new Map(
    SCREENS.flatMap(([, list]) =>
        list.map(([name, label, module, shown]) => [name, { label, module, shown }]),
    ),
);

const bar = document.getElementById('bar'),
    nav = document.getElementById('nav'),
    main = document.getElementById('main');

// ---- the theme --------------------------------------------------------------------------------

const THEMES = { '': 'System', light: 'Light', dark: 'Dark' };
function applyTheme(theme) {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
}

// ---- the login --------------------------------------------------------------------------------

let asking = null;
const base64 = (string) => btoa(String.fromCharCode(...new TextEncoder().encode(string)));
hooks.login = () => {
    asking ??= (async () => {
        const failed = hasLogin();
        setLogin('', '');
        const given = await ask('Log in', {
            confirm: 'Log in',
            body: [
                failed
                    ? note('bad', 'The name, the password, or the token is not valid.')
                    : 'This server needs a login.',
            ],
            fields: [
                { name: 'database', label: 'Database', value: session.database },
                { name: 'user', label: 'User', autocomplete: 'username' },
                {
                    name: 'password',
                    label: 'Password',
                    type: 'password',
                    autocomplete: 'current-password',
                },
                { name: 'token', label: 'or a token', type: 'password', hint: 'truce_…' },
            ],
        });
        if (given?.token) setLogin('token', `Bearer ${given.token}`);
        else if (given?.user)
            setLogin(given.user, `Basic ${base64(`${given.user}:${given.password}`)}`);
        setTimeout(() => {
            asking = null;
        }, 0);
        if (known !== null && hasLogin()) enterAgain();
        if (given?.database && given.database !== session.database) {
            location.hash = `#/${encodeURIComponent(given.database)}/overview`;
            return false;
        }
        return hasLogin();
    })();
    return asking;
};

let online = true;
hooks.online = (now) => {
    if (now === online) return;
    online = now;
    document.querySelector('.banner')?.remove();
    if (!online)
        main.prepend(
            h(
                'p.banner',
                { role: 'alert' },
                'The server does not reply. This page tries again every 2 seconds.',
            ),
        );
    else {
        toast('The server replies again.');
        refresh();
    }
};
setInterval(() => {
    if (!online && !document.hidden) op('ping').catch(() => {});
}, 2000);

// ---- the frame --------------------------------------------------------------------------------

let databases = [];
function drawBar() {
    const names = [...new Set([session.database, ...databases])];
    bar.replaceChildren();
    const theme = h(
        'select',
        {
            'aria-label': 'Theme',
            onchange: () => {
                localStorage.setItem('truce.theme', theme.value);
                applyTheme(theme.value);
            },
        },
        Object.entries(THEMES).map(([value, label]) =>
            h(
                'option',
                { value, selected: value === (localStorage.getItem('truce.theme') ?? '') },
                label,
            ),
        ),
    );
    const pause = h(
        'button',
        {
            type: 'button',
            'aria-pressed': String(isPaused()),
            onclick: () => {
                setPaused(!isPaused());
                pause.textContent = isPaused() ? 'Resume' : 'Pause';
                pause.setAttribute('aria-pressed', String(isPaused()));
            },
        },
        isPaused() ? 'Resume' : 'Pause',
    );
    pause.title = 'Stop or continue to update this page';
    add(bar, [
        h(
            'button',
            {
                id: 'menu',
                type: 'button',
                'aria-expanded': 'false',
                'aria-controls': 'nav',
                onclick: (event) => {
                    const open = nav.classList.toggle('open');
                    event.currentTarget.setAttribute('aria-expanded', String(open));
                },
            },
            'Menu',
        ),
        h(
            'a.brand',
            { href: href(['overview']), 'aria-label': 'truce: overview' },
            h('img', { src: new URL('icon.svg', import.meta.url).href, alt: '' }),
            h('span', 'truce'),
        ),
        h(
            'label',
            h('span.long', 'Database'),
            h(
                'select',
                {
                    'aria-label': 'Database',
                    onchange: (event) => {
                        location.hash = `#/${encodeURIComponent(event.target.value)}/overview`;
                    },
                },
                names.map((name) =>
                    h('option', { value: name, selected: name === session.database }, name),
                ),
            ),
        ),
        h('span.space'),
        session.user && h('span.who', session.user),
        session.access.write === false && h('span.tag', 'read-only'),
        hasLogin() &&
            h(
                'button',
                {
                    type: 'button',
                    onclick: () => {
                        setLogin('', '');
                        location.reload();
                    },
                },
                'Log out',
            ),
        pause,
        theme,
    ]);
}

function drawNav(current) {
    nav.replaceChildren();
    nav.classList.remove('open');
    document.getElementById('menu')?.setAttribute('aria-expanded', 'false');
    add(
        nav,
        SCREENS.map(([group, list]) => [
            group && h('h2', group),
            h(
                'ul',
                list.map(([name, label]) =>
                    h(
                        'li',
                        h(
                            'a',
                            {
                                href: href([name]),
                                'aria-current': name === current ? 'page' : undefined,
                            },
                            label,
                        ),
                    ),
                ),
            ),
        ]),
    );
}

// Reads the permissions of the user, and the names of the databases.
let known = null;
async function enter(database) {
    if (known === database) return;
    session.database = database || 'test';
    if (known === null) drawBar();
    session.access = await op('truceAccess');
    if (!database) session.database = session.access.database;
    known = session.database;
    drawBar();
    op('listDatabases', { nameOnly: true }, { database: 'admin', ask: false }).then(
        (reply) => {
            databases = reply.databases
                .map((one) => one.name)
                .filter((name) => name !== 'admin' && name !== 'config' && name !== 'local');
            drawBar();
        },
        () => {},
    ); // a user of one database sees this one only
}
// Reads the permissions again after a login, because another user may have other permissions.
async function enterAgain() {
    const database = known;
    known = undefined;
    databases = [];
    await enter(database).catch(() => {});
    refresh();
}

function readAddress() {
    const [path, search = ''] = location.hash.replace(/^#\/?/, '').split('?');
    try {
        const [database, screen, ...args] = path.split('/').map(decodeURIComponent);
        return {
            database,
            screen: screen || 'overview',
            args,
            query: Object.fromEntries(new URLSearchParams(search)),
        };
    } catch {
        return { database: '', screen: 'unknown', args: [], query: {} };
    }
}

export const head = (title, { crumbs, sub, side } = {}) =>
    h(
        'div.head',
        crumbs && h('nav.crumbs', { 'aria-label': 'Path' }, crumbs),
        h('h1', title),
        side && h('div.row.end', side),
        sub && h('p.sub', sub),
    );

// Imports a screen. If the server has another version of the screen by now, the page loads that one, once.
const RELOADED = 'truce.reloaded';
async function load(module) {
    try {
        return await import(`./${module}.js`);
    } catch (error) {
        await op('ping', {}, { ask: false }).catch((lost) => {
            if (lost instanceof OfflineError) throw lost;
        });
        if (sessionStorage.getItem(RELOADED) === import.meta.url) throw error;
        sessionStorage.setItem(RELOADED, import.meta.url);
        location.reload();
        return new Promise(() => {});
    }
}

let visit = 0;
async function show() {
    const mine = ++visit,
        address = readAddress();
    forget(
        (MODULES.get(address.screen)?.shown ?? '')
            .split(' ')
            .map((name) => (name === '*' ? address.args[0] : name))
            .filter(Boolean),
    );
    const waiting = setTimeout(() => {
        if (mine === visit) main.replaceChildren(h('p.loading', 'Loading…'));
    }, 250);
    let parts;
    try {
        const screen = MODULES.get(address.screen),
            loading = screen && load(screen.module);
        loading?.catch(() => {}); // reported below
        if (known === null) drawNav(address.screen);
        await enter(address.database);
        drawNav(address.screen);
        if (!screen) {
            parts = [head('No such screen'), empty('There is no screen "', address.screen, '".')];
        } else {
            const module = await loading;
            if (mine !== visit) {
                clearTimeout(waiting);
                return;
            }
            parts = await module.show({ ...address, head });
        }
        document.title = `${screen?.label ?? 'Not found'} · ${session.database} · truce`;
    } catch (error) {
        const missing = error.http === 404;
        parts = [
            head(
                missing
                    ? 'Not found'
                    : error instanceof OfflineError
                      ? 'No connection'
                      : 'This did not work',
            ),
            note('bad', explainError(error)),
            h('div.row', h('button', { type: 'button', onclick: show }, 'Try again')),
        ];
    }
    clearTimeout(waiting);
    if (mine !== visit) return;
    main.replaceChildren();
    add(main, [parts]);
    if (!online) {
        online = true;
        hooks.online(false);
    }
}

window.addEventListener('hashchange', () => {
    show().then(() => main.focus());
    scrollTo(0, 0);
});
document.addEventListener('visibilitychange', () => {
    if (!document.hidden) refresh();
});
document.addEventListener('keydown', (event) => {
    if (
        event.ctrlKey ||
        event.metaKey ||
        event.altKey ||
        event.target.closest('input, textarea, select, dialog')
    )
        return;
    if (event.key === '/') {
        const field = main.querySelector('.filters input');
        if (field) {
            event.preventDefault();
            field.focus();
        }
    } else if (event.key === 'n' || event.key === 'p') {
        main.querySelector(event.key === 'n' ? '[data-next]' : '[data-previous]')?.click();
    }
});
show();
