// What the theme's own script leaves out: a name for each wrap of a button that copies code would be one landmark too
// many, and code that is wider than a phone must be reached by keyboard there as well.
new MutationObserver(() => {
  for (const wrap of document.querySelectorAll('nav.md-code__nav:not([role])')) wrap.setAttribute('role', 'presentation')
  for (const code of document.querySelectorAll('pre > code:not([tabindex])')) code.setAttribute('tabindex', '0')
}).observe(document.documentElement, { attributeFilter: ['tabindex'], childList: true, subtree: true })
