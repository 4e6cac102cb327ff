/* The way to Compare. The link itself holds prompt and settings, so that it opens in another tab, is kept and sent on;
   they stand behind the #, which no server is asked for. */

const link = element.querySelector('a');
const MAX_CHARACTERS = 1_900_000; // Chromium follows no longer address

function show() {
  const address = `./compare#start=${encodeURIComponent(JSON.stringify(props.value || {}))}`;
  const isTooLong = address.length > MAX_CHARACTERS;
  link.href = isTooLong ? './compare' : address;
  link.title = isTooLong
    ? 'The prompt is too long for a link: Compare opens without it'
    : 'Compare opens with this prompt and these settings as its first arm';
}

/* What the page fills in by itself is no draft. */
let isTouched = false;
for (const gesture of ['input', 'click']) document.addEventListener(gesture, () => { isTouched = true; }, { capture: true });

watch('value', () => {
  show();
  if (isTouched) keepDraft(props.value);
});
show();
