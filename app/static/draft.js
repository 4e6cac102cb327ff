/* What stands on the page and was not run yet is kept for the tab, so that a reload loses nothing: the page loads itself
   anew when its server was away. A draft belongs to what the address named while it was written. */

const DRAFT = `decodelab.draft ${location.pathname}`;

function namedRun() { return new URLSearchParams(location.search).get('run') || ''; }

/* Prompt and settings to begin with, as text: those of the tab's draft for this address, or else of a link; or null. */
function startText() {
  let draft = null;
  try { draft = JSON.parse(sessionStorage.getItem(DRAFT)); } catch { /* none that can be read */ }
  if (draft?.run === namedRun() && draft.hash === location.hash) return draft.start;
  return new URLSearchParams(location.hash.slice(1)).get('start');
}

function keepDraft(value) {
  try {
    sessionStorage.setItem(DRAFT, JSON.stringify({ run: namedRun(), hash: location.hash, start: JSON.stringify(value) }));
  } catch { sessionStorage.removeItem(DRAFT); } // too long for the browser
}

function dropDraft() { sessionStorage.removeItem(DRAFT); }
