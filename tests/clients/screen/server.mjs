// Servers of the tests in a browser. TRUCE_TEST_PROGRAM is the program.
import { spawn } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';

const servers = new Set();

// Starts a server for the store NAME.truce of the folder. Returns its process, its address, and its log.
export async function serve(folder, name, options = [], httpPort = 0) {
    const log = path.join(folder, `${name}.log`);
    const child = spawn(
        process.env.TRUCE_TEST_PROGRAM,
        [
            'serve',
            path.join(folder, `${name}.truce`),
            '--port',
            '0',
            '--http',
            String(httpPort),
            '--sweep-every',
            '0',
            '--json',
            '--quiet',
            ...options,
        ],
        { stdio: ['ignore', 'pipe', fs.openSync(log, 'a')] },
    );
    servers.add(child);
    const base = await new Promise((resolve, reject) => {
        child.stdout.on('data', (bytes) => {
            const url = /"http": "([^"]*)"/.exec(bytes);
            if (url) resolve(url[1]);
        });
        child.on('exit', (code) => reject(new Error(`the server ended with ${code}`)));
    });
    return { child, base, log };
}

export function endServers() {
    for (const child of servers) {
        child.removeAllListeners('exit');
        child.kill('SIGKILL');
    }
}
