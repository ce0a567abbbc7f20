"""What became of one test."""

from __future__ import annotations

import traceback
import unittest
from typing import Any


class Outcome(unittest.TestResult):
    """The outcome of one test; the worst of its subtests."""

    def __init__(self) -> None:
        super().__init__()
        self.status, self.detail = "passed", ""

    def failed(self, detail: str) -> None:
        """Note the first failure."""
        if self.status != "failed":
            self.status, self.detail = "failed", detail

    def shortened(self) -> str:
        """Beginning and end of a long traceback."""
        text = self.detail
        return text if len(text) < 8000 else f"{text[:4000]}\n…\n{text[-4000:]}"

    def addError(self, test: Any, err: Any) -> None:
        super().addError(test, err)
        self.failed(_text(err))

    def addFailure(self, test: Any, err: Any) -> None:
        super().addFailure(test, err)
        self.failed(_text(err))

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.failed(_text(err))

    def addUnexpectedSuccess(self, test: Any) -> None:
        super().addUnexpectedSuccess(test)
        self.failed("unexpected success: the test is marked as one that fails")

    def addSkip(self, test: Any, reason: str) -> None:
        super().addSkip(test, reason)
        if self.status == "passed":
            self.status, self.detail = "skipped", reason


def _text(err: Any) -> str:
    return "".join(traceback.format_exception(*err))
