/* The token strip: running text whose every token can be chosen and is coloured by one of the scales.
   A strip draws what is new and nothing twice; every text enters as textContent. */

const LOG2E = Math.LOG2E;

function measureOf(token, measure) {
  if (measure === 'raw') return Math.exp(token[1]);
  if (measure === 'processed') return token[2] === null ? 0 : Math.exp(token[2]);
  if (measure === 'surprisal') return -token[1] * LOG2E;
  if (measure === 'entropy') return token[3] * LOG2E;
  return token[4];
}

function shadeOf(token, scale) {
  const value = measureOf(token, scale.measure);
  const isProbability = scale.measure === 'raw' || scale.measure === 'processed';
  for (let i = 0; i < scale.edges.length; i++) {
    if (isProbability ? value >= scale.edges[i] : value <= scale.edges[i]) return i;
  }
  return scale.edges.length;
}

function percentWords(logprob) {
  if (logprob === null) return 'impossible';
  const value = 100 * Math.exp(logprob);
  return value >= 1 ? value.toFixed(1) + ' %' : value >= 0.01 ? value.toFixed(2) + ' %' : '<0.01 %';
}

function spelledWords(text) {
  return '"' + text.replace(/\n/g, '\\n').replace(/\t/g, '\\t').replace(/\r/g, '\\r') + '"';
}

function tokenWords(token, index) {
  return `token ${index} ${spelledWords(token[6] || token[0])}   raw ${percentWords(token[1])}   ` +
    `processed ${percentWords(token[2])}   rank ${token[4]}   entropy ${(token[3] * LOG2E).toFixed(2)} bits`;
}

class TokenStrip {
  constructor(root, onSelect) {
    this.root = root;
    this.flow = new TextFlow(root);
    this.onSelect = onSelect;
    this.scale = null;
    this.clear('');
    root.addEventListener('click', (event) => {
      const span = event.target.closest('[data-i]');
      if (span) this.select(Number(span.dataset.i));
    });
    root.addEventListener('keydown', (event) => {
      const last = this.tokens.length - 1;
      const to = { ArrowRight: this.selected + 1, ArrowLeft: this.selected - 1, Home: 0, End: last }[event.key];
      if (to === undefined || last < 0) return;
      event.preventDefault();
      this.select(Math.max(0, Math.min(to, last)));
    });
    root.addEventListener('copy', (event) => {
      // As a browser copies them, two blocks have a line break between them that the text has not.
      event.preventDefault();
      event.clipboardData.setData('text/plain', getSelection().getRangeAt(0).cloneContents().textContent);
    });
  }

  clear(run) {
    this.run = run;
    this.tokens = [];
    this.spans = []; // by index: a look-up in the page would read every token before it
    this.drawn = 0;
    this.selected = -1;
    this.tail = '';
    this.mark = -1;
    this.flow.clear();
  }

  /* Shows a view {run, lines, tail}; `lines` only grows while the run is the same. */
  update(view) {
    const lines = view.lines || '';
    if (view.run !== this.run || lines.length < this.drawn) this.clear(view.run);
    if (lines.length > this.drawn) {
      const isAtEnd = this.root.scrollHeight - this.root.scrollTop - this.root.clientHeight < 4;
      for (const line of lines.slice(this.drawn).split('\n')) if (line) this.append(JSON.parse(line));
      this.drawn = lines.length;
      this.flow.settle();
      if (isAtEnd && this.root.scrollHeight > this.root.clientHeight) this.root.scrollTop = this.root.scrollHeight;
      document.querySelector('.dl-steps')?.classList.add('dl-on');
    }
    if (view.tail && view.tail !== this.tail) {
      this.tail = view.tail;
      this.flow.append(view.tail);
    }
  }

  append(token) {
    this.flow.append(this.spanFor(token));
    if (token[0].endsWith('\n') && !token[5]) this.flow.end();
  }

  spanFor(token) {
    const span = document.createElement('span');
    span.dataset.i = this.tokens.length;
    this.tokens.push(token);
    this.spans.push(span);
    const [text, kind, extra] = [token[0], token[5] || 0, token[6] || ''];
    span.className = ['dl-t', 'dl-t dl-chip', 'dl-t dl-chip dl-part', 'dl-t dl-chip dl-withheld', 'dl-t'][kind];
    span.textContent = kind === 0 || kind === 4 ? text : extra;
    if (kind === 0 && /^\s*\n\s*$/.test(text)) {
      span.classList.add('dl-blank'); // nothing to see or to click otherwise; the mark is not part of the text
    }
    if (kind === 4) {
      const rest = document.createElement('s');
      rest.textContent = extra;
      span.append(rest);
    }
    if (this.scale) span.dataset.shade = shadeOf(token, this.scale);
    return span;
  }

  colour(scale) {
    this.scale = scale;
    this.tokens.forEach((token, i) => { this.span(i).dataset.shade = shadeOf(token, scale); });
    this.flow.colour();
  }

  span(index) { return this.spans[index]; }

  select(index) {
    this.highlight(index);
    this.onSelect(index);
  }

  /* To the token before or after the chosen one; stays at either end. */
  step(by) {
    const to = this.selected + by;
    if (to >= 0 && to < this.tokens.length) this.select(to);
  }

  highlight(index) {
    this.span(this.selected)?.removeAttribute('aria-current');
    this.selected = index;
    this.span(index)?.setAttribute('aria-current', 'true');
  }

  /* The first token that is not wholly above the visible part. */
  topToken() {
    let [low, high] = [0, this.tokens.length - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      const span = this.span(middle);
      if (span.offsetTop + span.offsetHeight > this.root.scrollTop) high = middle; else low = middle + 1;
    }
    return low;
  }

  /* Puts a token's line at the top of the visible part. */
  scrollTo(index) {
    const span = this.span(Math.min(index, this.tokens.length - 1));
    if (span) this.root.scrollTop = span.offsetTop;
  }

  markDivergence(index) {
    if (index === this.mark || index === null || index === undefined) return;
    this.mark = index;
    this.span(index)?.classList.add('dl-diverges');
  }
}

/* The switch of scales above the text, its legend, and the line that follows the pointer. */
class ScaleBar {
  constructor(root, scales, onChange) {
    this.root = root;
    this.scales = scales;
    this.onChange = onChange;
    const saved = localStorage.getItem('decodelab.scale');
    this.choose(scales.find((s) => s.name === saved) || scales[0]);
  }

  choose(scale) {
    this.scale = scale;
    localStorage.setItem('decodelab.scale', scale.name);
    this.root.replaceChildren(this.buttons(), this.legend());
    this.onChange(scale);
  }

  buttons() {
    const group = document.createElement('div');
    group.className = 'dl-scales';
    group.setAttribute('role', 'group');
    group.setAttribute('aria-label', 'colour tokens by');
    group.append('colour');
    for (const scale of this.scales) {
      const button = document.createElement('button');
      button.type = 'button';
      button.textContent = scale.name;
      button.title = scale.help;
      button.dataset.scale = scale.name;
      button.setAttribute('aria-pressed', String(scale === this.scale));
      button.addEventListener('click', () => this.choose(scale));
      group.append(button);
    }
    return group;
  }

  legend() {
    const list = document.createElement('ol');
    list.className = 'dl-legend';
    list.title = this.scale.help;
    this.scale.labels.forEach((label, i) => {
      const item = document.createElement('li');
      item.dataset.shade = i;
      item.textContent = label;
      list.append(item);
    });
    return list;
  }
}

/* The buttons beside the inspector, which is another component; `strip()` is the one that they move in. */
function stepButtons(strip) {
  document.addEventListener('click', (event) => {
    const button = event.target.closest?.('[data-step]');
    if (button && element.isConnected) strip()?.step(Number(button.dataset.step));
  });
}

function followPointer(area, strips, hover) {
  area.addEventListener('pointerover', (event) => {
    const span = event.target.closest?.('[data-i]');
    const strip = span && strips().find((s) => s.root.contains(span));
    hover.textContent = strip ? tokenWords(strip.tokens[Number(span.dataset.i)], Number(span.dataset.i)) : '';
  });
  area.addEventListener('pointerleave', () => { hover.textContent = ''; });
}

/* Whether the address has changed. */
function showLink(parameter, id) {
  const here = new URL(location.href);
  if (!id || here.searchParams.get(parameter) === id) return false;
  here.search = here.hash = '';
  here.searchParams.set(parameter, id);
  history.pushState(null, '', here);
  return true;
}

function reloadOnBack() {
  if (window.decodelabBack) return;
  window.decodelabBack = true;
  window.addEventListener('popstate', () => location.reload());
}

/* An error at the top of the page is brought to whoever has scrolled away from it. */
function showAlerts() {
  const place = document.getElementById('dl-alert');
  if (!place || place.dataset.watched) return;
  place.dataset.watched = 'true';
  new MutationObserver(() => {
    if (place.querySelector('.dl-alert-on')) place.scrollIntoView({ block: 'nearest' });
  }).observe(place, { childList: true, subtree: true });
}

function runKeys(runId, stopId) {
  if (window.decodelabKeys) return;
  window.decodelabKeys = true;
  const press = (id) => {
    const button = document.getElementById(id);
    if (button && button.offsetParent !== null && !button.disabled) button.click();
  };
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      document.activeElement?.dispatchEvent(new Event('change', { bubbles: true }));
      setTimeout(() => press(runId), 60);
    } else if (event.key === 'Escape' && !document.querySelector('dialog[open]')) press(stopId);
  });
}
