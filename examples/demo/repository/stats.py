"""Mean, spread and median of a list of numbers."""


def mean(values):
    """Return the sum of the values divided by their number."""
    return sum(values) / len(values)


def spread(values):
    """Return the difference between the largest and the smallest value."""
    return max(values) - min(values)


def median(values):
    """Return the value in the middle; of two, their mean."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle]
