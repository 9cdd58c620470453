"""Lower bounds for softmax problems, many scores of a row: from Newton steps, from smoothed models, from sums."""
