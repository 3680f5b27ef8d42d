"""Metrics, as plain functions of (score, known).  Unknown is the positive class; larger score = more unknown."""

from glocal.metrics.histogram import ScoreHistogram, score_histogram
from glocal.metrics.openset import Answers, aupr, auroc, f1_at, f1_at_true_rate, fpr95, oscr
from glocal.metrics.summary import Interval, PairedDifference, mean_ci, mean_ranks, paired_difference, sign_test
from glocal.metrics.tasks import METRICS, Metric, accuracy, block_metrics, task_metrics

__all__ = [
    "METRICS",
    "Answers",
    "Interval",
    "Metric",
    "PairedDifference",
    "ScoreHistogram",
    "accuracy",
    "aupr",
    "auroc",
    "block_metrics",
    "f1_at",
    "f1_at_true_rate",
    "fpr95",
    "mean_ci",
    "mean_ranks",
    "oscr",
    "paired_difference",
    "score_histogram",
    "sign_test",
    "task_metrics",
]
