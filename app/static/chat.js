/* The prompt as a completion or as a chat: messages as rows. The value is {mode, messages}; texts are values of fields. */

const ROLES = ['system', 'user', 'assistant'];
const list = element.querySelector('.dl-messages');
const foot = element.querySelector('.dl-messages-foot');
let state = { mode: 'completion', messages: [] };

function promptField() { return document.querySelector('#dl-prompt textarea'); }

function publish() {
  props.value = { mode: state.mode, messages: state.messages.map((message) => ({ ...message })) };
  trigger('input', {});
}

function grow(field) {
  field.style.height = 'auto';
  if (field.scrollHeight) field.style.height = `${Math.min(field.scrollHeight + 2, 320)}px`;
}

function button(words, action, label) {
  const node = document.createElement('button');
  node.type = 'button';
  node.className = 'dl-link';
  node.dataset.do = action;
  node.textContent = words;
  node.setAttribute('aria-label', label);
  return node;
}

function rowFor(message, index) {
  const row = document.createElement('li');
  row.dataset.index = index;
  const role = document.createElement('select');
  role.dataset.input = '';
  role.setAttribute('aria-label', `role of message ${index + 1}`);
  for (const name of ROLES) role.append(new Option(name, name, false, name === message.role));
  const content = document.createElement('textarea');
  content.rows = 1;
  content.value = message.content;
  content.placeholder = 'what the ' + message.role + ' says';
  content.setAttribute('aria-label', `message ${index + 1}`);
  row.append(role, content, button('↑', 'up', `move message ${index + 1} up`),
    button('remove', 'remove', `remove message ${index + 1}`));
  return row;
}

function show() {
  const isChat = state.mode === 'chat';
  element.querySelectorAll('[data-mode]').forEach((node) => {
    const is = node.dataset.mode === state.mode;
    node.setAttribute('aria-checked', String(is));
    node.tabIndex = is ? 0 : -1;
  });
  document.getElementById('dl-prompt')?.classList.toggle('dl-away', isChat);
  list.hidden = foot.hidden = !isChat;
  list.replaceChildren(...state.messages.map(rowFor));
  list.querySelectorAll('textarea').forEach(grow);
}

function choose(mode) {
  if (mode === state.mode) return;
  state.mode = mode;
  if (mode === 'chat' && !state.messages.length) {
    state.messages = [{ role: 'user', content: promptField()?.value || '' }];
  }
  show();
  publish();
}

function edited(row) { return state.messages[Number(row.dataset.index)]; }

list.addEventListener('input', (event) => {
  const message = edited(event.target.closest('li'));
  if (event.target.matches('textarea')) { message.content = event.target.value; grow(event.target); }
  else { message.role = event.target.value; }
  publish();
});

element.addEventListener('click', (event) => {
  const node = event.target;
  if (node.matches('[data-mode]')) { choose(node.dataset.mode); return; }
  if (node.matches('[data-add-message]')) {
    const last = state.messages[state.messages.length - 1];
    state.messages.push({ role: last && last.role === 'user' ? 'assistant' : 'user', content: '' });
  } else if (node.matches('[data-do]')) {
    const index = Number(node.closest('li').dataset.index);
    const [message] = state.messages.splice(index, 1);
    if (node.dataset.do === 'up') state.messages.splice(Math.max(0, index - 1), 0, message);
  } else return;
  show();
  publish();
  list.querySelector('li:last-child textarea')?.focus();
});

element.querySelector('.dl-modes').addEventListener('keydown', (event) => {
  if (!['ArrowLeft', 'ArrowRight', 'ArrowUp', 'ArrowDown'].includes(event.key)) return;
  event.preventDefault();
  choose(state.mode === 'chat' ? 'completion' : 'chat');
  element.querySelector('[aria-checked=true]').focus();
});

/* The rendered template comes anew with every letter; a fold that was opened stays open. */
const template = document.getElementById('dl-template');
let isUnfolded = false;
template?.addEventListener('toggle', (event) => { isUnfolded = event.target.open; }, true);
if (template) {
  new MutationObserver(() => {
    const fold = template.querySelector('details');
    if (fold && fold.open !== isUnfolded) fold.open = isUnfolded;
  }).observe(template, { childList: true, subtree: true });
}

function take() {
  const value = props.value || {};
  const messages = value.messages || [];
  if (value.mode === state.mode && JSON.stringify(messages) === JSON.stringify(state.messages)) return;
  state = { mode: value.mode === 'chat' ? 'chat' : 'completion', messages: messages.map((m) => ({ ...m })) };
  show();
}

watch('value', take);
take();
show();
