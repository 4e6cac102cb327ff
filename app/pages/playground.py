"""The playground: prompt, settings, text as it comes, inspector."""

import gradio as gr

from app.handlers import Handlers
from app.handlers.watching import EXAMPLE_PROMPT
from app.pages.controls import (
    chat_component,
    compare_link,
    guide_component,
    json_fold,
    plain,
    prompt_box,
    run_bar,
    settings_component,
    steps,
    strip_component,
)
from app.pages.examine import examine_folds
from app.pages.frame import PRIVATE, SHORT, STREAM, Frame, frame, keep_status
from app.render.inspector import EMPTY
from app.theme import script

# What `app.render.start.Start` reads.
_COMPARED_JS = """(prompt, chat, form, budget, checkpoint) => ({
  ...(chat?.mode === 'chat' ? { messages: chat.messages, checkpoint } : { prompt }), form, budget,
})"""
_LINK_JS = f"() => {{ {script('draft.js')}\nreturn [namedRun(), startText()]; }}"


def playground(demo: gr.Blocks, handlers: Handlers) -> None:
    """Lay the page out inside the current Blocks context and connect it."""
    top = frame("Playground")
    with gr.Row(elem_id="dl-main"):
        with gr.Column(elem_id="dl-left", scale=6, min_width=320):
            chat = chat_component()
            prompt, count = prompt_box(EXAMPLE_PROMPT)
            template = plain("", "dl-template")
            with gr.Row(elem_id="dl-runbar"):
                run, stop, budget = run_bar("Run")
                compare = compare_link()
            strip = strip_component()
            facts = plain("", "dl-facts")
            examine_folds(handlers)
            guide_component()
        with gr.Column(elem_id="dl-right", scale=5, min_width=320):
            settings = settings_component()
            json_settings = json_fold()
            steps()
            inspector = plain(EMPTY, "dl-inspector")
    run_id = gr.Textbox(visible="hidden", elem_id="dl-run-id", label="run id")
    link = [gr.Textbox(visible="hidden", label=f"asked {name}") for name in ("run", "start")]

    watched = [strip, facts, inspector, run_id, top.alert, run, stop]
    opened = [prompt, chat, settings, budget, *watched]
    run.click(handlers.playground.run, [prompt, chat, settings, budget, top.checkpoint], watched, **STREAM)
    demo.load(handlers.playground.open_link, link, opened, js=_LINK_JS, **STREAM)
    strip.submit(handlers.playground.branch, [budget], opened, **STREAM)
    stop.click(handlers.playground.stop, [run_id], [top.alert, stop], **SHORT)
    strip.select(handlers.playground.inspect, [top.checkpoint], [inspector], trigger_mode="multiple", **SHORT)
    # Gradio's client does what one event causes in turn, each after the answer to the one before: this asks nobody.
    gr.on(
        [demo.load, prompt.change, chat.change, chat.input, settings.change, budget.change, top.checkpoint.change],
        None,
        [prompt, chat, settings, budget, top.checkpoint],
        [compare],
        js=_COMPARED_JS,
        trigger_mode="multiple",
        **PRIVATE,
    )
    gr.on(
        [demo.load, prompt.change, chat.change, chat.input, settings.change, top.checkpoint.change],
        handlers.playground.read_prompt,
        [prompt, chat, settings, top.checkpoint],
        [count, template],
        trigger_mode="always_last",
        **SHORT,
    )
    fold, text, read, apply = json_settings
    gr.on([fold.expand, read.click], handlers.playground.settings_json, [settings, budget], [text, top.alert], **SHORT)
    apply.click(handlers.playground.apply_json, [text], [settings, budget, top.alert], **SHORT)
    keep_status(demo, top, handlers)


def connect_count(
    demo: gr.Blocks, handlers: Handlers, top: Frame, box: tuple[gr.Textbox, gr.HTML], settings: gr.HTML
) -> None:
    """Keep the token count under the prompt true while the person types."""
    prompt, count = box
    gr.on(
        [demo.load, prompt.change, top.checkpoint.change],
        handlers.frame.count_tokens,
        [prompt, settings, top.checkpoint],
        [count],
        trigger_mode="always_last",
        **SHORT,
    )
