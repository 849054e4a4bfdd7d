// Completes parts that the theme adds to a page later. A table or a picture that is wider than the window is scrolled, and a
// keyboard must reach it. The button of each block of code is in a landmark, and landmarks need different names.
function completePage() {
  const scrolled = '.md-typeset__scrollwrap:not([tabindex]), p:not([tabindex]):has(> img[src$="benchmarks.svg"])';
  for (const wrap of document.querySelectorAll(scrolled)) wrap.tabIndex = 0;
  for (const [number, nav] of document.querySelectorAll(".md-code__nav").entries()) nav.ariaLabel ??= `code ${number + 1}`;
}
new MutationObserver(completePage).observe(document.documentElement, { childList: true, subtree: true });
completePage();
