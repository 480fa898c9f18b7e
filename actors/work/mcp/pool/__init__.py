"""Servers shared by key: when they start, who has them, when they end, and what is known of them meanwhile."""
