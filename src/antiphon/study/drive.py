"""What the verbs do, one function each; words for the reader, calls into the rooms below."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console

from antiphon.config import UserError, nearest
from antiphon.data import docstrings
from antiphon.data import prepare as preparation
from antiphon.data.corpus import POCKET
from antiphon.data.supply import supply
from antiphon.files import write_json, write_text
from antiphon.finetune import catalog
from antiphon.finetune.checks import check
from antiphon.finetune.revision import revision
from antiphon.pretrain.config import Pretrain
from antiphon.study import launch
from antiphon.study.console import LiveConsole, clock
from antiphon.study.jobs import Job, jobs, missing
from antiphon.study.plan import Plan, Reading
from antiphon.study.plan import plan as make_plan
from antiphon.study.study import Study
from antiphon.study.tell import settings, tell
from antiphon.study.workspace import Workspace

TOLD = "told.yaml"
"""What the report on disk tells of: the settings, and how many jobs were missing."""

SECONDS_BETWEEN_NOTES = 5.0


def run(study: Study, space: Workspace, console: Console, command: str) -> int:
    """Do everything a study still lacks, then report. The exit code is 1 when a job failed."""
    began = time.monotonic()
    space.sweep()
    prepare(study, space, console)
    found = planned(study, space)
    every = jobs(found, space)
    todo = missing(every)
    _say_what_is_left(console, study, space, every, todo)
    failures: list[tuple[Any, str]] = []
    if todo:
        count = min(launch.workers(study.machine), len(todo))
        with LiveConsole(console, todo, len(every) - len(todo), count) as watcher:
            failures = launch.launch(todo, study.machine, watcher)
        console.print(f"{len(todo) - len(failures)} jobs done in {clock(time.monotonic() - began)}", highlight=False)
    if todo or not _is_told(study, space):
        report(study, space, console, command)
    else:
        say(console, f"nothing to do; the report is {space.report(study.name) / 'index.html'}")
    if failures:
        console.print(f"[red]{len(failures)} jobs failed or could not start[/red]; the same command tries them again")
    return 1 if failures else 0


def _is_told(study: Study, space: Workspace) -> bool:
    """Whether the report on disk is of this study, with nothing missing."""
    folder = space.report(study.name)
    files = (folder / TOLD, folder / "index.html")
    return all(path.is_file() for path in files) and files[0].read_text(encoding="utf-8") == _telling(study, 0)


def _telling(study: Study, missing: int) -> str:
    return f"# jobs missing: {missing}\n{settings(study)}"


def say(console: Console, text: str) -> None:
    """A line as it is: no markup, no colours, no wrapping."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def prepare(study: Study, space: Workspace, console: Console) -> None:
    """Prepare the corpus of a study and read its tasks, unless that is done.

    Raises:
        UserError: a task is unknown, its data are missing or wrong, or the corpus is unusable; nothing is trained then.
    """
    # Names and files first: that takes no time.
    identities = revision(study.finetune.tasks, study.finetune.data, space.root)
    prepare_corpus(study, space, console)
    unread = {name: mark for name, mark in identities.items() if not space.task(mark).is_file()}
    if catalog.reads_passages(list(unread)):
        if all(corpus.path != POCKET for corpus in next(iter(study.runs().values())).corpus):
            say(console, "reading the docstrings of the installed libraries for the pocket tasks")
        # Here once, rather than in every worker at the same time.
        docstrings.load(space.passages, launch.workers(study.machine))
    for name, identity in unread.items():
        task = catalog.task(name)
        dataset = task.read(Path(study.finetune.data) if study.finetune.data else None, space.root)
        check(task, dataset)
        sizes = {split.value: len(examples) for split, examples in dataset.examples.items()}
        say(console, f"task {name}: " + ", ".join(f"{size:,} {split}" for split, size in sizes.items()) + " examples")
        write_json(space.task(identity), {"task": name, **sizes})


def corpus_folder(study: Study, space: Workspace) -> Path:
    """Where the corpus of a study lies, once it is prepared."""
    pretrain = next(iter(study.runs().values()))
    return space.corpus(preparation.identity(pretrain.corpus, pretrain.tokenizer, space.root))


def prepare_corpus(study: Study, space: Workspace, console: Console) -> None:
    """Prepare the corpus of a study, unless that is done.

    Raises:
        UserError: the corpus is unusable.
    """
    pretrain, folder = next(iter(study.runs().values())), corpus_folder(study, space)
    if folder.is_dir():
        return
    say(console, f"preparing corpus {_named(pretrain)}")
    last = [time.monotonic()]

    def note(facts: dict[str, Any]) -> None:
        if time.monotonic() - last[0] > SECONDS_BETWEEN_NOTES:
            say(console, f"  {facts['note']}")
            last[0] = time.monotonic()

    workers = launch.workers(study.machine)
    preparation.prepare(pretrain.corpus, pretrain.tokenizer, folder, space.root, workers, note)
    facts = preparation.facts(folder)
    for split in preparation.SPLITS:
        part = facts[split]
        left_out = f"; {part['empty']} empty documents left out" if part["empty"] else ""
        counted = f"{part['words']:,} words, {part['tokens']:,} tokens, {part['documents']:,} documents"
        say(console, f"  {split}: {counted}{left_out}")


def _named(pretrain: Pretrain) -> str:
    return ", ".join(repr(corpus.path) for corpus in pretrain.corpus)


def planned(study: Study, space: Workspace) -> Plan:
    """The plan of a study whose corpus is prepared."""
    found, _ = _planned(study, space)
    return found


def report(study: Study, space: Workspace, console: Console, command: str) -> None:
    """Write the page and the tables from what is done so far, and print the table."""
    from antiphon.report import page, tables
    from antiphon.report.findings import find

    found, facts = _planned(study, space)
    story = tell(found, space, facts, command)
    path = page.write(story, space.report(study.name))
    write_text(space.report(study.name) / TOLD, _telling(study, story.missing))
    if story.observations:
        console.print(tables.terminal(find(story)))
    say(console, f"report: {path}")


def status(study: Study, space: Workspace, console: Console) -> None:
    """Say what is done and what is not."""
    if not corpus_folder(study, space).is_dir():
        corpus = _named(next(iter(study.runs().values())))
        say(console, f"study {study.name}: not begun; its corpus {corpus} is not prepared")
        return
    found = planned(study, space)
    every = jobs(found, space)
    todo = missing(every)
    _say_what_is_left(console, study, space, every, todo)
    for job in every:
        if job.is_pretraining:
            say(console, f"  {'done   ' if job.done.exists() else 'to do  '} {job.title}")


def export(study: Study, name: str, target: Path, space: Workspace, console: Console) -> None:
    """Write the checkpoint of one run as a public encoder."""
    from antiphon.data.prepare import Prepared

    found = planned(study, space)
    reading = _reading(found, name)
    state = space.state(reading.state)
    if not state.is_dir():
        raise UserError(f"run {name!r}: not trained yet. Run the study first: antiphon run FILE.")
    from antiphon.model.export import export as write
    from antiphon.study.card import card

    prepared = Prepared.open(space.corpus(found.corpus))
    encoder = prepared.encoder
    specials = {"pad": encoder.pad, "bos": encoder.bos, "eos": encoder.eos, "mask": encoder.mask}
    write(state, target, prepared.tokenizer_files, specials, card(found, reading))
    say(console, f"{target}: an encoder for AutoModel and AutoModelForMaskedLM; its logits are checked")


def _reading(found: Plan, name: str) -> Reading:
    wanted, _, label = name.partition("@")
    wants = (*found.study.named(wanted), label or "100%")
    for reading in found.readings:
        if (reading.arm, reading.seed, reading.label) == wants:
            return reading
    labels = list(dict.fromkeys(reading.label for reading in found.readings))
    raise UserError(f"run {name!r}: no reading {label!r}; {nearest(label, labels)}. Write ARM/SEED@READING.")


def _planned(study: Study, space: Workspace) -> tuple[Plan, dict[str, Any]]:
    pretrain = next(iter(study.runs().values()))
    folder = corpus_folder(study, space)
    if not folder.is_dir():
        raise UserError(
            f"the corpus {_named(pretrain)} is not prepared: run `antiphon prepare STUDY` first, "
            "with the same --set and --workspace."
        )
    facts = preparation.facts(folder)
    data = revision(study.finetune.tasks, study.finetune.data, space.root)
    held = supply(folder, pretrain.weights, pretrain.batch.packing, pretrain.batch.block)
    return make_plan(study, folder.name, int(facts["vocabulary"]), held, data), facts


def _say_what_is_left(console: Console, study: Study, space: Workspace, every: list[Job], todo: list[Job]) -> None:
    done = len(every) - len(todo)
    if not todo:
        say(console, f"study {study.name}: all {len(every)} jobs are done")
        return
    if done:
        say(console, f"study {study.name}: {done} of {len(every)} jobs are done and skipped")
    else:
        say(console, f"study {study.name}: {study.question}".rstrip(": "))
        if study.cost:
            say(console, f"cost: {study.cost}")
    for job in todo:
        if step := saved_step(space, job):
            say(console, f"  {job.title} goes on from step {step}")
    kinds = Counter(job.is_pretraining for job in todo)
    say(console, f"to do: {kinds[True]} pretraining segments, {kinds[False]} fine-tunings")


def saved_step(space: Workspace, job: Job) -> int:
    """The step at which an unfinished pretraining was last saved; 0 if it was not."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in space.partial(job.id).glob("[!.]*/run.json")]
    return max((facts["step"] for facts in found), default=0)
