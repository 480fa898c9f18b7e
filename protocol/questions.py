"""Questions and answers, which are the kernel's: `protocol/kernel/questions`."""

from __future__ import annotations

from .kernel.questions import Answer, Question, QuestionKind, understood, yes_or_no

__all__ = ["Answer", "Question", "QuestionKind", "understood", "yes_or_no"]
