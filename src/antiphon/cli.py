"""The verbs: nothing but arguments, messages and calls. Heavy rooms are imported by the verb that needs them."""

from __future__ import annotations

import functools
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from antiphon.config import UserError
from antiphon.processes import launched

app = typer.Typer(
    help="Pretrain text encoders with any schedule of causal and masked language modelling.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console()

StudyFile = Annotated[Path, typer.Argument(help="A study file, such as studies/pocket.yaml.")]
Changes = Annotated[
    list[str], typer.Option("--set", help="Override a value: KEY=VALUE, as in pretrain.corpus=mytext/.")
]
Space = Annotated[Path, typer.Option("--workspace", help="Folder for everything that is computed.")]
NONE: list[str] = []
RUNS = Path("runs")


def _spoken(verb: Callable[..., None]) -> Callable[..., None]:
    """A verb whose mistakes are messages, not tracebacks: 1 for what the user can mend, 130 for a stop."""

    @functools.wraps(verb)
    def wrapped(*arguments: Any, **options: Any) -> None:
        began = time.monotonic()
        try:
            verb(*arguments, **options)
        except (UserError, OSError) as error:
            Console(stderr=True).print(f"[red]error:[/red] {escape(str(error))}", highlight=False, soft_wrap=True)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            seconds = time.monotonic() - began
            Console(stderr=True).print(f"stopped after {seconds:.0f} s; the same command goes on from here")
            raise typer.Exit(130) from None

    return wrapped


def _left_at_once(verb: Callable[..., None]) -> Callable[..., None]:
    """A verb that several processes may do together: those of a launcher end without Python's own shutdown.

    Threads of the exchange between them that still run would abort it.
    """

    @functools.wraps(verb)
    def wrapped(*arguments: Any, **options: Any) -> None:
        if not launched():
            verb(*arguments, **options)
            return
        try:
            verb(*arguments, **options)
        except typer.Exit as ended:
            _leave(ended.exit_code)
        except SystemExit:  # another process has told why
            _leave(1)
        except BaseException:
            traceback.print_exc()
            _leave(1)
        _leave(0)

    return wrapped


def _leave(code: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@app.command()
@_spoken
def run(study: StudyFile, changes: Changes = NONE, workspace: Space = RUNS) -> None:
    """Do what is not done of a study, then write its report. Ctrl-C stops; the same command goes on."""
    from antiphon.files import lock
    from antiphon.study import drive
    from antiphon.study.study import read
    from antiphon.study.workspace import Workspace

    wanted, space = read(study, changes), Workspace(workspace)
    with lock(space.lock, wait=False, holder="another `antiphon`"):
        raise typer.Exit(drive.run(wanted, space, console, _command()))


@app.command()
@_spoken
def prepare(study: StudyFile, changes: Changes = NONE, workspace: Space = RUNS) -> None:
    """Read and tokenize a study's corpus; `run` does this by itself."""
    from antiphon.files import lock
    from antiphon.study import drive
    from antiphon.study.study import read
    from antiphon.study.workspace import Workspace

    wanted, space = read(study, changes), Workspace(workspace)
    with lock(space.lock, wait=False, holder="another `antiphon`"):
        drive.prepare(wanted, space, console)


@app.command()
@_left_at_once
@_spoken
def pretrain(
    study: StudyFile,
    name: Annotated[str, typer.Argument(metavar="RUN", help="ARM/SEED, or ARM for its first seed: mlm/1.")],
    changes: Changes = NONE,
    workspace: Space = RUNS,
) -> None:
    """Train one run of a study and score nothing. Under torchrun, every process that it starts takes part."""
    from antiphon.study import single
    from antiphon.study.workspace import Workspace

    verb = single.pretrain_as_a_rank if launched() else single.pretrain
    raise typer.Exit(verb(study, changes, name, Workspace(workspace), console))


@app.command()
@_spoken
def plan(study: StudyFile, changes: Changes = NONE, workspace: Space = RUNS) -> None:
    """Show the tree of segments that a study comes to."""
    from antiphon.study import drive
    from antiphon.study.plan import tree
    from antiphon.study.study import read
    from antiphon.study.workspace import Workspace

    console.print(tree(drive.planned(read(study, changes), Workspace(workspace))), highlight=False, markup=False)


@app.command()
@_spoken
def status(study: StudyFile, changes: Changes = NONE, workspace: Space = RUNS) -> None:
    """Say how far a study is."""
    from antiphon.study import drive
    from antiphon.study.study import read
    from antiphon.study.workspace import Workspace

    drive.status(read(study, changes), Workspace(workspace), console)


@app.command()
@_spoken
def report(study: StudyFile, changes: Changes = NONE, workspace: Space = RUNS) -> None:
    """Write a study's page and tables from what is done so far."""
    from antiphon.study import drive
    from antiphon.study.study import read
    from antiphon.study.workspace import Workspace

    drive.report(read(study, changes), Workspace(workspace), console, _command())


@app.command()
@_spoken
def export(
    name: Annotated[
        str, typer.Argument(metavar="RUN", help="ARM, or ARM/SEED, or ARM/SEED@READING: mlm, mlm/1, mlm/1@20%.")
    ],
    target: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder for the encoder.")],
    study: Annotated[Path, typer.Option("--study", help="The study file the run belongs to.")] = Path(
        "studies/pocket.yaml"
    ),
    changes: Changes = NONE,
    workspace: Space = RUNS,
) -> None:
    """Write a run's checkpoint as an encoder that AutoModel and AutoModelForMaskedLM open without remote code."""
    from antiphon.study import drive
    from antiphon.study.study import read
    from antiphon.study.workspace import Workspace

    drive.export(read(study, changes), name, target, Workspace(workspace), console)


def _command() -> str:
    return " ".join(["antiphon", *sys.argv[1:]])


def main() -> None:
    """The console script."""
    app()
