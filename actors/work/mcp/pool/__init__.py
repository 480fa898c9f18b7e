"""Pool of servers shared by key: start, leases, idle time, end, and the cache of their tool lists.

    servers    all servers of a process, and the leases of each agent
    pool       keys of servers, their leases in the kernel's pool, the life of one server, and the cached tool lists
    status     the report of this process for `callboard mcp status`

May import `client`, `links` and `auth`. Start with `servers`.
"""
