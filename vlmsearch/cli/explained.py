"""What is said of an explanation, in words."""

from __future__ import annotations

from vlmsearch.search.explanation import Explanation, FieldEvidence


def usual(field: FieldEvidence) -> str:
    """Return the cosine that an unrelated document would have, and how far these lie apart; "" where there is none."""
    if field.basis is None or field.basis.median is None or field.basis.deviation is None:
        return ""
    return f"{field.basis.median:.2f} ± {field.basis.deviation:.2f}"


def lacking(found: Explanation) -> str:
    """Return what the query asks and the document does not have, in a sentence; "" for nothing."""
    if not found.lacking:
        return ""
    return f"It has nothing for {', '.join(found.lacking)}, which counts neither for nor against it."


def unfitted(found: Explanation) -> str:
    """Return which fields are judged without a fit, in a sentence; "" for none."""
    names = [name for name, field in found.fields.items() if field.basis is not None and not field.basis.fitted]
    if not names:
        return ""
    return f"For {', '.join(names)} nothing is fitted to this query: the cosine is judged by how far it stands out."


def best_region(found: Explanation) -> str:
    """Return which part of the picture mattered most, in a sentence; "" where that is not known."""
    if found.regions is None:
        return ""
    best = found.regions.best
    if best is None:
        return "No part of its picture mattered by itself."
    left, top, right, bottom = (round(100 * share) for share in best)
    most = max(value for row in found.regions.evidence for value in row if value is not None)
    return (
        f"The part of its picture that mattered most is {left} to {right} % from the left and {top} to {bottom} % from "
        f"the top: it adds {most:.2f} to the evidence."
    )


def many(documents: int | None) -> str:
    """Return how many documents hold a word."""
    return "half or more" if documents is None else str(documents)
