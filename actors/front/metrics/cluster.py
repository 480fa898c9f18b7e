"""Gauges and counters of a cluster, from the figures that a gateway read last."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

if TYPE_CHECKING:
    from ....supervisors.cluster.queries import ClusterFigures


def cluster_figures(figures: ClusterFigures) -> Iterable[Metric]:
    """Yield the cluster's metrics."""
    yield GaugeMetricFamily("cluster_queued_runs", "Runs that wait for a worker.", figures.queued)
    yield GaugeMetricFamily("cluster_queued_oldest_seconds", "For how long the first of them has.", figures.oldest)
    yield GaugeMetricFamily("cluster_workers", "Workers that are alive.", figures.workers)
    yield GaugeMetricFamily("cluster_least_lease_seconds", "What is left of the lease over next.", figures.least_lease)
    yield CounterMetricFamily("cluster_takeovers", "Runs that were taken from dead workers.", figures.takeovers)
    yield CounterMetricFamily("cluster_fenced", "Runs that a worker has found to be others'.", figures.fenced)
