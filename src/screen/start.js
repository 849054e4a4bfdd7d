// Runs before the page is drawn: sets the theme, and starts the application after the first frame, so that the page
// appears before the browser compiles the modules.
'use strict';
const theme = localStorage.getItem('truce.theme');
if (theme) document.documentElement.dataset.theme = theme;
const folder = document.currentScript.src.replace(/[^/]*$/, '');
const start = () =>
    Promise.all(['app', 'api', 'dom', 'exact_numbers'].map((name) => import(`${folder}${name}.js`))).catch(
        () => {
            document.getElementById('main').textContent =
                'The server did not send the whole screen. Load the page again.';
        },
    );
const whenParsed = () =>
    document.readyState === 'loading' ? addEventListener('DOMContentLoaded', start) : start();
if (document.hidden) whenParsed();
else requestAnimationFrame(() => setTimeout(whenParsed));
