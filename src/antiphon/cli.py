"""The verbs: nothing but arguments, messages and calls. Heavy rooms are imported by the verb that needs them."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from antiphon.config import UserError

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


@app.command()
def run(study: StudyFile, changes: Changes = NONE, workspace: Space = RUNS) -> None:
    """Do what is not done of a study, then write its report. Ctrl-C stops; the same command goes on."""
    from antiphon.files import lock
    from antiphon.study import drive
    from antiphon.study.study import read
    from antiphon.study.workspace import Workspace

    space = Workspace(workspace)
    with lock(space.lock, wait=False, holder="another `antiphon run`"):
        raise typer.Exit(drive.run(read(study, changes), space, console, _command()))


@app.command()
def prepare(study: StudyFile, changes: Changes = NONE, workspace: Space = RUNS) -> None:
    """Read and tokenize a study's corpus; `run` does this by itself."""
    from antiphon.study import drive
    from antiphon.study.study import read
    from antiphon.study.workspace import Workspace

    drive.prepare(read(study, changes), Workspace(workspace), console)


@app.command()
def plan(study: StudyFile, changes: Changes = NONE, workspace: Space = RUNS) -> None:
    """Show the tree of segments that a study comes to."""
    from antiphon.study import drive
    from antiphon.study.plan import tree
    from antiphon.study.study import read
    from antiphon.study.workspace import Workspace

    console.print(tree(drive.planned(read(study, changes), Workspace(workspace))), highlight=False, markup=False)


@app.command()
def status(study: StudyFile, changes: Changes = NONE, workspace: Space = RUNS) -> None:
    """Say how far a study is."""
    from antiphon.study import drive
    from antiphon.study.study import read
    from antiphon.study.workspace import Workspace

    drive.status(read(study, changes), Workspace(workspace), console)


@app.command()
def report(study: StudyFile, changes: Changes = NONE, workspace: Space = RUNS) -> None:
    """Write a study's page and tables from what is done so far."""
    from antiphon.study import drive
    from antiphon.study.study import read
    from antiphon.study.workspace import Workspace

    drive.report(read(study, changes), Workspace(workspace), console, _command())


@app.command()
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
    """The console script: a UserError is a message, not a traceback."""
    began = time.monotonic()
    try:
        app(standalone_mode=False)
    except UserError as error:
        Console(stderr=True).print(
            f"[red]error:[/red] {str(error).replace('[', chr(92) + '[')}", highlight=False, soft_wrap=True
        )
        sys.exit(1)
    except OSError as error:
        Console(stderr=True).print(f"[red]error:[/red] {error}", highlight=False, soft_wrap=True)
        sys.exit(1)
    except (KeyboardInterrupt, typer.Abort):
        Console(stderr=True).print(
            f"stopped after {time.monotonic() - began:.0f} s; the same command goes on from here"
        )
        sys.exit(130)
    except typer.Exit as done:
        sys.exit(done.exit_code)
