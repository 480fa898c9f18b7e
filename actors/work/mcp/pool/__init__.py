"""Pool of servers shared by key: start, leases, idle time, end, and the cache of their tool lists."""
