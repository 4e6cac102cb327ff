/* What stands on the page and was not run yet is kept for the tab, so that a reload loses nothing: the page loads itself
   anew when its server was away. A draft belongs to what the address named while it was written. */

const DRAFT = `decodelab.draft ${location.pathname}`;

function namedRun() { return new URLSearchParams(location.search).get('run') || ''; }

/* Prompt and settings to begin with, as text: those of a link, or else of the tab's draft; null without either. */
function startText() {
  const linked = new URLSearchParams(location.hash.slice(1)).get('start');
  if (linked) return linked;
  try {
    const draft = JSON.parse(sessionStorage.getItem(DRAFT));
    return draft?.run === namedRun() ? draft.start : null;
  } catch { return null; }
}

function keepDraft(value) {
  try {
    sessionStorage.setItem(DRAFT, JSON.stringify({ run: namedRun(), start: JSON.stringify(value) }));
  } catch { sessionStorage.removeItem(DRAFT); } // too long for the browser
}
