/* Star and title of the comparison on the page. Each is saved as soon as it is changed; the history shows both. */

const line = element.querySelector('.dl-kept');
const star = element.querySelector('[data-star]');
const title = element.querySelector('input');
const said = element.querySelector('[role=status]');
let kept = {}; // {comparison, title, is_starred}, as they are saved

function show() {
  kept = { ...(props.value || {}) };
  line.hidden = !kept.comparison;
  star.setAttribute('aria-pressed', String(Boolean(kept.is_starred)));
  title.value = kept.title || '';
  said.textContent = '';
}

/* What is saved, or null where it was refused or nobody answered, which is said then. */
async function save(name, question) {
  const { comparison } = kept;
  let answer;
  try {
    answer = await server[name]({ ...question, comparison, comparisons: [comparison] });
  } catch (error) {
    answer = { error: 'Not saved: the page does not get an answer. Try again.' };
  }
  if (comparison !== kept.comparison) return null; // another one is on the page by now
  said.textContent = answer.error || 'saved';
  return answer.error ? null : answer;
}

async function name() {
  const asked = title.value;
  if (!kept.comparison || asked.trim() === kept.title) return;
  const answer = await save('describe', { title: asked });
  if (!answer) return;
  kept.title = answer.title;
  if (title.value === asked) title.value = answer.title;
}

star.addEventListener('click', async () => {
  const answer = await save('star', { is_starred: !kept.is_starred });
  if (!answer) return;
  kept.is_starred = answer.is_starred;
  star.setAttribute('aria-pressed', String(kept.is_starred));
});
title.addEventListener('change', name);
title.addEventListener('input', () => { said.textContent = ''; });
title.addEventListener('keydown', (event) => {
  if (event.key === 'Enter' && !event.ctrlKey && !event.metaKey) name();
  if (event.key !== 'Escape') return;
  event.stopPropagation(); // which would stop the runs
  title.value = kept.title;
  title.blur();
});

watch('value', show);
show();
