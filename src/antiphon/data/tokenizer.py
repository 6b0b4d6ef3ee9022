"""Tokenizers: train a byte-level BPE on the corpus, or bring one.

The contract: an encoded document is [BOS] tokens [EOS]. Text never produces a special token, even where it spells one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, model_validator

from antiphon.config import Config, UserError
from antiphon.data import words
from antiphon.data.word_cache import WordCache, word_cache
from antiphon.files import checksum

PAD, BOS, EOS, MASK = "[PAD]", "[BOS]", "[EOS]", "[MASK]"
FILES = ("tokenizer.json", "tokenizer_config.json")


class Tokenizer(Config):
    """Which tokenizer to use. A plain string in a study file means `path`.

    Attributes:
        path: a folder with tokenizer.json and tokenizer_config.json; empty to train one on the corpus.
        vocabulary: size of a trained vocabulary, specials included.
        train_characters: a trained tokenizer reads this much text from the beginning of the corpus.
    """

    path: str = ""
    vocabulary: int = Field(default=8192, ge=300)
    train_characters: int = Field(default=20_000_000, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _from_path(cls, data: Any) -> Any:
        return {"path": data} if isinstance(data, str) else data


def revision(tokenizer: Tokenizer) -> Any:
    """What identifies the tokenizer: its settings, or the checksum of the files brought."""
    if not tokenizer.path:
        return tokenizer.model_dump(mode="json", exclude={"path"})
    return [checksum(_existing(Path(tokenizer.path).expanduser(), name)) for name in FILES]


def train(tokenizer: Tokenizer, texts: Iterable[str], folder: Path) -> None:
    """Train a byte-level BPE and write it in Hugging Face form.

    Args:
        tokenizer: its size.
        texts: the training text; read up to `train_characters`.
        folder: gets tokenizer.json and tokenizer_config.json.
    """
    from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors, trainers
    from tokenizers import Tokenizer as FastTokenizer

    fast = FastTokenizer(models.BPE())
    # A space before the first word only: one put before each piece of text would come between "[MASK]" and a full stop.
    first = pre_tokenizers.Metaspace(replacement=" ", prepend_scheme="first", split=False)
    pieces = pre_tokenizers.Sequence([first, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    fast.pre_tokenizer = pieces  # pyright: ignore[reportAttributeAccessIssue]
    fast.decoder = decoders.ByteLevel()  # pyright: ignore[reportAttributeAccessIssue]
    # It takes the place of a word with the space before it, as it does in pretraining.
    mask = AddedToken(MASK, lstrip=True, special=True, normalized=False)
    trainer = trainers.BpeTrainer(
        vocab_size=tokenizer.vocabulary,
        special_tokens=[PAD, BOS, EOS, mask],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    fast.train_from_iterator(_first(texts, tokenizer.train_characters), trainer)
    ids = [(name, fast.token_to_id(name)) for name in (BOS, EOS)]
    fast.post_processor = processors.TemplateProcessing(  # pyright: ignore[reportAttributeAccessIssue]
        single=f"{BOS} $A {EOS}", pair=f"{BOS} $A {EOS} $B {EOS}", special_tokens=ids
    )
    folder.mkdir(parents=True, exist_ok=True)
    # Not fast.save: a full disk must raise OSError, and the library raises nothing so special.
    (folder / FILES[0]).write_text(fast.to_str(pretty=True), encoding="utf-8")
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": PAD,
        "bos_token": BOS,
        "eos_token": EOS,
        "mask_token": MASK,
        "cls_token": BOS,
        "sep_token": EOS,
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
    }
    (folder / FILES[1]).write_text(json.dumps(settings, indent=1), encoding="utf-8")


class Encoder:
    """A tokenizer folder opened for encoding documents.

    Attributes:
        size: V, rows the embedding needs.
        pad, bos, eos, mask: ids of the specials.
        specials: all special ids, sorted.
    """

    def __init__(self, folder: Path) -> None:
        """Open a folder in Hugging Face form.

        Raises:
            UserError: a file is missing or damaged, or the tokenizer lacks one of the four specials.
        """
        from tokenizers import Tokenizer as FastTokenizer

        path, settings_path = (_existing(folder, name) for name in FILES)
        try:
            settings = json.loads(settings_path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise UserError(
                f"{settings_path}: not JSON ({error}). Bring the file that goes with {path.name}."
            ) from None
        try:
            self.fast: FastTokenizer = FastTokenizer.from_file(str(path))
        except Exception as error:  # the library raises nothing more special
            raise UserError(f"{path}: not a file of the tokenizers library ({error}). Bring a whole file.") from None
        # Text that spells a special token must not become one.
        self.fast.encode_special_tokens = True
        self.fast.no_padding()
        self.fast.no_truncation()
        # Ids may have gaps, so the number of tokens can be less than the largest id needs.
        self.size = max(self.fast.get_vocab(with_added_tokens=True).values()) + 1
        self.pad = self._special(folder, settings, "pad_token")
        self.bos = self._special(folder, settings, "bos_token", "cls_token")
        self.eos = self._special(folder, settings, "eos_token", "sep_token")
        self.mask = self._special(folder, settings, "mask_token")
        added = self.fast.get_added_tokens_decoder()
        marked = {index for index, token in added.items() if token.special}
        self.specials = tuple(sorted(marked | {self.pad, self.bos, self.eos, self.mask}))

    def _special(self, folder: Path, settings: dict[str, Any], *names: str) -> int:
        for name in names:
            token = settings.get(name)
            text = token["content"] if isinstance(token, dict) else token
            index = None if text is None else self.fast.token_to_id(text)
            if index is not None:
                return index
        raise UserError(
            f"{folder}: the tokenizer has no {names[0].replace('_', ' ')} ({' or '.join(names)} in {FILES[1]}). "
            "Masked language modelling and padding need pad, bos, eos and mask tokens: add it, or leave "
            "pretrain.tokenizer.path empty to train a tokenizer."
        )

    @cached_property
    def words(self) -> words.Words:
        """Where words begin.

        Raises:
            UserError: the tokens of this tokenizer do not tell.
        """
        return words.find(self.fast)

    @property
    def dtype(self) -> np.dtype:
        """The smallest type that holds every id."""
        return np.dtype(np.uint16 if self.size <= 2**16 else np.uint32)

    @cached_property
    def _cache(self) -> WordCache | None:
        return word_cache(self.fast, self.dtype)

    def encode(self, texts: list[str]) -> list[np.ndarray]:
        """One array of `dtype` a text: [BOS] tokens [EOS]."""
        if self._cache is not None:
            first, last = (np.array([index], self.dtype).tobytes() for index in (self.bos, self.eos))
            return [np.frombuffer(first + self._cache.encode(text) + last, self.dtype) for text in texts]
        encodings = self.fast.encode_batch_fast(texts, add_special_tokens=False)
        return [np.array([self.bos, *encoding.ids, self.eos], self.dtype) for encoding in encodings]


def _existing(folder: Path, name: str) -> Path:
    if not (folder / name).is_file():
        raise UserError(f"tokenizer {str(folder)!r}: no {name} there. Give a folder that holds {' and '.join(FILES)}.")
    return folder / name


def _first(texts: Iterable[str], characters: int) -> Iterator[str]:
    seen = 0
    for text in texts:
        yield text
        seen += len(text)
        if seen >= characters:
            return
