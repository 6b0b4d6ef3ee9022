"""A study file is closed and typed: a typo is named, at every level, in the file and on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from antiphon.config import UserError
from antiphon.pretrain.schedule import Schedule
from antiphon.study.study import Study, read

GOOD: dict[str, Any] = {
    "name": "tiny",
    "question": "Does it work?",
    "baseline": "mlm",
    "pretrain": {"corpus": "text/", "budget": "40 steps", "model": {"layers": 2}, "batch": {"rows": 8, "length": 64}},
    "axes": {"schedule": {"clm": "clm", "mlm": "mlm(0.4)"}, "seed": [0, 1]},
    "readings": ["25%", "100%"],
    "finetune": {"tasks": ["pocket-code"], "learning_rates": [1e-4, 1e-3], "seeds": [0, 1, 2], "steps": 50},
    "machine": {"workers": 1},
}


def write(folder: Path, values: Any) -> Path:
    path = folder / "study.yaml"
    path.write_text(values if isinstance(values, str) else yaml.safe_dump(values), encoding="utf-8")
    return path


def changed(values: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """A copy with one value, at a place with dots, changed or added."""
    head, _, rest = key.partition(".")
    return {**values, head: changed(values.get(head, {}), rest, value) if rest else value}


def test_a_study_reads(tmp_path: Path) -> None:
    study = read(write(tmp_path, GOOD))
    assert study == Study.read(GOOD)
    assert list(study.axes.schedule) == ["clm", "mlm"]
    assert [str(reading) for reading in study.readings] == ["25%", "100%"]
    assert study.finetune.steps == 50


def test_every_combination_is_a_run(tmp_path: Path) -> None:
    runs = read(write(tmp_path, GOOD)).runs()
    assert list(runs) == [("clm", 0), ("clm", 1), ("mlm", 0), ("mlm", 1)]
    assert runs["mlm", 1].seed == 1
    assert runs["mlm", 1].schedule == Schedule.parse("mlm(0.4)")
    assert {str(run.batch.rows) for run in runs.values()} == {"8"}


def test_a_study_survives_its_own_json(tmp_path: Path) -> None:
    study = read(write(tmp_path, GOOD))
    assert Study.read(study.model_dump(mode="json")) == study


# Numbers and keys in YAML


@pytest.mark.parametrize("text", ["1e-3", "1E-3", "1.0e-3", ".001", "0.001", "+1e-3"])
def test_a_number_is_a_number_however_it_is_written(tmp_path: Path, text: str) -> None:
    lines = yaml.safe_dump(changed(GOOD, "finetune.learning_rates", ["RATE"])).replace("RATE", text)
    assert read(write(tmp_path, lines)).finetune.learning_rates == (0.001,)
    assert read(write(tmp_path, GOOD), [f"finetune.learning_rates=[{text}]"]).finetune.learning_rates == (0.001,)


@pytest.mark.parametrize("text", ["400k tokens", "1e", "e3", "1e-3x", ".", "1-3"])
def test_what_is_no_number_stays_a_text(tmp_path: Path, text: str) -> None:
    lines = yaml.safe_dump(changed(GOOD, "question", "QUESTION")).replace("QUESTION", text)
    assert read(write(tmp_path, lines)).question == text


def test_whole_numbers_stay_whole(tmp_path: Path) -> None:
    assert read(write(tmp_path, GOOD), ["axes.seed=[3, 10]"]).axes.seed == (3, 10)


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        ("name: a\nbaseline: b\nname: c\n", "name", 1),
        ("name: a\naxes:\n  seed: [0]\n  schedule:\n    clm: clm\n    clm: mlm(0.4)\n", "clm", 5),
    ],
)
def test_a_key_that_is_given_twice_is_an_error(tmp_path: Path, text: str, key: str, line: int) -> None:
    with pytest.raises(UserError, match=f"study.yaml: not valid YAML: line {line}: the key '{key}' is given twice"):
        read(write(tmp_path, text))


# Unknown keys, at every level

TYPOS = [
    ("basline", "", "baseline"),
    ("axes.shedule", "axes", "schedule"),
    ("finetune.learning_rate", "finetune", "learning_rates"),
    ("machine.worker", "machine", "workers"),
    ("pretrain.bugdet", "pretrain", "budget"),
    ("pretrain.model.layer", "pretrain: model", "layers"),
    ("pretrain.batch.lenght", "pretrain: batch", "length"),
    ("pretrain.corpus.text_feild", "pretrain: corpus", "text_field"),
    ("pretrain.tokenizer.vocab", "pretrain: tokenizer", "vocabulary"),
    ("pretrain.learning_rate.peek", "pretrain: learning_rate", "peak"),
    ("pretrain.optimizer.weight_decy", "pretrain: optimizer", "weight_decay"),
    ("pretrain.validation.point", "pretrain: validation", "points"),
]


@pytest.mark.parametrize(("key", "place", "real"), TYPOS)
@pytest.mark.parametrize("where", ["in the file", "with --set"])
def test_an_unknown_key_is_an_error_that_names_the_nearest_real_one(
    tmp_path: Path, key: str, place: str, real: str, where: str
) -> None:
    values = changed(GOOD, "pretrain.corpus", {"path": "text/"})
    in_file = where == "in the file"
    path = write(tmp_path, changed(values, key, 1) if in_file else values)
    with pytest.raises(UserError) as caught:
        read(path, [] if in_file else [f"{key}=1"])
    message = str(caught.value)
    assert f"unknown key '{key.split('.')[-1]}'; did you mean '{real}'?" in message
    assert place in message


# Overrides


def test_an_override_changes_one_value(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    study = read(path, ["pretrain.model.layers=3", "pretrain.corpus=other/", "finetune.tasks=[]", "machine.threads=2"])
    assert study == Study.read(
        {
            **GOOD,
            "pretrain": {**GOOD["pretrain"], "model": {"layers": 3}, "corpus": "other/"},
            "finetune": {**GOOD["finetune"], "tasks": []},
            "machine": {"workers": 1, "threads": 2},
        }
    )


def test_an_override_inside_a_value_given_as_a_plain_string_keeps_the_string(tmp_path: Path) -> None:
    study = read(write(tmp_path, GOOD), ["pretrain.corpus.text_field=content", "pretrain.tokenizer=tok/"])
    run = study.runs()["clm", 0]
    assert (run.corpus[0].path, run.corpus[0].text_field) == ("text/", "content")
    assert run.tokenizer.path == "tok/"


def test_an_override_can_make_a_section(tmp_path: Path) -> None:
    assert read(write(tmp_path, GOOD), ["pretrain.optimizer.clip=0.5"]).runs()["clm", 0].optimizer.clip == 0.5


def test_overrides_come_in_order(tmp_path: Path) -> None:
    assert read(write(tmp_path, GOOD), ["name=a", "name=b"]).name == "b"


@pytest.mark.parametrize("change", ["pretrain.corpus", "=3", "name: x"])
def test_an_override_without_key_or_value_is_an_error(tmp_path: Path, change: str) -> None:
    with pytest.raises(UserError, match="write KEY=VALUE"):
        read(write(tmp_path, GOOD), [change])


def test_an_override_that_is_not_yaml_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the value is not valid YAML"):
        read(write(tmp_path, GOOD), ["axes.seed=[0"])


@pytest.mark.parametrize("change", ["readings.0=50%", "name.x=1", "pretrain.budget.steps=3"])
def test_an_override_inside_something_that_has_no_keys_is_an_error(tmp_path: Path, change: str) -> None:
    with pytest.raises(UserError, match=change.split(".")[0]):
        read(write(tmp_path, GOOD), [change])


# Values that make no sense


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("baseline", "mlmm", "baseline 'mlmm' is not an arm; did you mean 'mlm'?"),
        ("readings", ["50%", "25%", "100%"], "must rise"),
        ("readings", ["2M words", "1M words", "100%"], "must rise"),
        ("readings", ["10", "100%"], "each needs a unit"),
        ("readings", ["10 steps"], "the last reading must be 100%"),
        ("readings", ["50%"], "the last reading must be 100%"),
        ("readings", [], "the last reading must be 100%"),
        ("pretrain.seed", 3, "pretrain.seed varies in this study: give it as axes.seed"),
        ("pretrain.schedule", "clm", "pretrain.schedule varies in this study"),
        ("axes.schedule", {}, "axes.schedule"),
        ("axes.seed", [], "axes.seed"),
        ("axes.seed", [0, 0], "seed [0, 0] names one value twice"),
        ("axes.schedule", {"a": "mlm(40)"}, "axes.schedule.a: a mask ratio lies between 0 and 1, got 40"),
        ("axes.schedule", {"mlm": "25% clm > 70% mlm(0.4)"}, "the percentages add up to 95, not to 100"),
        ("finetune.learning_rates", [0.001, 0.001], "names one value twice"),
        ("finetune.learning_rates", [-1.0], "must all be more than zero"),
        ("finetune.learning_rates", [], "learning_rates"),
        ("name", "a/b", "name"),
        ("name", "../up", "name"),
        ("machine.workers", -1, "machine.workers"),
        ("machine.precision", "half", "machine.precision"),
        ("pretrain.budget", "25%", "is not an amount of its own"),
        ("pretrain.model.width", 30, "does not divide into 4 heads"),
    ],
)
def test_a_value_that_makes_no_sense_is_an_error(tmp_path: Path, key: str, value: Any, message: str) -> None:
    with pytest.raises(UserError) as caught:
        read(write(tmp_path, changed(GOOD, key, value)))
    assert message in str(caught.value)


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing\.yaml: cannot be read \(No such file or directory\)"):
        read(tmp_path / "nothing.yaml")


@pytest.mark.parametrize("text", ["a: [1, 2", "a: b: c", "\tname: x"])
def test_a_file_that_is_not_yaml_is_said(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match=r"study\.yaml: not valid YAML"):
        read(write(tmp_path, text))


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "just words"])
def test_a_file_that_is_no_mapping_is_said(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match="a study file is a mapping"):
        read(write(tmp_path, text))


def test_a_file_that_is_not_utf_8_is_said(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_bytes(b"name: caf\xe9\n")
    with pytest.raises(UserError, match=r"study\.yaml: not valid YAML"):
        read(tmp_path / "study.yaml")
